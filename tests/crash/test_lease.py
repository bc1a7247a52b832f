"""A master whose process is stopped beyond its lease, at every step of every kind of put."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.house import tree
from tests.support.preloaded import preloaded

REFUSED = ["NotWritable", False, "SERVICE_NOT_AVAILABLE"]
UNACKNOWLEDGED = ["ReplicaTimeout", True, "FLUSH_SLAVE_TIMEOUT"]
SYNCHRONOUS = ("put", "put_large", "put_many", "put_batch")
KINDS = [
    *((verb, kind) for verb in SYNCHRONOUS for kind in ("MEMORY", "DISK", "REPLICATED")),
    *((verb, kind) for verb in ("aio.put", "aio.put_many") for kind in ("MEMORY", "DISK")),
    *((verb, "REPLICATED") for verb in ("aio.put", "aio.put_many")),
    ("place_records", "MEMORY"),
]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the environment of a process that can be stopped, but for STOPPED_PROCESS."""
    source = Path(__file__).with_name("stopped_process.c")
    return preloaded(source, tmp_path_factory.mktemp("stopped"))


@pytest.mark.parametrize(("verb", "durability"), KINDS)
def test_no_put_is_acknowledged_by_a_process_that_was_stopped_beyond_its_lease(
    verb: str, durability: str, environment: dict[str, str], tmp_path: Path
) -> None:
    control = tmp_path / "control"
    control.write_bytes(bytes(16))
    arguments = [str(tmp_path / "store"), str(control), verb, durability]

    done = subprocess.run(
        [sys.executable, "-m", "tests.crash.stopped_putter", *arguments],
        cwd=tree.ROOT,
        env={**environment, "STOPPED_PROCESS": str(control)},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
    )

    puts: list[tuple[bool, Any, bool]] = [json.loads(line) for line in done.stdout.splitlines()]
    *stopped, last = puts
    assert last == [False, "acknowledged", True]

    # Before the admission, and at the very end: what comes in between is stored as well. How many
    # steps a put takes depends on how long its sync does.
    assert stopped[0] == [True, REFUSED, False]
    assert [True, UNACKNOWLEDGED, True] in stopped

    for _, outcome, is_stored in stopped:
        if durability == "DISK" and outcome[0] == "FlushTimeout":
            continue  # Its time was up as well.
        assert outcome == (UNACKNOWLEDGED if is_stored else REFUSED)
