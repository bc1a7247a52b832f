"""The struct rmq_store of an open store, for what no public call does: a clock that stands still,
messages in their stored form, and syncs that are held.

The product gives no way to it. A Store begins with the fields of the binding's StoreHandle, whose
first one is the pointer; the structs are declared by csrc's own headers, as for the tests of C.
"""

from __future__ import annotations

import ctypes
import ipaddress
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import rmqstore
from tests.c import library
from tests.support.waiting import spin_until

__all__ = ["StoredForm", "held_syncs", "put_stored_forms", "set_clock", "waiting_for_sync"]

_POINTER_AT = object.__basicsize__ + ctypes.sizeof(ctypes.c_void_p)
"""Of the pointer in a StoreHandle: Cython's table of methods stands before the fields."""

Host = tuple[str, int]


class StoredForm(NamedTuple):
    """A message as csrc/format/record.h has it, with the bytes of its properties."""

    topic: str
    queue: int
    body: bytes
    properties: bytes
    more_properties: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    store_timestamp: int
    born_host: Host
    store_host: Host
    reconsume_times: int
    prepared_transaction_offset: int


def set_clock(store: rmqstore.Store, now_ms: int) -> None:
    """Make the time of *store* stand still at *now_ms*; 0 lets it run."""
    assert now_ms >= 0
    _native(store).clock.fixed_ms = now_ms


@contextmanager
def held_syncs(store: rmqstore.Store) -> Iterator[None]:
    """Hold the syncs of the log: callers wait for them as for a leader that is slow."""
    ffi, lib = _core()
    native = _native(store)
    flusher = native.flusher
    spin_until(lambda: not flusher.syncing, "the sync under way ends")
    flusher.syncing = True
    try:
        yield
    finally:
        # A sync has to end the waits, even where all is flushed. A store that is being closed waits
        # for its threads, which wait for that sync.
        if not store.closed:
            store.put("syncs", b"", durability=rmqstore.Durability.MEMORY)
        flusher.syncing = False
        lib.rmq_flusher_sync(ffi.addressof(flusher), lib.rmq_store_end(native), ffi.NULL)


def waiting_for_sync(store: rmqstore.Store) -> int:
    """Return how many threads wait for a leader."""
    count, waiter = 0, _native(store).flusher.waiters
    while waiter != _core()[0].NULL:
        count, waiter = count + 1, waiter.next
    return count


def put_stored_forms(
    store: rmqstore.Store, forms: Sequence[StoredForm], *, together: bool = False
) -> None:
    """Put messages by one call of rmq_store_put, as its argument `together` says."""
    ffi, lib = _core()
    messages = ffi.new("struct rmq_message[]", len(forms))
    receipts = ffi.new("struct rmq_receipt[]", len(forms))
    stored, error = ffi.new("size_t *"), ffi.new("struct rmq_error *")

    kept = [_fill(message, form) for message, form in zip(messages, forms, strict=True)]
    status = lib.rmq_store_put(
        _native(store), messages, len(forms), together, receipts, stored, error
    )
    assert status == lib.RMQ_OK, bytes(ffi.string(error.detail)).decode()
    assert stored[0] == len(forms) == len(kept)


@cache
def _core() -> tuple[Any, Any]:
    return library.load()


def _native(store: rmqstore.Store) -> Any:
    ffi, _ = _core()
    assert not store.closed
    address = ctypes.c_void_p.from_address(id(store) + _POINTER_AT).value
    native = ffi.cast("struct rmq_store *", address)
    assert ffi.string(native.root) == str(store.path).encode("utf-8", "surrogateescape")
    return native


def _fill(message: Any, form: StoredForm) -> list[Any]:
    """Fill a struct rmq_message; return what has to live as long as it is used."""
    ffi, _ = _core()
    kept = []

    parts = {
        "topic": form.topic.encode(),
        "body": form.body,
        "properties": form.properties,
        "more_properties": form.more_properties,
    }
    for name, part in parts.items():
        kept.append(ffi.new("uint8_t[]", part or b"\0"))
        setattr(message, name, ffi.cast(ffi.typeof(getattr(message, name)), kept[-1]))
        setattr(message, f"{name}_size", len(part))

    for name, (address, port) in (("born_host", form.born_host), ("store_host", form.store_host)):
        packed = ipaddress.ip_address(address).packed
        host = getattr(message, name)
        host.size, host.port = len(packed), port
        ffi.memmove(host.address, packed, len(packed))

    message.queue_id, message.flag, message.sys_flag = form.queue, form.flag, form.sys_flag
    message.born_timestamp, message.store_timestamp = form.born_timestamp, form.store_timestamp
    message.reconsume_times = form.reconsume_times
    message.prepared_transaction_offset = form.prepared_transaction_offset
    return kept
