"""A store driven through csrc/store/store.h and csrc/store/read.h, with a file door of choice."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

LOG_FILE_SIZE = 4096
QUEUE_FILE_SIZE = 160
FIND_MAX = 64
WAIT_MS = 40_000
"""Longer than any load makes a healthy run take."""
EVERY = 1 << 40
"""All calls fail, so that the order of the threads does not matter."""
ANY, OPEN, READ, WRITE, RESIZE, ALLOCATE, ZERO, SYNC, MAP, RENAME, UNLINK, DIRECTORY = range(12)


class Failed(Exception):
    """A call that did not return RMQ_OK."""

    def __init__(self, status: int, detail: str, os_errno: int) -> None:
        super().__init__(status, detail)
        self.status = status
        self.detail = detail
        self.os_errno = os_errno


class Put(NamedTuple):
    """A message in the log."""

    queue_id: int
    queue_offset: int
    physical_offset: int
    size: int
    body: bytes

    @property
    def end_offset(self) -> int:
        return self.physical_offset + self.size


class Calls:
    """One struct rmq_store. Every method raises Failed for a status other than RMQ_OK."""

    alive: ClassVar[set[Calls]] = set()
    """Stores that were neither closed nor abandoned."""

    def __init__(
        self, core: Any, root: Path, vfs: Any = None, *, has_keys: bool = True, **settings: Any
    ) -> None:
        self.ffi, self.lib = core
        self.has_keys = has_keys
        self.error = self.ffi.new("struct rmq_error *")
        self.root = self.ffi.new("char[]", bytes(root))

        options = self.ffi.new("struct rmq_store_options *")
        options.vfs = vfs if vfs is not None else self.ffi.NULL
        options.root = self.root
        options.index_enable = True
        options.check_crc_on_recover = True
        options.log_file_size = LOG_FILE_SIZE
        options.queue_file_size = QUEUE_FILE_SIZE
        options.batch_queue_file_size = 460
        options.ext_file_size = 4096
        options.queue_hot_uses = 3
        options.index_slot_count, options.index_entry_count = 8, 16

        options.log.limits.body_size_max = 2000
        options.log.limits.record_size_max = 4000
        options.flush.log_interval_ms = options.flush.log_thorough_ms = 60_000
        options.flush.queue_interval_ms = options.flush.queue_thorough_ms = 60_000

        for name, value in settings.items():
            *outer, last = name.split(".")
            setattr(reduce(getattr, outer, options), last, value)

        out = self.ffi.new("struct rmq_store **")
        self.check(self.lib.rmq_store_open(options, out, self.error))
        self.store = out[0]
        self.alive.add(self)

    def check(self, status: int) -> None:
        if status != self.lib.RMQ_OK:
            detail = bytes(self.ffi.string(self.error.detail)).decode()
            assert self.error.status == status, (self.error.status, status, detail)
            raise Failed(status, detail, self.error.os_errno)

    def put(self, body: bytes, *, topic: bytes = b"orders", queue_id: int = 0) -> Put:
        message = self.ffi.new("struct rmq_message *")
        properties = b"KEYS\x01k" + body[:8] + b"\x02" if self.has_keys else b"TAGS\x01k\x02"
        kept = [self.ffi.new("char[]", topic), self.ffi.from_buffer(body)]
        kept.append(self.ffi.new("char[]", properties))

        message.topic, message.topic_size = kept[0], len(topic)
        message.body, message.body_size = kept[1], len(body)
        message.properties, message.properties_size = kept[2], len(properties)
        message.born_host.size = message.store_host.size = 4
        message.born_timestamp = 1
        message.queue_id = queue_id

        receipt = self.ffi.new("struct rmq_receipt *")
        stored = self.ffi.new("size_t *")
        status = self.lib.rmq_store_put(self.store, message, 1, False, receipt, stored, self.error)
        self.check(status)
        assert stored[0] == 1

        return Put(queue_id, receipt.queue_offset, receipt.physical_offset, receipt.size, body)

    def wait_flushed(self, offset: int, timeout_ms: int = WAIT_MS) -> None:
        flusher = self.ffi.addressof(self.store, "flusher")
        self.check(self.lib.rmq_flusher_wait(flusher, offset, timeout_ms, self.error))

    def wait_dispatched(self, offset: int, timeout_ms: int = WAIT_MS) -> None:
        self.check(self.lib.rmq_store_wait_dispatched(self.store, offset, timeout_ms, self.error))

    def flush(self) -> None:
        self.check(self.lib.rmq_store_flush(self.store, self.error))

    def set_confirm_offset(self, offset: int | None) -> None:
        """Bound the log at *offset*; None ends the bound."""
        mode = self.lib.RMQ_CONFIRM_UNSET if offset is None else self.lib.RMQ_CONFIRM_BOUND
        confirm = {"mode": mode, "offset": offset or 0}
        self.check(self.lib.rmq_store_set_confirm_offset(self.store, confirm, self.error))

    @property
    def confirm_bound(self) -> int | None:
        """Return the offset that bounds the log, None without a bound."""
        confirm = self.lib.rmq_store_confirm_bound(self.store)
        return int(confirm.offset) if confirm.mode == self.lib.RMQ_CONFIRM_BOUND else None

    def truncate(self, offset: int) -> None:
        self.check(self.lib.rmq_store_truncate(self.store, offset, self.error))

    def expire(self, count: int) -> None:
        self.check(self.lib.rmq_store_expire(self.store, count, self.error))

    def close(self) -> None:
        """Close; the store is gone whatever the result."""
        self.alive.discard(self)
        self.check(self.lib.rmq_store_close(self.store, self.error))

    def abandon(self) -> None:
        self.alive.discard(self)
        self.lib.rmq_store_abandon(self.store)

    def let_writers_by(self) -> None:
        """Until the next flush no put has the flusher begin a round, which would be over later."""
        self.store.log.hold_at = 1 << 62

    @contextmanager
    def no_rounds(self) -> Iterator[None]:
        """Keep the thread of the flusher from its rounds; syncs led by puts continue."""
        lock = int(self.ffi.cast("intptr_t", self.ffi.addressof(self.store.flusher, "round_lock")))
        libc = ctypes.CDLL(None)
        libc.pthread_mutex_lock(ctypes.c_void_p(lock))
        try:
            yield
        finally:
            libc.pthread_mutex_unlock(ctypes.c_void_p(lock))

    @property
    def end_offset(self) -> int:
        return int(self.store.log.files.end_offset)

    @property
    def recovery(self) -> Any:
        return self.store.recovery

    def read(self, queue_id: int, offset: int, *, topic: bytes = b"orders") -> tuple[int, bytes]:
        """Return physical offset and body of the record at a queue offset."""
        request = self.ffi.new("struct rmq_get_request *")
        kept = self.ffi.new("char[]", topic)
        request.topic, request.topic_size = kept, len(topic)
        request.queue_id, request.offset = queue_id, offset
        request.max_bytes, request.max_count, request.check_crc = 1 << 20, 1, True

        found = self.ffi.new("struct rmq_found *")
        result = self.ffi.new("struct rmq_get_result *")
        self.check(self.lib.rmq_store_get(self.store, request, found, result, self.error))

        if result.count != 1:
            raise LookupError(
                f"queue {queue_id} offset {offset}: status {result.status}, "
                f"bounds {result.min_offset} to {result.max_offset}"
            )

        record = found.record
        body = bytes(self.ffi.buffer(record.body, record.body_size))
        self.lib.rmq_found_release(found, 1)

        return int(record.physical_offset), body

    def find(self, key: bytes, *, topic: bytes = b"orders") -> list[int]:
        """Return the physical offsets of the records with a key."""
        kept = self.ffi.new("char[]", topic), self.ffi.new("char[]", key)
        found = self.ffi.new("struct rmq_found[]", FIND_MAX)
        count = self.ffi.new("size_t *")

        status = self.lib.rmq_store_query(
            self.store,
            {"data": kept[0], "size": len(topic)},
            {"data": kept[1], "size": len(key)},
            False,
            0,
            2**63 - 1,
            FIND_MAX,
            found,
            count,
            self.error,
        )

        self.check(status)
        offsets = [int(found[i].record.physical_offset) for i in range(count[0])]
        self.lib.rmq_found_release(found, count[0])
        return offsets

    def check_holds(self, puts: list[Put]) -> None:
        """Every one of the messages is in its queue and the log, and with keys in the index."""
        if puts:
            self.wait_dispatched(self.end_offset)
        for put in puts:
            assert self.read(put.queue_id, put.queue_offset) == (put.physical_offset, put.body)
            assert not self.has_keys or put.physical_offset in self.find(b"k" + put.body[:8]), put


class FaultyDoor:
    """The faulty twin of the file system; counts calls and fails chosen ones."""

    def __init__(self, core: Any) -> None:
        self.ffi, self.lib = core
        self.vfs = self.lib.rmq_vfs_fault_new()

    def arm(self, call: int, first: int, os_errno: int, count: int = 1, short: int = 0) -> None:
        self.lib.rmq_vfs_fault_arm(self.vfs, call, first, count, os_errno, short)

    def disarm(self) -> None:
        self.arm(ANY, 0, 0, count=0)

    def count(self, call: int) -> int:
        return int(self.lib.rmq_vfs_fault_count(self.vfs, call))

    def hold(self, call: int) -> None:
        self.lib.rmq_vfs_fault_hold(self.vfs, call)

    def release(self) -> None:
        self.lib.rmq_vfs_fault_release(self.vfs)

    @property
    def held(self) -> int:
        """How many calls wait."""
        return int(self.lib.rmq_vfs_fault_held(self.vfs))

    def free(self) -> None:
        self.lib.rmq_vfs_fault_free(self.vfs)
