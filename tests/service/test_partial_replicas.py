"""Replicas that lack the beginning of their master's log, and who knows it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqstore import Message, Store
from rmqstore.replication.group.epoch_state import (
    EpochState,
    format_epoch_state,
    parse_epoch_state,
)
from rmqstore.replication.group.sync_state_set import Proposal
from tests.service.replicas_on_loop import of, stores
from tests.support.loops import on_loop
from tests.support.service_group import Group, group, put
from tests.support.waiting import until, wait_until

__all__ = ["group", "stores"]

FILE_SIZE = 65536


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_replica_that_began_with_the_last_file_is_partial_also_without_the_key(
    group: Group, tmp_path: Path, protocol: str
) -> None:
    master = group.master(protocol=protocol)
    put(master, *[b"x" * 9000] * 20)
    slave = group.slave(master, protocol=protocol, sync_from_last_file=True)
    slave.wait_caught_up(master.end_offset)
    begun = slave.store.start_offset
    assert begun == 2 * FILE_SIZE
    assert slave.status().is_partial
    assert not master.status().is_partial

    slave.close()
    slave.store.close()
    slave = group.slave(master, protocol=protocol)
    slave.wait_caught_up(master.end_offset)
    assert slave.status().is_partial

    # The master keeps no earlier file once this one has deleted one by the same rule.
    put(master, *[b"x" * 9000] * 10)
    slave.wait_caught_up(master.end_offset)
    slave.store.expire_files(1)
    assert not slave.status().is_partial


@pytest.mark.parametrize("from_last", [True, False])
def test_a_replica_that_has_all_of_its_masters_log_is_not_partial(
    group: Group, *, from_last: bool
) -> None:
    master = group.master()
    put(master, b"x")
    slave = group.slave(master, sync_from_last_file=from_last)
    slave.wait_caught_up(master.end_offset)
    assert not slave.status().is_partial


def test_a_replica_that_begins_at_its_masters_first_byte_is_not_partial(group: Group) -> None:
    master = group.master()
    put(master, *[b"x" * 9000] * 20)
    master.store.expire_files(1)
    slave = group.slave(master)
    slave.wait_caught_up(master.end_offset)
    assert slave.store.start_offset == FILE_SIZE
    assert not slave.status().is_partial


def test_a_partial_replica_that_begins_anew_is_whole(group: Group) -> None:
    master = group.master()
    put(master, *[b"x" * 9000] * 10)
    slave = group.slave(master, sync_from_last_file=True)
    slave.wait_caught_up(master.end_offset)
    assert slave.status().is_partial
    address = master.address
    assert address is not None
    slave.close()
    put(master, *[b"y" * 9000] * 30)
    master.store.expire_files(3)
    slave.store.close()
    again = group.plain("b", 2)
    again.become_slave(address, begin_anew=True)
    wait_until(again, lambda: again.end_offset == master.end_offset, "it begins anew")
    assert again.store.start_offset == 3 * FILE_SIZE
    assert not again.status().is_partial


@on_loop
async def test_a_partial_replica_that_may_be_elected_counts_once_its_first_file_is_deleted(
    stores: Callable[[str], Store],
) -> None:
    one, two = stores("a"), stores("b")
    proposed: list[Proposal] = []
    wishes: dict[str, Any] = {"sync_from_last_file": True, "learns_while_partial": True}
    async with (
        of(one, 1, on_proposal=proposed.append) as master,
        of(two, 2, **wishes) as slave,
    ):
        await master.become_master(1, members=(1,), set_epoch=1)
        one.put_many([Message("orders", b"x" * 9000)] * 20)
        assert master.address is not None
        await slave.become_slave(master.address, 1)
        await slave.wait_caught_up(one.end_offset)
        await until(lambda: [each.is_learner for each in master.replicas] == [True], "it learns")
        await slave.wait_caught_up(one.end_offset)
        assert slave.status().is_partial
        assert proposed == []

        one.put_many([Message("orders", b"x" * 9000)] * 10)
        await slave.wait_caught_up(one.end_offset)
        two.expire_files(1)
        await until(lambda: [each.members for each in proposed] == [{1, 2}], "it is proposed")
        assert [each.is_learner for each in master.replicas] == [False]


# -- the file


def test_a_file_without_the_new_lines_is_read_and_written_as_before() -> None:
    old = "knownEpoch=3\nmasterEpoch=1\nmasterEndOffset=-1\nhasReplicas=true\ncrc=1463299363\n"
    state = EpochState(3, 1, -1, has_replicas=True)
    text = format_epoch_state(state)
    assert text.splitlines()[:-1] == old.splitlines()[:-1]
    assert parse_epoch_state(text) == state


def test_the_new_lines_are_read_back_and_gone_after_a_clean_end() -> None:
    state = (
        EpochState(has_replicas=True)
        .begin(4, copies=2, boot="b 1")
        .begin_log(2048, is_partial=True)
    )
    assert parse_epoch_state(format_epoch_state(state)) == state
    ended = state.end(4096).begin_log(8192, is_partial=False)
    assert "masterCopies" not in format_epoch_state(ended)
    assert "masterBoot" not in format_epoch_state(ended)
    assert "begunAt" not in format_epoch_state(ended)
    assert state.is_partial(2048)
    assert not state.is_partial(4096)
