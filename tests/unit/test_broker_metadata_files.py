"""The files of a broker's topics, groups and offsets, in virtual time: what is saved, and when."""

from __future__ import annotations

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.metadata.files import SavedTable
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.parts import Parts
from rmqstore.config import BrokerConfig
from rmqstore.errors import RequestRefused
from rmqstore.sim.machine_folder import MachineFolder
from rmqstore.store.metadata import GroupConfig, GroupTable, TopicConfig, TopicTable
from rmqstore.store.metadata.table import Table
from tests.support.virtual import VirtualProcess


class Disk:
    """The small files of a machine, which can be full."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_full = False
        log: Any = SimpleNamespace(change=self._change)
        self.folder = MachineFolder(self.files, log, lambda change: change())

    def _change(self, *, needs_room: bool = False) -> None:
        if self.is_full and needs_room:
            raise OSError(errno.ENOSPC, "no room")


class Broker:
    """The master of a group of one, with open tables."""

    def __init__(self, disk: Disk) -> None:
        self.process = VirtualProcess()
        self.runtime = self.process.runtime
        self.log = self.runtime.log
        self.config = BrokerConfig()
        self.role = Role(name="master", broker_id=0)
        self.is_leading = True
        self.parts = Parts(folder=disk.folder.at)
        store = SimpleNamespace(
            path="store",
            start_offset=0,
            end_offset=0,
            dispatched_offset=0,
            flushed_offset=0,
            _declare=str,
        )
        self.store: Any = SimpleNamespace(store=store)
        self.service_tables = [DelayProgress(flushed_offset=lambda: 0)]
        self.membership: Any = SimpleNamespace(
            possible_members=frozenset(),
            members_without_reports=frozenset(),
            puts_need_members=False,
            admit=lambda ids: None,
        )
        self.process.loop.run(self._begin)
        self.process.run(self.metadata.open())
        self.process.loop.run(lambda: self.metadata.take_role(self.role))

    def _begin(self) -> None:
        self.metadata = Metadata(self)

    def wall_ms(self) -> int:
        return self.runtime.wall_ms()

    def now_ms(self) -> int:
        return self.runtime.now_ms()

    def registration_due(self) -> None:
        pass

    def commit(self, offset: int) -> None:
        self.process.loop.run(lambda: self.metadata.offsets.commit("T", "G", 0, offset))


def offset_of_next(disk: Disk) -> int | None:
    """Return the offset of the next life of the broker."""
    return Broker(disk).metadata.offsets.query("T", "G", 0)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_offsets_are_saved_at_the_close(disk: Disk) -> None:
    broker = Broker(disk)
    broker.commit(7)
    broker.process.run(broker.metadata.close())
    assert offset_of_next(disk) == 7


def test_offsets_are_saved_every_five_seconds(disk: Disk) -> None:
    broker = Broker(disk)
    for offset in (7, 8):
        broker.commit(offset)
        broker.process.pass_time(5.1)
        assert offset_of_next(disk) == offset


def test_a_save_that_failed_is_tried_again_with_the_next_regular_one(disk: Disk) -> None:
    broker = Broker(disk)
    disk.is_full = True
    with pytest.raises(RequestRefused, match="in effect but not saved"):
        broker.process.run(broker.metadata.change_group(GroupConfig("orders")))
    broker.process.pass_time(5.1)
    disk.is_full = False
    broker.process.pass_time(5)
    assert Broker(disk).metadata.group("orders") is not None


def test_a_topic_that_a_message_made_is_saved_before_the_close_ends(disk: Disk) -> None:
    broker = Broker(disk)
    broker.process.pass_time(5.1)
    broker.process.loop.run(lambda: broker.metadata.topic_for_send("orders"))
    broker.process.run(broker.metadata.close())
    assert Broker(disk).metadata.topic("orders") is not None


def test_saves_that_are_requested_while_one_runs_have_the_last_change(disk: Disk) -> None:
    process = VirtualProcess()
    present: list[Table] = [TopicTable()]
    saves = 0

    def read() -> Table:
        nonlocal saves
        saves += 1
        return present[0]

    async def story() -> None:
        table = SavedTable(disk.folder, read, process.runtime)
        tasks = process.runtime.tasks("saves")
        for name in ("first", "second", "third"):
            present[0] = TopicTable({name: TopicConfig(name)})
            tasks.start(table.save(), name=name)
            await process.runtime.sleep(0)
        await tasks.join()

    process.run(story())
    assert list(TopicTable.load(disk.folder).topics) == ["third"]
    assert saves == 2, "the two that were requested meanwhile share one"


def test_a_table_that_did_not_change_is_not_written_again(disk: Disk) -> None:
    process = VirtualProcess()

    async def story() -> None:
        table = SavedTable(disk.folder, lambda: GroupTable(), process.runtime)
        await table.save()
        disk.files.clear()
        await table.save()

    process.run(story())
    assert disk.files == {}
