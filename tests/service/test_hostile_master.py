"""What a slave makes of a master that breaks the rules: its log stays its own, and it goes on."""

from __future__ import annotations

import random
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import rmqstore
from rmqstore import Message
from rmqstore.epochs import EpochEntry
from rmqstore.replication import HaOptions, ReplicatedStore, Slave
from rmqstore.replication.protocol.events import HaState
from rmqstore.replication.protocol.frames import (
    FRAME_SIZE_MAX,
    Ack,
    ClassicData,
    Frame,
    HandshakeReply,
    Report,
    Transfer,
)
from tests.service.test_bad_input import (
    ANONYMOUS_BYTES_MAX,
    BODY,
    HTTP,
    PROTOCOLS,
    RANDOM,
    TLS,
    anonymous_bytes,
)
from tests.service.wire import HOST, FalseMaster, Peer, Protocol, listening
from tests.support.log_files import log_bytes
from tests.support.waiting import WAIT_S, wait_until

BOTH = pytest.mark.parametrize("protocol", PROTOCOLS)
QUICK = HaOptions(heartbeat_ms=50, housekeeping_ms=400, handshake_ms=400, reconnect_ms=20)
PATIENT = HaOptions(heartbeat_ms=50, handshake_ms=int(WAIT_S * 1000), reconnect_ms=20)
COUNT = 8
_STALE_MAX = 100
EPOCHS = (EpochEntry(2, 0),)


class Victim:
    """A slave with some messages whose master is played by the test."""

    def __init__(
        self, slave: Slave, master: FalseMaster, protocol: Protocol, origin: bytes
    ) -> None:
        self.slave = slave
        self.store = slave.store
        self.master = master
        self.protocol = protocol
        self.end = self.store.end_offset
        self.confirm = self.store.confirm_offset
        self.origin = origin
        """The log of the true master; the slave holds its beginning."""

    def accept(self) -> Peer:
        """Return the slave's next connection, behind its first word."""
        for _ in range(_STALE_MAX):
            peer = self.master.accept()
            if peer.has_spoken() and peer.is_open():
                return peer
        raise AssertionError("the slave gives up all its connections")

    def serve(self) -> Peer:
        """Return the next connection, behind all that a good master says of bytes that are held."""
        peer = self.accept()
        if self.protocol == "autoswitch":
            peer.say(HandshakeReply(len(self.origin), 2, EPOCHS))
            peer.hear(lambda heard: isinstance(heard[-1], Ack), "where it begins")
        asked = peer.heard[-1]
        assert isinstance(asked, Ack | Report)
        self.send(peer, asked.offset, self.origin[asked.offset : self.end])
        peer.hear(lambda heard: acknowledged(heard) >= self.end, "its own end")
        return peer

    def send(self, peer: Peer, offset: int, body: bytes, *, epoch: int = 2, start: int = 0) -> None:
        """Send bytes of a log in one frame."""
        if self.protocol == "classic":
            peer.say(ClassicData(offset, body))
        else:
            peer.say(Transfer(offset, epoch, start, 0, body))

    def assert_untouched(self) -> None:
        """The log is what it was."""
        assert self.store.end_offset == self.end
        held = log_bytes(Path(self.store.path), 0, self.end)
        assert held == self.origin[: self.end]
        assert self.store.confirm_offset <= self.end
        if self.protocol == "autoswitch":
            assert self.slave.epochs == EPOCHS

    def assert_goes_on(self) -> None:
        """A good master is followed, and the log becomes that master's."""
        peer = self.serve()
        rest = self.origin[self.end :]
        for at in range(0, len(rest), 777):
            self.send(peer, self.end + at, rest[at : at + 777])
        peer.hear(lambda heard: acknowledged(heard) == len(self.origin), "all of the log")
        assert log_bytes(Path(self.store.path), 0, len(self.origin)) == self.origin


def acknowledged(heard: list[Frame]) -> int:
    return max((each.offset for each in heard if isinstance(each, Ack | Report)), default=-1)


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, int]:
    """Return the log of a true master, and where its first COUNT messages end."""
    root = tmp_path_factory.mktemp("origin")
    with rmqstore.open(root) as store:
        ends = []
        for _ in range(2 * COUNT):
            store.put(Message("T", BODY))
            ends.append(store.end_offset)
    return log_bytes(root, 0, ends[-1]), ends[COUNT - 1]


@contextmanager
def deceived(
    root: Path, protocol: Protocol, origin: tuple[bytes, int], *, options: HaOptions = PATIENT
) -> Iterator[Victim]:
    log, end = origin
    with rmqstore.open(root / "slave") as store, listening(protocol) as master:
        store.append_raw(0, log[:end])
        if protocol == "autoswitch":
            # Epoch 2 is the one that this log was written in.
            with ReplicatedStore(store, broker_id=2) as before:
                before.become_slave(master.address)
                peer = master.accept()
                peer.hear(lambda heard: bool(heard), "its handshake")
                peer.say(HandshakeReply(end, 2, EPOCHS))
                peer.hear(lambda heard: isinstance(heard[-1], Ack), "where it begins")
                asked = peer.heard[-1]
                assert isinstance(asked, Ack)
                peer.say(Transfer(asked.offset, 2, 0, 0, log[asked.offset : end]))
                wait_until(before, lambda: before.epochs == EPOCHS, "the epoch")
                peer.close()
        with Slave(
            store, master=master.address, broker_id=2, protocol=protocol, options=options
        ) as slave:
            yield Victim(slave, master, protocol, log)


def transfer_bytes(
    offset: int,
    *,
    state: int = 2,
    size: int = 0,
    epoch: int = 2,
    start: int = 0,
    confirm: int = 0,
    body: bytes = b"",
) -> bytes:
    return struct.pack(">iiqiqq", state, size, offset, epoch, start, confirm) + body


def reply_bytes(*, size: int, end: int, epoch: int, body: bytes = b"") -> bytes:
    return struct.pack(">iiqi", 1, size, end, epoch) + body


def classic_bytes(offset: int, size: int, body: bytes = b"") -> bytes:
    return struct.pack(">qi", offset, size) + body


BEFORE_SERVING: dict[str, tuple[tuple[Protocol, ...], Callable[[Victim], bytes | Frame]]] = {
    "http": (PROTOCOLS, lambda _: HTTP.replace(b"GET / ", b"HTTP/1.1 400 ")),
    "tls": (PROTOCOLS, lambda _: TLS),
    "random bytes": (PROTOCOLS, lambda _: RANDOM),
    "all bits set": (PROTOCOLS, lambda _: b"\xff" * 100),
    "a body of 2 GiB": (("classic",), lambda victim: classic_bytes(victim.end, 2**31 - 1)),
    "a body below 0": (("classic",), lambda victim: classic_bytes(victim.end, -1)),
    "an offset below 0": (("classic",), lambda _: classic_bytes(-5, 0)),
    "entries of 2 GiB": (
        ("autoswitch",),
        lambda victim: reply_bytes(size=2**31 - 4, end=victim.end, epoch=2),
    ),
    "half an entry": (
        ("autoswitch",),
        lambda victim: reply_bytes(size=6, end=victim.end, epoch=2, body=bytes(6)),
    ),
    "entries that go back": (
        ("autoswitch",),
        lambda victim: reply_bytes(
            size=24, end=victim.end, epoch=2, body=struct.pack(">iqiq", 3, 0, 2, 10)
        ),
    ),
    "a last epoch that no entry has": (
        ("autoswitch",),
        lambda victim: HandshakeReply(victim.end, 9, EPOCHS),
    ),
    "an epoch that is over": (
        ("autoswitch",),
        lambda victim: HandshakeReply(victim.end, 1, (EpochEntry(1, 0),)),
    ),
    "no epoch in common": (
        ("autoswitch",),
        lambda victim: HandshakeReply(victim.end, 7, (EpochEntry(7, 0),)),
    ),
    "data before the reply": (
        ("autoswitch",),
        lambda victim: Transfer(victim.end, 2, 0, 0, BODY),
    ),
}


@pytest.mark.parametrize(
    ("protocol", "lie"),
    [
        pytest.param(protocol, name, id=f"{protocol}-{name.replace(' ', '-')}")
        for name, (protocols, _) in BEFORE_SERVING.items()
        for protocol in protocols
    ],
)
def test_first_words_of_a_false_master_touch_nothing_and_a_good_one_is_followed_after_it(
    protocol: Protocol, lie: str, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin) as victim:
        peer = victim.accept()
        peer.say(BEFORE_SERVING[lie][1](victim))
        peer.hear_end()
        wait_until(victim.slave, lambda: victim.slave.master_status.last_error != "", "an error")
        reason = victim.slave.master_status.last_error
        assert len(reason) > 20
        assert victim.slave.master_status.halted_reason is None
        victim.assert_untouched()
        victim.assert_goes_on()


WHILE_SERVING: dict[str, tuple[tuple[Protocol, ...], Callable[[Victim], bytes]]] = {
    "foreign bytes": (PROTOCOLS, lambda _: RANDOM),
    "a body of 2 GiB": (
        ("autoswitch",),
        lambda victim: transfer_bytes(victim.end, size=2**31 - 1),
    ),
    "a body below 0": (("autoswitch",), lambda victim: transfer_bytes(victim.end, size=-36)),
    "a state of its own": (("autoswitch",), lambda victim: transfer_bytes(victim.end, state=3)),
    "another reply": (
        ("autoswitch",),
        lambda victim: reply_bytes(size=12, end=victim.end, epoch=2, body=struct.pack(">iq", 2, 0)),
    ),
    "bytes below the end": (
        ("autoswitch",),
        lambda victim: transfer_bytes(0, size=500, body=b"y" * 500),
    ),
    "bytes from the middle of a record": (
        ("autoswitch",),
        lambda victim: transfer_bytes(victim.end - 100, size=500, body=b"y" * 500),
    ),
    "bytes above the end": (
        ("autoswitch",),
        lambda victim: transfer_bytes(victim.end + 1, size=500, body=b"y" * 500),
    ),
    "bytes at the greatest offset": (
        ("autoswitch",),
        lambda _: transfer_bytes(2**63 - 1, size=500, body=b"y" * 500),
    ),
    "an older epoch": (
        ("autoswitch",),
        lambda victim: transfer_bytes(victim.end, size=9, epoch=1, body=b"y" * 9),
    ),
    "a later epoch that begins behind its bytes": (
        ("autoswitch",),
        lambda victim: transfer_bytes(
            victim.end, size=9, epoch=3, start=victim.end + 500, body=b"y" * 9
        ),
    ),
    "bytes below the end, classic": (
        ("classic",),
        lambda victim: classic_bytes(0, 500, b"y" * 500),
    ),
    "bytes above the end, classic": (
        ("classic",),
        lambda victim: classic_bytes(victim.end + 1, 500, b"y" * 500),
    ),
    "garbage that is no record": (
        PROTOCOLS,
        lambda victim: (
            classic_bytes(victim.end, 500, b"y" * 500)
            if victim.protocol == "classic"
            else transfer_bytes(victim.end, size=500, body=b"y" * 500, confirm=2**63 - 1)
        ),
    ),
    "a record whose body was changed": (
        PROTOCOLS,
        lambda victim: spoilt(victim),
    ),
}


def spoilt(victim: Victim) -> bytes:
    body = bytearray(victim.origin[victim.end : victim.end + 2000])
    body[300] ^= 1
    if victim.protocol == "classic":
        return classic_bytes(victim.end, len(body), bytes(body))
    return transfer_bytes(victim.end, size=len(body), body=bytes(body), confirm=2**62)


@pytest.mark.parametrize(
    ("protocol", "lie"),
    [
        pytest.param(protocol, name, id=f"{protocol}-{name.replace(' ', '-')}")
        for name, (protocols, _) in WHILE_SERVING.items()
        for protocol in protocols
    ],
)
def test_master_that_turns_false_while_it_serves_is_left_and_its_bytes_with_it(
    protocol: Protocol, lie: str, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin) as victim:
        peer = victim.serve()
        peer.say(WHILE_SERVING[lie][1](victim))
        peer.hear_end()
        # Nothing that was not the master's is ever acknowledged.
        assert acknowledged(peer.heard) == victim.end
        wait_until(victim.slave, lambda: victim.slave.master_status.last_error != "", "an error")
        victim.assert_untouched()
        victim.assert_goes_on()


def test_confirm_offset_of_a_lying_master_never_leads_the_log(
    origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, "autoswitch", origin) as victim:
        peer = victim.serve()
        peer.say(Transfer(victim.end, 2, 0, 2**62))
        wait_until(victim.slave, lambda: victim.store.confirm_offset == victim.end, "the log's end")
        # Half a record behind it is nothing that anybody may read.
        victim.send(peer, victim.end, victim.origin[victim.end : victim.end + 50])
        wait_until(
            victim.slave, lambda: victim.store.end_offset == victim.end + 50, "50 bytes more"
        )
        assert len(list(victim.store.queue("T").records())) == COUNT
        peer.close()


def test_master_that_has_lost_its_log_halts_the_slave_and_nothing_is_touched(
    tmp_path: Path,
) -> None:
    size = 4096
    with rmqstore.open(tmp_path / "slave", commit_log_file_size_bytes=size) as store:
        with ReplicatedStore(store, broker_id=2) as before:
            before.become_master(2)
            for _ in range(20):
                store.put(Message("T", BODY))
            store.wait_flushed()
            store.wait_dispatched()
            store.expire_files(1)
        start, end = store.start_offset, store.end_offset
        held = log_bytes(tmp_path / "slave", start, end)
        with (
            listening("autoswitch") as master,
            Slave(store, master=master.address, broker_id=2, options=QUICK) as slave,
        ):
            peer = master.accept()
            peer.hear(lambda heard: bool(heard), "its handshake")
            peer.say(HandshakeReply(100, 3, (EpochEntry(2, 0), EpochEntry(3, 50))))
            peer.hear_end()
            wait_until(slave, lambda: slave.master_status.halted_reason is not None, "a halt")
            assert "empty" in (slave.master_status.halted_reason or "")
            assert slave.master_status.state is HaState.SUSPEND
            assert log_bytes(tmp_path / "slave", start, end) == held


@BOTH
@pytest.mark.parametrize("begin_anew", [False, True])
def test_heartbeat_at_another_offset_does_not_empty_the_slave(
    protocol: Protocol, begin_anew: bool, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin) as victim:
        victim.slave.become_slave(victim.master.address, begin_anew=begin_anew)
        for _ in range(2):
            peer = victim.accept()
            if protocol == "autoswitch":
                peer.say(HandshakeReply(1 << 31, 2, EPOCHS))
                peer.hear(lambda heard: isinstance(heard[-1], Ack), "where it begins")
            victim.send(peer, 1 << 30, b"")
            if begin_anew:
                peer.hear(lambda heard: acknowledged(heard) == 1 << 30, "where it would begin")
                peer.close()
            else:
                peer.hear_end()
        if begin_anew:
            victim.assert_untouched()
            victim.assert_goes_on()
        else:
            status = victim.slave.master_status
            assert status is not None
            assert "begin_anew" in str(status.halted_reason)
            victim.assert_untouched()


@BOTH
def test_master_that_falls_silent_or_never_answers_is_left(
    protocol: Protocol, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin, options=QUICK) as victim:
        victim.accept().hear_end()
        victim.serve().hear_end()
        assert "400 ms" in victim.slave.master_status.last_error
        victim.assert_untouched()
        victim.assert_goes_on()


@BOTH
def test_master_that_sends_a_byte_at_a_time_and_no_whole_frame_is_left(
    protocol: Protocol, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin, options=QUICK) as victim:
        peer = victim.serve()
        began = time.monotonic()
        head = (
            classic_bytes(victim.end, 4000)
            if protocol == "classic"
            else transfer_bytes(victim.end, size=4000)
        )
        for byte in head + victim.origin[victim.end : victim.end + 4000]:
            peer.say(bytes([byte]))
            if not peer.is_open(within=0.05):
                break
        assert not peer.is_open()
        assert time.monotonic() - began < WAIT_S
        victim.assert_untouched()


@BOTH
def test_frames_in_single_bytes_are_as_good_as_any(
    protocol: Protocol, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin) as victim:
        peer = victim.serve()
        rest = victim.origin[victim.end :]
        frame = (
            classic_bytes(victim.end, len(rest), rest)
            if protocol == "classic"
            else transfer_bytes(victim.end, size=len(rest), body=rest)
        )
        for byte in frame:
            peer.say(bytes([byte]))
        peer.hear(lambda heard: acknowledged(heard) == len(victim.origin), "all of the log")


@BOTH
def test_sizes_that_a_master_claims_cost_no_memory_before_their_bytes_come(
    protocol: Protocol, origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, protocol, origin) as victim:
        before = anonymous_bytes()
        for seed in range(30):
            peer = victim.accept()
            size = random.Random(seed).randrange(3 << 20, 2**31)
            peer.say(
                classic_bytes(victim.end, size)
                if protocol == "classic"
                else reply_bytes(size=size, end=victim.end, epoch=2)
            )
            peer.say(BODY)
            peer.close()
        assert anonymous_bytes() - before < ANONYMOUS_BYTES_MAX
        victim.assert_untouched()
        victim.assert_goes_on()


def test_another_beginning_of_an_epoch_that_the_log_holds_does_not_end_the_slave(
    origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, "autoswitch", origin) as victim:
        peer = victim.accept()
        peer.say(HandshakeReply(victim.end, 2, (EpochEntry(2, victim.end),)))
        peer.hear(lambda heard: isinstance(heard[-1], Ack), "where it begins")
        peer.close()
        assert victim.slave.status().failure is None
        victim.assert_untouched()
        victim.assert_goes_on()


def test_reply_with_as_many_epochs_as_a_frame_can_hold_is_taken_in_its_time(
    origin: tuple[bytes, int], tmp_path: Path
) -> None:
    with deceived(tmp_path, "autoswitch", origin) as victim:
        peer = victim.accept()
        last = (FRAME_SIZE_MAX - 20) // 12
        entries = (*EPOCHS, *(EpochEntry(each, victim.end) for each in range(3, last + 2)))
        peer.say(HandshakeReply(victim.end, last + 1, entries))
        peer.hear(lambda heard: isinstance(heard[-1], Ack), "where it begins")
        # Not one of them is saved before the bytes below it are known to be that master's.
        victim.assert_untouched()
        peer.close()


def test_slave_is_told_where_its_master_is_by_an_address(tmp_path: Path) -> None:
    with (
        rmqstore.open(tmp_path / "store") as store,
        pytest.raises(rmqstore.ArgumentError, match="give host and port"),
    ):
        Slave(store, master=(HOST, 0))
