"""A master at work in virtual time: what it sends when, and whom it leaves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmqstore._native.core import AckBoard, VirtualLog
from rmqstore.errors import DiskError
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import MasterNode
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.replication.protocol.frames import ClassicDataParser, Report
from rmqstore.replication.runtime.serving import MasterSide
from tests.support.model_links import ModelLink, ModelOwner, ModelPump, SideLog
from tests.support.virtual import VirtualProcess

OPTIONS = HaOptions(heartbeat_ms=250, housekeeping_ms=1000)
WATCH = 12


class Watch:
    """The watch of a log that grows."""

    def __init__(self, process: VirtualProcess, log: SideLog) -> None:
        self._process = process
        self._log = log
        self._armed_at: int | None = None
        self.is_closed = False

    def fileno(self) -> int:
        return WATCH

    def arm(self, seen: int) -> bool:
        self._armed_at = seen
        return self._log.end_offset > seen

    def clear(self) -> None:
        self._armed_at = None

    def close(self) -> None:
        self.is_closed = True

    def look(self) -> None:
        if self._armed_at is not None and self._log.end_offset > self._armed_at:
            self._process.loop.readable(WATCH)


class Master:
    """A master of the classic protocol whose log holds two messages of 100 bytes."""

    def __init__(self, *, has_replicas: bool = True) -> None:
        self.process = VirtualProcess()
        # What is due at a millisecond has run at the moments of a test.
        self.process.pass_time(0.0001)
        self.begun_ms = self.process.now_ms()
        self.log = SideLog()
        self.log.begin(1).put("ab")
        if has_replicas:
            self.log.epoch_state = self.log.epoch_state.share()
        self.pump = ModelPump(self.process)
        self.watch = Watch(self.process, self.log)
        self.owner = ModelOwner()
        self.side: MasterSide
        self.process.loop.run(self._make)

    def _make(self) -> None:
        virtual = VirtualLog(end_offset=200, flushed_offset=200, confirm_offset=200)
        store: Any = SimpleNamespace(
            make_board=lambda: AckBoard(virtual),
            make_pump=lambda board: self.pump,
            watchers=SimpleNamespace(subscribe=lambda event: self.watch),
        )
        log: Any = self.log
        group = MasterGroup(1, Quorum(in_sync=2), Mode.PLAIN)
        node = MasterNode(log, group, protocol="classic", broker_id=1, options=OPTIONS)
        self.side = MasterSide(
            self.process.runtime,
            store,
            log,
            node,
            self.owner,
            protocol="classic",
            options=OPTIONS,
        )
        self.side.begin(1, members=(), set_epoch=0)

    def accept(self) -> ModelLink:
        link = ModelLink(self.process, self.begun_ms)
        self.process.loop.run(lambda: self.side.accept(link, ("10.0.0.2", 40_000)))
        return link

    def served(self) -> ModelLink:
        """Return the link of a slave that has the whole log."""
        link = self.accept()
        link.arrives(Report(200))
        return link

    def grow(self) -> None:
        self.log.put("c")
        self.process.loop.run(self.watch.look)

    def pass_ms(self, ms: int) -> None:
        self.process.pass_time(ms / 1000)
        assert not self.owner.failures


def sent_on(link: ModelLink) -> list[tuple[int, int, int]]:
    """Return (time, offset, size) of each frame that was sent."""
    parser = ClassicDataParser()
    return [
        (at, frame.offset, len(frame.body))
        for at, data in link.pieces
        for frame in parser.feed(data)
    ]


def test_a_log_that_grows_is_sent_at_once_each_time() -> None:
    master = Master()
    link = master.served()
    for _ in range(3):
        master.pass_ms(100)
        master.grow()
    master.pass_ms(1)
    assert sent_on(link) == [(100, 200, 100), (200, 300, 100), (300, 400, 100)]


def test_an_idle_connection_gets_a_heartbeat_after_each_interval() -> None:
    master = Master()
    link = master.served()
    master.pass_ms(800)
    assert sent_on(link) == [(251, 200, 0), (502, 200, 0), (753, 200, 0)]


def test_a_slave_that_falls_silent_is_left_after_the_limit_and_others_are_not() -> None:
    master = Master()
    silent, other = master.served(), master.served()
    for _ in range(4):
        master.pass_ms(250)
        other.arrives(Report(200))
    assert silent.closed_ms is None
    master.pass_ms(1)
    assert (silent.closed_ms, other.closed_ms, len(master.side)) == (1001, None, 1)


def test_a_slave_that_reports_and_reads_nothing_is_left_after_the_limit() -> None:
    master = Master()
    link = master.served()
    link.is_blocked = True
    master.pass_ms(100)
    master.grow()
    for _ in range(8):
        master.pass_ms(125)
        link.arrives(Report(200))
    assert link.closed_ms is None
    master.pass_ms(1)
    assert link.closed_ms == 100 + 1001


def test_nothing_is_sent_or_read_until_it_is_saved_that_the_log_has_replicas() -> None:
    master = Master(has_replicas=False)
    link = master.served()
    master.pass_ms(300)
    master.grow()
    master.pass_ms(300)
    assert (link.is_paused, link.pieces, len(master.owner.to_share)) == (True, [], 1)

    saved = master.owner.to_share.pop()
    master.process.loop.run(lambda: saved(None))
    assert not link.is_paused
    master.pass_ms(1)
    assert sent_on(link)[-1][1:] == (200, 100)


def test_a_connection_is_closed_where_it_cannot_be_saved_that_the_log_has_replicas() -> None:
    master = Master(has_replicas=False)
    link = master.served()
    failed = master.owner.to_share.pop()
    master.process.loop.run(lambda: failed(DiskError(28, "No space left on device")))
    master.pass_ms(1)
    assert (link.closed_ms, link.pieces, len(master.side)) == (0, [], 0)


def test_a_master_without_connections_reviews_four_times_a_second() -> None:
    master = Master()
    moves = master.owner.moves
    master.pass_ms(1000)
    assert master.owner.moves - moves == 4


def test_a_role_that_ended_closes_its_connections_and_does_nothing_more() -> None:
    master = Master()
    link = master.served()
    master.process.run(master.side.end())
    assert (link.closed_ms is None, master.pump.is_closed, master.watch.is_closed) == (
        False,
        True,
        True,
    )
    moves = master.owner.moves
    master.grow()
    master.pass_ms(5000)
    assert (master.owner.moves, link.pieces) == (moves, [])
