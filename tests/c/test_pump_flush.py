"""A slave's link that acknowledges what is on the disk, and a disk that is slow, or fails."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import SYNC, Calls, FaultyDoor
from tests.reference.ha_frame import HEADS, encode, walk
from tests.support.waiting import WAIT_S, spin_until

EPOCH = 3
LOG_FILE_SIZE = 64 << 20
SIZES = [2_000] * 10 + [100_000] * 160
FIRST = 5
ACK_SIZE = HEADS["ack"].size
HELD_BYTES_MAX = 4 << 20
"""Of what is not on the disk, before a link stops receiving; one frame may bring more."""
LIMITS = {"log.limits.body_size_max": 200_000, "log.limits.record_size_max": 300_000}


class Slave:
    """A store behind the faulty door, and one link of its pump, whose peer is *master*."""

    def __init__(self, core: Any, root: Path, door: FaultyDoor) -> None:
        self.ffi, self.lib = core
        self.door = door
        self.calls = Calls(core, root, door.vfs, log_file_size=LOG_FILE_SIZE, **LIMITS)
        self.error = self.ffi.new("struct rmq_error *")
        self.gate = self.lib.rmq_gate_create()
        options = self.ffi.new("struct rmq_pump_options *")
        options.store, options.gate = self.calls.store, self.gate
        out = self.ffi.new("struct rmq_pump **")
        self.check(self.lib.rmq_pump_open(options, out, self.error))
        self.pump = out[0]
        self.master, self._ours = socket.socketpair()
        self._ours.setblocking(False)
        self.link = self._receive()
        self.sent = 0

    def _receive(self) -> int:
        options = self.ffi.new("struct rmq_pump_receive_options *")
        options.fd, options.epoch = self._ours.fileno(), EPOCH
        options.has_epochs = options.ack_flushed = True
        link = self.ffi.new("int64_t *")
        self.check(self.lib.rmq_pump_receive(self.pump, options, link, self.error))
        return int(link[0])

    def check(self, status: int) -> None:
        assert status == self.lib.RMQ_OK, self.ffi.string(self.error.detail)

    def send(self, data: bytes) -> None:
        """Send more of a log in one frame."""
        frame = encode(("transfer", self.sent, EPOCH, 0, 0, data))
        self.master.setblocking(True)
        self.master.sendall(frame)
        self.sent += len(data)

    @property
    def progress(self) -> Any:
        progress = self.ffi.new("struct rmq_link_progress *")
        self.check(self.lib.rmq_pump_progress(self.pump, self.link, progress, self.error))
        return progress

    @property
    def acked(self) -> int:
        return int(self.progress.acked_offset)

    @property
    def flushed(self) -> int:
        return int(self.calls.store.log.files.flushed_offset)

    def heard(self) -> list[int]:
        """Return the acknowledgements that are there to be read."""
        self.master.setblocking(False)
        try:
            data = self.master.recv(1 << 20)
        except BlockingIOError:
            return []
        assert len(data) % ACK_SIZE == 0
        return [offset for _, offset in walk("auto-switch slave", data)[0]]

    def heartbeat(self) -> None:
        self.check(self.lib.rmq_pump_heartbeat(self.pump, self.link, self.error))

    def stop(self) -> Any:
        report = self.ffi.new("struct rmq_pump_report *")
        self.check(self.lib.rmq_pump_stop(self.pump, self.link, report, self.error))
        self.lib.rmq_pump_report_finish(report)
        return report

    def end(self) -> tuple[int, int, str]:
        """Return how the link ended by itself: the end, the error's status and its text."""
        report = self.ffi.new("struct rmq_pump_report *")
        poller = select.poll()
        poller.register(self.lib.rmq_pump_notice_fd(self.pump), select.POLLIN)
        for _ in range(1000):
            while self.lib.rmq_pump_poll(self.pump, report) == self.lib.RMQ_OK:
                self.lib.rmq_pump_report_finish(report)
                if report.end != self.lib.RMQ_PUMP_ACKED:
                    detail = self.ffi.string(report.error.detail).decode()
                    return report.end, report.error.status, detail
            assert poller.poll(WAIT_S * 1000), "no end comes"
        raise AssertionError("no end comes")

    def in_time(self, act: Callable[[], Any], what: str) -> Any:
        """Return what *act* returns, and fail when it does not return while the disk hangs."""
        found: list[Any] = []
        thread = threading.Thread(target=lambda: found.append(act()))
        thread.start()
        thread.join(WAIT_S)
        has_ended = not thread.is_alive()
        if not has_ended:
            self.door.release()
            thread.join()
        assert has_ended, f"{what} waits for the disk"
        return found[0]

    def close_pump(self) -> None:
        if self.pump is not None:
            self.lib.rmq_pump_close(self.pump, False)
            self.pump = None

    def close(self) -> None:
        self.close_pump()
        self.lib.rmq_gate_close(self.gate)
        self.lib.rmq_gate_release(self.gate)
        self.calls.abandon()
        self.master.close()
        self._ours.close()


@pytest.fixture
def slave(
    core: Any, door: FaultyDoor, log: Callable[[int], bytes], tmp_path: Path
) -> Iterator[Slave]:
    """Yield a slave that has acknowledged the first records; so there is a file of the log."""
    made = Slave(core, tmp_path / "slave", door)
    made.send(log(FIRST))
    spin_until(lambda: made.acked == made.sent, "the first are acknowledged")
    made.heard()
    yield made
    door.release()
    made.close()


@pytest.fixture(scope="module")
def log(core: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], bytes]:
    """Return what a master's log holds: so many of its first records."""
    ffi, lib = core
    root = tmp_path_factory.mktemp("master")
    master = Calls(core, root, log_file_size=LOG_FILE_SIZE, index_enable=False, **LIMITS)
    ends = [master.put(b"%08d" % at + bytes(size)).end_offset for at, size in enumerate(SIZES)]
    data = ffi.new("uint8_t[]", ends[-1])
    master.check(lib.rmq_store_copy(master.store, 0, data, ends[-1], master.error))
    master.close()
    return lambda count: bytes(ffi.buffer(data, ends[count - 1]))


def begin_sync(slave: Slave, door: FaultyDoor, data: bytes) -> None:
    """Send what is new of *data*; on return it is appended, and a sync for it hangs."""
    door.hold(SYNC)
    slave.send(data[slave.sent :])
    spin_until(lambda: slave.calls.end_offset == slave.sent, "what was sent is appended")
    spin_until(lambda: slave.calls.store.flusher.syncing and door.held, "a sync has begun")


def test_calls_return_while_a_sync_hangs_and_the_link_acknowledges_once_it_is_over(
    slave: Slave, door: FaultyDoor, log: Callable[[int], bytes]
) -> None:
    data, first = log(10), slave.sent
    begin_sync(slave, door, data)
    assert slave.in_time(lambda: slave.progress, "progress").next_offset == len(data)
    spin_until(lambda: slave.progress.border == len(data), "all of it is checked")
    slave.in_time(slave.heartbeat, "heartbeat")
    spin_until(lambda: slave.heard() == [first], "the last word comes again")
    assert slave.acked == slave.flushed == first
    door.release()
    spin_until(lambda: slave.acked == len(data), "the rest is acknowledged")
    assert slave.flushed == len(data)


@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_link_is_stopped_while_a_sync_hangs(
    how: str, slave: Slave, door: FaultyDoor, log: Callable[[int], bytes]
) -> None:
    begin_sync(slave, door, log(10))

    if how == "stop":
        report = slave.in_time(slave.stop, "stopping a link")
        assert report.end == slave.lib.RMQ_PUMP_STOPPED
        assert report.progress.acked_offset == slave.flushed == len(log(FIRST))

    slave.in_time(slave.close_pump, "closing the pump")
    assert slave.calls.store.streams == 0

    # They get the numbers of what the pump had open.
    others = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(8)]
    door.release()
    slave.calls.wait_flushed(len(log(10)))
    assert slave.heard() == []
    for each in others:
        with pytest.raises(BlockingIOError):
            os.eventfd_read(each)
        os.close(each)


def test_other_links_of_the_pump_go_on_while_a_sync_hangs(
    slave: Slave, door: FaultyDoor, log: Callable[[int], bytes]
) -> None:
    begin_sync(slave, door, log(10))

    peer, ours = socket.socketpair()
    ours.setblocking(False)
    options = slave.ffi.new("struct rmq_pump_send_options *")
    options.fd, options.epoch, options.batch_size = ours.fileno(), EPOCH, 1 << 20
    options.slot = options.acked_offset = options.until = options.said_confirm = -1
    options.has_epochs = True

    link = slave.ffi.new("int64_t *")
    slave.check(
        slave.in_time(
            lambda: slave.lib.rmq_pump_send(slave.pump, options, link, slave.error), "a new link"
        )
    )

    peer.settimeout(WAIT_S)
    size, data = HEADS["transfer"].size + len(log(10)), b""
    while len(data) < size:
        data += peer.recv(size - len(data))
    assert data.endswith(log(10))
    peer.close()
    ours.close()


def test_a_link_receives_no_more_than_a_bound_while_a_sync_hangs(
    slave: Slave, door: FaultyDoor, log: Callable[[int], bytes]
) -> None:
    data, at = log(len(SIZES)), 0
    door.hold(SYNC)
    piece = 512 << 10
    whole = threading.Event()

    def send() -> None:
        while slave.sent < len(data):
            slave.send(data[slave.sent : slave.sent + piece])
        whole.set()

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    spin_until(lambda: slave.progress.border >= HELD_BYTES_MAX, "the bound is reached")
    spin_until(lambda: slave.calls.store.flusher.syncing and door.held, "a sync has begun")
    while at != (at := slave.calls.end_offset):
        slave.in_time(lambda: slave.progress, "progress")
    assert at <= HELD_BYTES_MAX + (2 << 20) + piece < len(data)
    assert not whole.is_set()
    door.release()
    spin_until(lambda: slave.acked == len(data), "all of it is acknowledged", timeout=3 * WAIT_S)
    sender.join()
    assert slave.flushed == len(data)


@pytest.mark.parametrize("was_hung", [False, True])
def test_a_sync_that_fails_ends_the_link_and_nothing_of_it_is_acknowledged(
    was_hung: bool, slave: Slave, door: FaultyDoor, log: Callable[[int], bytes]
) -> None:
    data, first = log(10), slave.sent
    if was_hung:
        begin_sync(slave, door, data)
        door.arm(SYNC, 0, errno.EIO, count=1 << 30)
        door.release()
    else:
        door.arm(SYNC, 0, errno.EIO, count=1 << 30)
        slave.send(data[first:])
    end, status, detail = slave.end()
    assert (end, status) == (slave.lib.RMQ_PUMP_ERROR, slave.lib.RMQ_NOT_WRITABLE)
    assert "read-only after a failure" in detail
    assert slave.flushed == first
    assert slave.heard() == []
