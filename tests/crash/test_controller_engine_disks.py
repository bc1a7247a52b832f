"""Promises that every controller engine keeps when its disk does not: nothing acknowledged is lost,
all nodes have one history, while a snapshot is taken every 200 entries.

Each node has a file system of its own. Power is cut as the tests of file systems themselves do it:
the kernel stops it at once, with nothing written back, and what was not synced is gone. The
processes are killed before that: a sync that is under way when the kernel stops a file system may
be reported as done. A single node cannot stand such a report; a group of three can stand one.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import pytest

from rmqstore.store.durable_files import sync_directory
from tests.crash.disk import LoopDisk, fill_up, unmount
from tests.crash.engine_groups import (
    ENGINES,
    REPLICATED,
    EtcdGroup,
    Group,
    RaftGroup,
    needs_raft,
)
from tests.support.effort import rounds
from tests.support.etcd_cluster import needs_etcd

SEED = int(os.environ.get("RMQ_SEED", "20261123"))
ROUNDS = rounds(1, 50)
ENTRIES = 150
"""Commands of each step: a snapshot falls into most rounds, at any of their moments."""


class SmallEtcdGroup(EtcdGroup):
    """An etcd that takes a few MiB."""

    quota_bytes = 16 << 20


@contextmanager
def on_disks(make: type[Group], root: Path) -> Iterator[tuple[Group, dict[str, LoopDisk]]]:
    """Yield a group that is not started and the disk of each of its nodes."""
    disks: dict[str, LoopDisk] = {}
    with ExitStack() as stack:
        for name in make.names:
            folder = root / f"disk-{name}"
            folder.mkdir()
            disk = disks[name] = LoopDisk(folder, make.disk_bytes)
            stack.callback(unmount, disk.path)
            data = disk.path / "data"
            data.mkdir()
            sync_directory(disk.path)
            make.place(root, name).symlink_to(data)
        yield stack.enter_context(make(root)), disks


def victim(group: Group, number: int) -> str:
    """Return the leader in even rounds, another node in odd ones, the only node always."""
    leader = group.leader()
    others = [name for name in group.names if name != leader]
    return others[number // 2 % len(others)] if number % 2 and others else leader


def test_power_loss_of_these_disks_leaves_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    with on_disks(Group, tmp_path) as (_, disks):
        disk = disks["n0"]
        synced, written = disk.path / "synced", disk.path / "written"
        with synced.open("wb") as file:
            file.write(b"x" * 5000)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(disk.path)
        with synced.open("ab") as file:
            file.write(b"y" * 5000)
        written.write_bytes(b"z")
        disk.vanish()
        disk.repair()
        assert synced.read_bytes() == b"x" * 5000
        assert not written.exists()


@pytest.mark.parametrize("make", ENGINES)
def test_power_loss_of_all_at_once_leaves_every_acknowledged_command(
    make: type[Group], tmp_path: Path
) -> None:
    rng = random.Random(SEED)
    with on_disks(make, tmp_path) as (group, disks):
        for _ in range(ROUNDS):
            group.start()
            group.progress(rng.randrange(1, 2 * ENTRIES))
            group.kill_all()
            for each in disks.values():
                each.vanish()
                each.repair()
            group.settle()


@pytest.mark.parametrize("make", REPLICATED)
def test_power_loss_of_one_node_holds_up_nobody_and_loses_nothing(
    make: type[Group], tmp_path: Path
) -> None:
    with on_disks(make, tmp_path) as (group, disks):
        for number in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            lost = victim(group, number)
            group.kill(lost)
            disks[lost].vanish()
            group.progress(ENTRIES)
            disks[lost].repair()
            group.settle()


@pytest.mark.parametrize("make", REPLICATED)
def test_disk_that_goes_away_ends_its_node_and_loses_nothing(
    make: type[Group], tmp_path: Path
) -> None:
    with on_disks(make, tmp_path) as (group, disks):
        for number in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            failing = victim(group, number)
            disks[failing].vanish()
            group.wait_for_failure(failing)
            group.progress(ENTRIES)
            group.kill(failing)
            disks[failing].repair()
            group.replace(failing)
            group.settle()


@needs_raft
def test_full_disk_ends_its_node_which_catches_up_when_there_is_room(tmp_path: Path) -> None:
    with on_disks(RaftGroup, tmp_path) as (group, disks):
        for number in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            full = victim(group, number)
            filler = disks[full].path / "filler"
            # C-Raft itself gives room back, when it ends a segment.
            group.wait_for_failure(full, meanwhile=partial(fill_up, filler))
            group.progress(ENTRIES)
            group.kill(full)
            filler.unlink()
            group.settle()


def test_full_disk_of_the_only_node_refuses_commands_until_there_is_room(tmp_path: Path) -> None:
    with on_disks(Group, tmp_path) as (group, disks):
        group.start()
        for _ in range(ROUNDS):
            group.progress(ENTRIES)
            filler = disks["n0"].path / "filler"
            fill_up(filler)
            group.wait_for_refusal("n0")
            filler.unlink()
            group.progress(ENTRIES)
            group.settle()


@needs_etcd
def test_used_up_quota_of_etcd_refuses_commands_until_there_is_room(tmp_path: Path) -> None:
    with SmallEtcdGroup(tmp_path) as group:
        group.start()
        for _ in range(ROUNDS):
            group.progress(ENTRIES)
            leader = group.leader()
            group.use_up_quota()
            group.wait_for_refusal(leader)
            group.make_room()
            group.progress(ENTRIES)
            group.settle()


@pytest.mark.parametrize("make", ENGINES)
def test_torn_or_damaged_tail_of_one_log_loses_nothing(make: type[Group], tmp_path: Path) -> None:
    rng = random.Random(SEED)
    with make(tmp_path) as group:
        for number in range(ROUNDS):
            group.start()
            group.progress(ENTRIES)
            damaged = victim(group, number)
            group.rest()
            group.kill_all()
            group.damage_tail(damaged, rng)
            group.settle()
