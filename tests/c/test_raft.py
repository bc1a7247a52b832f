"""The part of the core that needs libraft, under each sanitizer.

libraft and libuv are libraries of the system, which no sanitizer looks into.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.c import library
from tests.support.effort import rounds
from tests.support.ports import reserved

HERE = Path(__file__).parent
EVENTS = rounds(1000, 20_000)
COMMANDS = rounds(300, 5000)
needs_raft = pytest.mark.skipif(
    not library.has_raft(), reason="libraft 0.15 and libuv are not installed"
)


def run(source: str, kind: str, *words: str, has_raft: bool = True) -> None:
    sources = [HERE / source, *library.raft_files("*.c" if has_raft else "raft_events.c")]
    libraries = ["-lraft", "-luv"] if has_raft else []
    made = library.raft_program(sources, library.SANITIZED_PROGRAMS[kind], libraries)
    # Writes that were under way at the end are not freed: see raft_guard.c.
    options = f"suppressions={HERE / 'raft_leaks.txt'}:print_suppressions=0"
    environment = {**os.environ, "LSAN_OPTIONS": options}
    command, limit_s = [str(made), *words], library.PROGRAM_S
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=limit_s)
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}\n{done.stderr[-8000:]}"


@pytest.mark.parametrize("kind", library.SANITIZED_PROGRAMS)
def test_events_pass_in_order_within_their_bound(kind: str) -> None:
    run("raft_events.c", kind, str(EVENTS), has_raft=False)


@needs_raft
def test_guards_end_a_failed_node_know_its_peers_and_correct_its_answers() -> None:
    run("raft_guard.c", "memory")


@needs_raft
def test_three_nodes_have_one_history_and_close_while_they_write(tmp_path: Path) -> None:
    """Not under the thread sanitizer: it does not see how libuv orders the threads of its pool."""
    with reserved(3) as ports:
        run("raft_group.c", "memory", str(tmp_path), str(COMMANDS), *map(str, ports))
