"""The HA port is open to the network: what a master makes of peers that break the rules.

A good slave stands beside each of them, and a put waits for one copy more than there are. Whatever
a peer says, that put stays waiting, the confirm offset stays where it is, and the good slave goes
on.
"""

from __future__ import annotations

import logging
import random
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message
from rmqstore.errors import ArgumentError
from rmqstore.replication import HaOptions, Master, Quorum, Slave
from rmqstore.replication.protocol.frames import (
    Ack,
    ClassicData,
    Frame,
    Handshake,
    HandshakeReply,
    Report,
    Transfer,
)
from tests.service.wire import HOST, Peer, Protocol, calling
from tests.support.log_files import log_bytes
from tests.support.waiting import wait_until

PROTOCOLS: tuple[Protocol, ...] = ("autoswitch", "classic")
BOTH = pytest.mark.parametrize("protocol", PROTOCOLS)
HELLO = Handshake(sync_from_last_file=False, is_learner=False, broker_id=3)
QUICK = HaOptions(heartbeat_ms=50, housekeeping_ms=400, reconnect_ms=20)
BODY = b"x" * 500
ANONYMOUS_BYTES_MAX = 24 << 20

HTTP = b"GET / HTTP/1.1\r\nHost: broker\r\nAccept: */*\r\n\r\n"
TLS = bytes.fromhex("1603010200010001fc0303") + bytes(range(200))
RANDOM = b"\xfe" + random.Random(7).randbytes(5000)


class Siege:
    """A master, a good slave, and a put that waits for more copies than there are."""

    def __init__(
        self, master: Master, good: Slave, log: pytest.LogCaptureFixture, copies: int
    ) -> None:
        self.copies = copies
        self.master = master
        self.good = good
        self.store = master.store
        self.log = log
        self.confirm = -2
        self.outcome: list[object] = []
        self._waiter = threading.Thread(target=self._wait)

    def begin(self) -> None:
        self.master.wait_in_sync(2, timeout=20)
        self.confirm = self.master.confirm_offset
        end = self.store.end_offset
        self._waiter.start()
        wait_until(self.master, lambda: self.store.end_offset > end, "the put that waits")
        self.good.wait_caught_up(self.store.end_offset, timeout=20)

    def assert_unharmed(self) -> None:
        """The put still waits, nothing is confirmed, the good slave goes on."""
        receipt = self.store.put(Message("T", BODY), copies=2)
        assert receipt.copies == 2
        assert self.outcome == []
        assert self.master.confirm_offset == self.confirm
        assert self.master.role == "master"
        self.good.wait_caught_up(self.store.end_offset, timeout=20)

    def end(self) -> None:
        self.master.close()
        self._waiter.join(20)
        assert not self._waiter.is_alive()
        assert [type(each) for each in self.outcome] == [rmqstore.ReplicaTimeout]

    def answer(self) -> list[str]:
        """What the log says of connections that were closed."""
        return [record.getMessage() for record in self.log.records]

    def _wait(self) -> None:
        try:
            # Longer than any test takes, on any machine.
            receipt = self.store.put(Message("T", BODY), copies=self.copies, timeout=3600)
            self.outcome.append(receipt)
        except rmqstore.StoreError as error:
            self.outcome.append(error)


@contextmanager
def besieged(
    root: Path,
    protocol: Protocol,
    log: pytest.LogCaptureFixture,
    *,
    options: HaOptions = QUICK,
    copies: int = 3,
    **more: Any,
) -> Iterator[Siege]:
    """*copies* are those that the waiting put needs, and the confirm offset with it."""
    log.set_level(logging.DEBUG, logger="rmqstore.replication")
    quorum = Quorum(total=8, in_sync=copies, timeout_ms=60_000)
    with ExitStack() as stack:
        store = stack.enter_context(rmqstore.open(root / "master"))
        good_store = stack.enter_context(rmqstore.open(root / "good"))
        master = stack.enter_context(
            Master(
                store,
                listen=(HOST, 0),
                broker_id=1,
                protocol=protocol,
                quorum=quorum,
                options=options,
                **more,
            )
        )
        assert master.address is not None
        good = stack.enter_context(
            Slave(
                good_store,
                master=master.address,
                broker_id=2,
                protocol=protocol,
                options=HaOptions(heartbeat_ms=50, reconnect_ms=20),
            )
        )
        siege = Siege(master, good, log, copies)
        for _ in range(5):
            store.put(Message("T", BODY), copies=2)
        siege.begin()
        try:
            yield siege
            siege.assert_unharmed()
        finally:
            siege.end()


def join(peer: Peer, begin: int = 0) -> None:
    """Do what a good slave does until the master knows where it stands."""
    peer.say(HELLO)
    peer.hear(lambda heard: isinstance(heard[-1:] and heard[-1], HandshakeReply), "the reply")
    peer.say(Ack(begin))
    peer.hear(lambda heard: any(isinstance(each, Transfer) for each in heard), "an empty frame")


def data_end(heard: list[Frame]) -> int:
    """Where the bytes end that a master sent."""
    ends = [
        each.offset + len(each.body) for each in heard if isinstance(each, ClassicData | Transfer)
    ]
    return max(ends, default=-1)


def ack_bytes(offset: int) -> bytes:
    return struct.pack(">iq", 2, offset)


def hello_bytes(*, state: int = 1, last_file: int = 0, learner: int = 0, broker: int = 3) -> bytes:
    return struct.pack(">ihhq", state, last_file, learner, broker)


def with_join(say: Callable[[Peer, Siege], None]) -> Callable[[Peer, Siege], None]:
    def attack(peer: Peer, siege: Siege) -> None:
        join(peer)
        end = siege.store.end_offset
        peer.hear(lambda heard: data_end(heard) >= end, "all of the log")
        say(peer, siege)

    return attack


ATTACKS: dict[str, tuple[tuple[Protocol, ...], Callable[[Peer, Siege], None]]] = {
    "http": (PROTOCOLS, lambda peer, _: peer.say(HTTP)),
    "tls": (PROTOCOLS, lambda peer, _: peer.say(TLS)),
    "random bytes": (PROTOCOLS, lambda peer, _: peer.say(RANDOM)),
    "zeros that name no state": (("autoswitch",), lambda peer, _: peer.say(bytes(12))),
    "all bits set": (PROTOCOLS, lambda peer, _: peer.say(b"\xff" * 64)),
    "a frame of a master": (
        ("autoswitch",),
        lambda peer, _: peer.say(HandshakeReply(0, -1, ()), Transfer(0, 1, 0, 0, BODY)),
    ),
    "an acknowledgement before the handshake": (
        ("autoswitch",),
        lambda peer, siege: peer.say(Ack(siege.store.end_offset)),
    ),
    "two handshakes": (("autoswitch",), with_join(lambda peer, _: peer.say(HELLO))),
    "the master's own broker id": (
        ("autoswitch",),
        lambda peer, _: peer.say(hello_bytes(broker=1)),
    ),
    "a broker id below 0": (("autoswitch",), lambda peer, _: peer.say(hello_bytes(broker=-1))),
    "a flag that is neither 0 nor 1": (
        ("autoswitch",),
        lambda peer, _: peer.say(hello_bytes(learner=2)),
    ),
    "a beginning above the end": (
        ("autoswitch",),
        lambda peer, siege: peer.say(HELLO, Ack(siege.store.end_offset + 1)),
    ),
    "a report above the end": (
        ("classic",),
        lambda peer, siege: peer.say(Report(siege.store.end_offset + 1)),
    ),
    "a beginning below 0": (
        ("autoswitch",),
        lambda peer, _: peer.say(hello_bytes(), ack_bytes(-1)),
    ),
    "a report below 0": (("classic",), lambda peer, _: peer.say(struct.pack(">q", -1))),
    "the greatest offset": (
        ("autoswitch",),
        lambda peer, _: peer.say(hello_bytes(), ack_bytes(2**63 - 1)),
    ),
    "an acknowledgement above the end": (
        ("autoswitch",),
        with_join(lambda peer, siege: peer.say(Ack(siege.store.end_offset + 1))),
    ),
    "acknowledgements that go back": (
        ("autoswitch",),
        with_join(lambda peer, _: peer.say(Ack(100), Ack(50))),
    ),
    "an acknowledgement and foreign bytes behind it": (
        ("autoswitch",),
        with_join(lambda peer, _: peer.say(Ack(100), HTTP)),
    ),
    "reports that go back": (("classic",), lambda peer, _: peer.say(Report(100), Report(50))),
    "a report of what was not sent": (
        ("classic",),
        lambda peer, siege: peer.say(Report(100), Report(siege.store.end_offset + 1)),
    ),
}
BELIEVED_AT_FIRST = {
    "acknowledgements that go back",
    "an acknowledgement and foreign bytes behind it",
    "reports that go back",
    "a report of what was not sent",
}
"""Attacks that begin with what a good slave says too: they stand for a copy until they are seen."""


@pytest.mark.parametrize(
    ("protocol", "attack"),
    [
        pytest.param(protocol, name, id=f"{protocol}-{name.replace(' ', '-')}")
        for name, (protocols, _) in ATTACKS.items()
        for protocol in protocols
    ],
)
def test_peer_that_breaks_the_rules_is_closed_and_counts_for_nothing(
    protocol: Protocol, attack: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    copies = 4 if attack in BELIEVED_AT_FIRST else 3
    with besieged(tmp_path, protocol, caplog, copies=copies) as siege:
        with calling(siege.master, protocol) as peer:
            host, port = peer.link.getsockname()
            ATTACKS[attack][1](peer, siege)
            peer.hear_end()
            wait_until(
                siege.master, lambda: len(siege.master.replicas) == 1, "the end of its connection"
            )
        reasons = [each for each in siege.answer() if f"{host}:{port}" in each]
        assert reasons, siege.answer()
        # Place, and what was said against what may be.
        assert any(len(each.partition(": ")[2]) > 20 for each in reasons), reasons


@BOTH
def test_half_frames_are_waited_for_as_long_as_silence_and_no_longer(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, protocol, caplog) as siege:
        for size in (1, 7):
            with calling(siege.master, protocol) as gone, calling(siege.master, protocol) as stays:
                gone.say(hello_bytes()[:size])
                gone.close()
                stays.say(hello_bytes()[:size])
                stays.hear_end()
        assert any("400 ms" in each for each in siege.answer())


@BOTH
def test_byte_at_a_time_is_no_way_to_stay_without_ever_saying_a_frame(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, protocol, caplog) as siege, calling(siege.master, protocol) as peer:
        # 16 bytes at the pace of a byte in 100 ms would take four times what silence may last.
        frame = hello_bytes() if protocol == "autoswitch" else bytes(8)
        for byte in frame:
            peer.say(bytes([byte]))
            if not peer.is_open(within=0.1):
                break
        assert not peer.is_open()


def test_handshake_in_single_bytes_is_as_good_as_any(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, "autoswitch", caplog) as siege:
        with calling(siege.master, "autoswitch") as peer:
            peer.link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in hello_bytes() + ack_bytes(0):
                peer.say(bytes([byte]))
            end = siege.store.end_offset
            peer.hear(lambda heard: data_end(heard) == end, "all of the log")


@BOTH
@pytest.mark.parametrize("begin", [5, 1000])
def test_offset_inside_of_a_record_is_served_from_there(
    protocol: Protocol, begin: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # Who says that it holds the log up to there is believed.
    with (
        besieged(tmp_path, protocol, caplog, copies=4) as siege,
        calling(siege.master, protocol) as peer,
    ):
        peer.say(*((HELLO, Ack(begin)) if protocol == "autoswitch" else (Report(begin),)))
        end = siege.store.end_offset
        peer.hear(lambda heard: data_end(heard) == end, "the rest of the log")
        bodies = [
            each for each in peer.heard if isinstance(each, ClassicData | Transfer) and each.body
        ]
        assert bodies[0].offset == begin
        sent = b"".join(each.body for each in bodies)
        assert sent == log_bytes(tmp_path / "master", begin, end)


@BOTH
def test_offset_before_the_first_byte_is_told_where_the_log_begins_and_served_nothing(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    size = 4096
    with (
        rmqstore.open(tmp_path / "store", commit_log_file_size_bytes=size) as store,
        Master(store, listen=(HOST, 0), broker_id=1, protocol=protocol, options=QUICK) as master,
    ):
        for _ in range(20):
            store.put(Message("T", BODY))
        store.wait_flushed()
        store.wait_dispatched()
        store.expire_files(1)
        assert store.start_offset == size
        with calling(master, protocol) as peer:
            peer.say(*((HELLO, Ack(100)) if protocol == "autoswitch" else (Report(100),)))
            peer.hear(lambda heard: data_end(heard) >= 0, "an empty frame")
            assert data_end(peer.heard) == size
            peer.say(Ack(100) if protocol == "autoswitch" else Report(100))
            peer.hear_end()
            assert data_end(peer.heard) == size
            assert all(each.ack_offset < 0 for each in master.replicas)


def test_connection_that_takes_the_good_slaves_name_is_no_further_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, "autoswitch", caplog) as siege:
        with calling(siege.master, "autoswitch") as peer:
            peer.say(hello_bytes(broker=2), Ack(0))
            # The good slave comes back by itself and closes this one.
            peer.hear_end()
        assert sum(each.broker_id == 2 for each in siege.master.replicas) <= 1


@BOTH
def test_peer_that_stops_reading_is_closed_and_costs_no_memory(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, protocol, caplog, copies=8) as siege:
        for _ in range(24):
            siege.store.put(Message("T", bytes(1 << 20)))
        siege.good.wait_caught_up(timeout=20)
        before = anonymous_bytes()
        with ExitStack() as stack:
            for number in range(4):
                peer = stack.enter_context(calling(siege.master, protocol))
                hello = hello_bytes(broker=10 + number) + ack_bytes(0)
                peer.say(hello if protocol == "autoswitch" else Report(1))
            wait_until(
                siege.master, lambda: len(siege.master.replicas) == 5, "four that do not read"
            )
            wait_until(siege.master, lambda: len(siege.master.replicas) == 1, "their end")
            assert anonymous_bytes() - before < ANONYMOUS_BYTES_MAX


def anonymous_bytes() -> int:
    """Return the memory of this process that no file stands behind."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell RssAnon")


@BOTH
def test_connections_beyond_the_limit_are_closed_at_once(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = HaOptions(heartbeat_ms=50, reconnect_ms=20)
    with besieged(
        tmp_path, protocol, caplog, options=options, connections_max=4, copies=4
    ) as siege:
        with ExitStack() as stack:
            peers = [stack.enter_context(calling(siege.master, protocol)) for _ in range(12)]
            wait_until(
                siege.master, lambda: sum(each.is_open() for each in peers) <= 3, "nine closed"
            )
            assert sum(each.is_open() for each in peers) == 3
            siege.assert_unharmed()
        assert any("4" in each and "connections" in each for each in siege.answer())
        wait_until(siege.master, lambda: len(siege.master.replicas) == 1, "their end")
        with calling(siege.master, protocol) as peer:
            peer.say(HELLO if protocol == "autoswitch" else Report(5))
            peer.hear(lambda heard: bool(heard), "an answer")


def test_addresses_outside_of_the_allowed_networks_are_closed_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="rmqstore.replication")
    with rmqstore.open(tmp_path / "store") as store:
        with pytest.raises(ArgumentError, match="networks"):
            Master(store, listen=(HOST, 0), allow=("the office",))
        with Master(store, listen=(HOST, 0), allow=("10.0.0.0/8", "2001:db8::/32")) as master:
            with calling(master, "autoswitch") as peer:
                peer.say(HELLO)
                peer.hear_end()
                assert peer.heard == []
            assert not master.replicas
            assert any("10.0.0.0/8" in record.getMessage() for record in caplog.records)


@BOTH
def test_flood_of_connections_leaves_nothing_behind(
    protocol: Protocol, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with besieged(tmp_path, protocol, caplog, connections_max=8) as siege:

        def flood(count: int) -> None:
            for number in range(count):
                with calling(siege.master, protocol) as peer:
                    peer.say((HTTP, b"", hello_bytes()[:9], RANDOM[:300])[number % 4])
            wait_until(
                siege.master, lambda: len(siege.master.replicas) == 1, "the end of the flood"
            )

        flood(20)
        descriptors, threads = open_files(), threading.active_count()
        before = anonymous_bytes()
        flood(300)
        wait_until(siege.master, lambda: open_files() <= descriptors, "descriptors given back")
        assert threading.active_count() <= threads
        assert anonymous_bytes() - before < ANONYMOUS_BYTES_MAX


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("place", ["10912", ":10912", "*:10912", "127.0.0.1:65536", "127.0.0.1:x"])
def test_port_is_opened_at_an_explicit_address_or_not_at_all(place: str, tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path / "store") as store,
        pytest.raises(ArgumentError, match=r"give host and port"),
    ):
        Master(store, listen=place)
