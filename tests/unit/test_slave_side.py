"""A slave at work in virtual time: when it connects, what it does while its disk hangs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmqstore.replication.group.node import SlaveNode
from rmqstore.replication.protocol.events import HaOptions, HaState
from rmqstore.replication.protocol.frames import ClassicData
from rmqstore.replication.runtime.following import SlaveSide
from tests.support.model_links import ModelConnect, ModelLink, ModelOwner, ModelPump, SideLog
from tests.support.virtual import VirtualProcess

OPTIONS: dict[str, Any] = {
    "heartbeat_ms": 250,
    "housekeeping_ms": 1000,
    "handshake_ms": 500,
    "reconnect_ms": 2000,
    "overlap_bytes": 0,
}
HANG_MS = 300


class Slave:
    """A slave of the classic protocol whose log holds two messages of 100 bytes."""

    def __init__(self, *, ack_flushed: bool = False) -> None:
        self.process = VirtualProcess()
        # What is due at a millisecond has run at the moments of a test.
        self.process.pass_time(0.0001)
        self.begun_ms = self.process.now_ms()
        self.log = SideLog()
        self.log.put("ab")
        self.log.flushes_at_once = not ack_flushed
        self.connect = ModelConnect(self.process)
        self.pump = ModelPump(self.process)
        self.owner = ModelOwner()
        self.side: SlaveSide
        self.process.loop.run(lambda: self._make(HaOptions(ack_flushed=ack_flushed, **OPTIONS)))

    def _make(self, options: HaOptions) -> None:
        store: Any = SimpleNamespace(make_pump=lambda: self.pump)
        log: Any = self.log
        self.side = SlaveSide(
            self.process.runtime,
            store,
            log,
            SlaveNode(log, protocol="classic", broker_id=2, options=options),
            self.owner,
            master=("10.0.0.1", 10912),
            protocol="classic",
            options=options,
            make_link=self.connect,
        )

    def begin(self) -> Slave:
        self.process.loop.run(self.side.begin)
        return self

    def connected(self) -> ModelLink:
        """Return its link to a master that holds its log; nothing waits."""
        self.begin()
        self.pass_ms(10)
        assert self.link.take_reports() == [(1, 200)]
        return self.link

    @property
    def link(self) -> ModelLink:
        return self.connect.links[-1]

    @property
    def now_ms(self) -> int:
        return self.process.now_ms() - self.begun_ms

    def pass_ms(self, ms: int) -> None:
        self.process.pass_time(ms / 1000)
        assert not self.owner.failures


# ---- connecting


def test_pauses_between_refused_connections_grow_to_the_longest_one() -> None:
    slave = Slave()
    slave.connect.is_refused = True
    slave.begin().pass_ms(7000)
    pauses = [20, 40, 80, 160, 320, 640, 1280, 2000, 2000]
    assert slave.connect.attempts == [sum(pauses[:at]) for at in range(len(pauses) + 1)]
    assert "refused" in slave.side.status().last_error


def test_a_connection_that_does_not_come_about_is_given_up_after_the_time_of_a_handshake() -> None:
    slave = Slave()
    slave.connect.is_silent = True
    slave.begin().pass_ms(600)
    assert slave.connect.attempts == [0, 520]
    assert "no answer in time" in slave.side.status().last_error


def test_an_order_while_a_connection_comes_about_makes_no_second_one() -> None:
    slave = Slave()
    slave.connect.is_silent = True
    slave.begin().pass_ms(100)
    slave.process.loop.run(lambda: slave.side.ordered(3))
    slave.pass_ms(100)
    assert slave.connect.attempts == [0]


def test_the_log_is_checked_before_a_connection_begins() -> None:
    slave = Slave()
    slave.process.runtime.disk_ms = HANG_MS
    slave.begin().pass_ms(HANG_MS - 1)
    assert (slave.log.checks, slave.link.is_open) == (0, False)
    slave.pass_ms(1)
    assert (slave.log.checks, slave.link.take_reports()) == (1, [(HANG_MS, 200)])


def test_a_role_that_ends_while_its_connection_comes_about_closes_it() -> None:
    slave = Slave()
    slave.process.runtime.disk_ms = HANG_MS
    slave.begin().pass_ms(100)
    slave.process.run(slave.side.end())
    assert slave.link.closed_ms == 100
    slave.pass_ms(5000)
    assert (slave.connect.attempts, slave.link.pieces) == ([0], [])


def test_a_lost_connection_is_made_again_at_once_and_the_next_early_loss_waits() -> None:
    slave = Slave()
    slave.connected().arrives(ClassicData(200))
    slave.link.is_lost()
    slave.pass_ms(10)
    assert slave.connect.attempts == [0, 10]
    slave.link.arrives(ClassicData(200))
    slave.link.is_lost()
    slave.pass_ms(2100)
    assert slave.connect.attempts == [0, 10, 2020]


# ---- time on a connection


def test_an_idle_slave_reports_after_each_interval() -> None:
    slave = Slave()
    link = slave.connected()
    slave.pass_ms(800)
    assert link.take_reports() == [(252, 200), (503, 200), (754, 200)]


def test_a_master_that_falls_silent_is_left_and_connected_to_again_after_the_pause() -> None:
    slave = Slave()
    link = slave.connected()
    slave.pass_ms(490)
    link.arrives(ClassicData(200))
    slave.pass_ms(990)
    assert link.closed_ms is None
    slave.pass_ms(100)
    assert link.closed_ms == 500 + 1001
    slave.pass_ms(2000)
    assert slave.connect.attempts == [0, 500 + 1001 + 2000]
    assert slave.side.status().state is HaState.TRANSFER


# ---- the disk


def test_while_the_disk_hangs_nothing_is_read_or_acknowledged() -> None:
    slave = Slave()
    link = slave.connected()
    slave.process.runtime.disk_ms = HANG_MS
    link.arrives(ClassicData(200, b"c" * 100))
    slave.pass_ms(100)
    link.arrives(ClassicData(300, b"d" * 100))
    slave.pass_ms(199)
    assert (link.is_paused, link.take_reports()) == (True, [])
    assert not slave.side.has_caught_up(200)

    slave.pass_ms(1)
    assert link.take_reports() == [(310, 300)]
    slave.pass_ms(300)
    assert link.take_reports() == [(610, 400)]
    assert slave.side.has_caught_up(None)
    assert not link.is_paused


def test_a_disk_that_refuses_bytes_ends_the_connection_alone() -> None:
    slave = Slave()
    link = slave.connected()
    slave.log.let_appends_fail()
    link.arrives(ClassicData(200, b"c" * 100))
    slave.pass_ms(10)
    assert link.closed_ms == 11
    assert "No space left" in slave.side.status().last_error
    assert not slave.side.is_over


def test_a_slave_that_acknowledges_its_disk_says_where_it_was_until_the_sync_ends() -> None:
    slave = Slave(ack_flushed=True)
    link = slave.connected()
    link.arrives(ClassicData(200, b"c" * 100))
    for _ in range(2):
        slave.pass_ms(300)
        link.arrives(ClassicData(300))
    assert slave.pump.flushes_to == 300
    assert {offset for _, offset in link.take_reports()} == {200}

    slave.process.loop.run(lambda: slave.pump.end_sync(slave.log))
    slave.pass_ms(1)
    assert link.take_reports() == [(610, 300)]


# ---- orders


def test_events_of_a_held_side_wait_until_it_goes_on() -> None:
    slave = Slave()
    link = slave.connected()
    slave.process.runtime.disk_ms = HANG_MS
    link.arrives(ClassicData(200, b"c" * 100))
    slave.process.run(slave.side.hold())
    # The bytes that came before are in the log.
    assert (slave.now_ms, link.take_reports()) == (310, [(310, 300)])

    link.arrives(ClassicData(300, b"d" * 100))
    slave.pass_ms(3000)
    assert (slave.log.end_offset, link.take_reports()) == (300, [])
    slave.process.run(slave.side.go_on())
    slave.pass_ms(HANG_MS)
    assert slave.log.end_offset == 400


def test_a_connection_that_comes_about_while_the_side_is_held_is_not_read() -> None:
    slave = Slave()
    slave.process.runtime.disk_ms = HANG_MS
    slave.begin().pass_ms(100)
    slave.process.run(slave.side.hold())
    slave.pass_ms(HANG_MS)
    assert slave.link.is_open
    slave.link.arrives(ClassicData(200, b"c" * 100))
    slave.pass_ms(100)
    assert (slave.link.is_paused, slave.link.pieces) == (True, [])
    slave.process.run(slave.side.go_on())
    slave.pass_ms(HANG_MS)
    assert slave.log.end_offset == 300


def test_the_end_of_a_role_waits_for_bytes_on_their_way_to_the_disk() -> None:
    slave = Slave()
    link = slave.connected()
    slave.process.runtime.disk_ms = HANG_MS
    link.arrives(ClassicData(200, b"c" * 100))
    slave.process.run(slave.side.end())
    assert (slave.log.end_offset, slave.pump.is_closed) == (300, True)
    assert (link.closed_ms, link.take_reports()) == (310, [])
    link.arrives(ClassicData(300, b"d" * 100))
    slave.pass_ms(5000)
    assert slave.log.end_offset == 300
