"""Promises of the engine with C-Raft about its files, and about a node that is far behind.

What all engines promise is in `test_controller_engines` and `test_controller_engine_disks`.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from rmqstore.controller.engines.raft import RaftEngine
from rmqstore.errors import CorruptionError
from tests.crash.engine_groups import RaftGroup, needs_raft
from tests.support.engine_history import History, commit
from tests.support.ports import reserved
from tests.support.waiting import until

pytestmark = needs_raft
ENTRIES = 800
"""Commands after which the leader has dropped those that a node lacks."""


def test_node_behind_a_snapshot_gets_it_from_the_leader(tmp_path: Path) -> None:
    with RaftGroup(tmp_path) as group:
        group.start()
        group.progress(1)
        leader = group.leader()
        late = next(name for name in group.names if name != leader)
        group.kill(late)
        group.progress(ENTRIES)
        group.start()
        group.wait_for_snapshot(late)
        group.settle()


def test_lost_directory_is_filled_by_the_other_nodes(tmp_path: Path) -> None:
    with RaftGroup(tmp_path) as group:
        group.start()
        group.progress(ENTRIES)
        lost = group.leader()
        group.settle()
        group.kill_all()
        shutil.rmtree(tmp_path / lost)
        group.joining.add(lost)
        group.settle()


def damage_first_entry(log: Path) -> None:
    """Change a byte of the first command, which is in a segment that is complete."""
    segment = min(each for each in log.iterdir() if b"command" in each.read_bytes())
    assert segment.name[0].isdigit()
    data = bytearray(segment.read_bytes())
    data[data.index(b"command")] ^= 1
    segment.write_bytes(data)


def test_damage_in_a_complete_segment_refuses_to_start_and_sets_nothing_aside(
    tmp_path: Path,
) -> None:
    async def run(port: int, *commands: str) -> list[str]:
        history = History()
        engine = RaftEngine(
            tmp_path / "n0",
            node_id="n0",
            members={"n0": ("127.0.0.1", port)},
            bind_host="127.0.0.1",
            election_ms=100,
            heartbeat_ms=20,
        )
        await history.start(engine)
        await until(lambda: engine.leadership().is_leader, "it leads")
        for each in commands:
            await commit(engine, each)
        await engine.close()
        return history.commands

    log = tmp_path / "n0" / "raft"
    with reserved(1) as (port,):
        asyncio.run(run(port, "command 0", "command 1"))
        assert asyncio.run(run(port)) == ["command 0", "command 1"]
        damage_first_entry(log)
        files = {each.name: each.read_bytes() for each in log.iterdir()}
        with pytest.raises(CorruptionError, match="controllerRaftJoin"):
            asyncio.run(run(port))
        assert {each.name: each.read_bytes() for each in log.iterdir()} == files
