"""Records made elsewhere, brought to their places: every byte as the reference has it."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import (
    ALLOCATE,
    ANY,
    LOG_FILE_SIZE,
    RESIZE,
    Calls,
    Failed,
    FaultyDoor,
)
from tests.reference import log, record
from tests.reference.record import BLANK_SIZE, Host, Record

NOW_MS = 1_700_000_000_000
V4 = Host(bytes((10, 0, 0, 7)), 10911)
V6 = Host(bytes(range(16)), 10911)


@pytest.fixture
def store(core: Any, tmp_path: Path) -> Iterator[Calls]:
    made = Calls(core, tmp_path)
    made.store.clock.fixed_ms = NOW_MS
    yield made
    made.close()


def message(number: int, *, size: int = 40, **changes: Any) -> Record:
    """Return a record as its producer made it, for whatever place."""
    made = Record(
        version=1,
        body_crc=0,
        queue_id=number % 3,
        flag=number,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=NOW_MS - 5000 - number,
        born_host=V4,
        store_timestamp=NOW_MS - 4000 + number,
        store_host=V4,
        reconsume_times=2,
        prepared_transaction_offset=77,
        body=(b"%08d" % number).ljust(size, b"."),
        topic_bytes=b"orders",
        property_bytes=b"KEYS\x01k%08d\x02" % number,
    )
    return replace(made, **changes)


def run_of(records: list[Record], *, property_crc: bool = False) -> bytes:
    return b"".join(record.encode_put(each, property_crc=property_crc) for each in records)


def place(store: Calls, data: bytes, *, least_timestamp: int | None = None) -> Any:
    """Place a run and return the struct; Failed for another status than RMQ_OK."""
    run = store.ffi.new("struct rmq_run *")
    kept = store.ffi.from_buffer(data)
    run.data, run.size = kept, len(data)
    if least_timestamp is not None:
        run.keeps_timestamps, run.least_timestamp = True, least_timestamp
    store.check(store.lib.rmq_store_place(store.store, run, store.error))
    assert run.at == len(data)
    return run


def placed_log(records: list[Record], *, property_crc: bool = False, **changes: Any) -> bytes:
    """Return the commit log, from 0 on, that a fresh store must have after placing *records*."""
    data = b""
    queues: Counter[tuple[bytes, int]] = Counter()
    for each in records:
        queue = each.topic_bytes, each.queue_id
        has_place = each.transaction not in (record.PREPARED, record.ROLLBACK)
        queue_offset = queues[queue] if has_place else 0
        queues[queue] += has_place
        left = LOG_FILE_SIZE - len(data) % LOG_FILE_SIZE
        size = len(record.encode_put(each, property_crc=property_crc))
        if size + BLANK_SIZE > left:
            data += record.encode_blank(left).ljust(left, b"\0")
        at = replace(each, queue_offset=queue_offset, physical_offset=len(data), **changes)
        data += record.encode_put(at, property_crc=property_crc)
    return data


def bytes_of_log(store: Calls, root: Path) -> bytes:
    _, data = log.read_run(root / "commitlog")
    return data[: store.end_offset]


@pytest.mark.parametrize("property_crc", [False, True])
def test_every_kind_of_record_gets_the_bytes_of_its_place(
    property_crc: bool, store: Calls, tmp_path: Path
) -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"born_host": V6},
        {"store_host": V6, "size": 0},
        {"born_host": V6, "store_host": V6},
        {"sys_flag": record.PREPARED},
        {"sys_flag": record.COMMIT},
        {"sys_flag": record.ROLLBACK},
        {"property_bytes": b""},
        {"property_bytes": b"x__CRC32#\x01" + b"0" * 10 + b"\x02"},
        {"topic_bytes": b"t" * 200},
        {"size": 1900},
    ]

    records = [message(number, **kinds[number % len(kinds)]) for number in range(60)]
    records = [replace(each, version=record.derive(each).version) for each in records]

    store.store.log.options.limits.append_property_crc = property_crc
    run = place(store, run_of(records, property_crc=property_crc))
    assert run.records == len(records)
    assert store.end_offset > 3 * LOG_FILE_SIZE

    expected = placed_log(records, property_crc=property_crc, store_timestamp=NOW_MS)
    assert bytes_of_log(store, tmp_path) == expected
    store.wait_dispatched(store.end_offset)


@pytest.mark.parametrize("left", [8, 9, 100, 131, 139])
def test_record_that_does_not_fit_rolls_to_the_next_file(
    left: int, store: Calls, tmp_path: Path
) -> None:
    overhead = len(run_of([message(0, size=8)])) - 8
    first = message(0, size=1900)
    second = message(1, size=LOG_FILE_SIZE - left - (1900 + overhead) - overhead)
    third = message(2, size=131 - overhead)
    records = [first, second, third]
    place(store, run_of(records))
    expected = placed_log(records, store_timestamp=NOW_MS)
    # The third takes 131 bytes, and a blank's 8 must fit behind it.
    assert len(expected) == (LOG_FILE_SIZE + 131 if left < 139 else LOG_FILE_SIZE - 8)
    assert bytes_of_log(store, tmp_path) == expected


def test_placed_and_put_messages_share_queues_and_index(store: Calls) -> None:
    puts = [store.put(b"%08d" % number, queue_id=number % 2) for number in range(4)]
    run = place(store, run_of([message(number, size=8, queue_id=1) for number in range(4, 9)]))
    puts.append(store.put(b"00000009", queue_id=1))
    assert run.records == 5
    assert puts[-1].queue_offset == 2 + 5
    store.check_holds(puts)
    for number in range(4, 9):
        physical, body = store.read(1, number - 2)
        assert body == b"%08d" % number
        assert store.find(b"k%08d" % number) == [physical]


def test_timestamps_are_kept_when_they_do_not_descend(store: Calls, tmp_path: Path) -> None:
    times = [NOW_MS - 10, NOW_MS - 10, NOW_MS - 3, NOW_MS]
    records = [message(n, store_timestamp=time) for n, time in enumerate(times)]
    assert place(store, run_of(records), least_timestamp=NOW_MS - 10).least_timestamp == NOW_MS
    assert bytes_of_log(store, tmp_path) == placed_log(records)


@pytest.mark.parametrize(
    ("times", "complaint"),
    [
        ([-11, -3], "older than"),
        ([-3, -4], "older than"),
        ([-3, 1], "in the future"),
    ],
)
def test_timestamps_that_descend_or_are_to_come_are_refused(
    times: list[int], complaint: str, store: Calls
) -> None:
    records = [message(n, store_timestamp=NOW_MS + time) for n, time in enumerate(times)]
    with pytest.raises(Failed, match=complaint) as caught:
        place(store, run_of(records), least_timestamp=NOW_MS - 10)
    assert caught.value.status == store.lib.RMQ_MESSAGE_ILLEGAL
    assert store.end_offset == 0


GOOD = run_of([message(number) for number in range(5)])


def flipped(at: int) -> bytes:
    return GOOD[:at] + bytes((GOOD[at] ^ 1,)) + GOOD[at + 1 :]


SIZE = len(GOOD) // 5
BAD: dict[str, tuple[bytes, str, str]] = {
    "cut": (GOOD[:-1], "CORRUPT", f"byte|record at {4 * SIZE}"),
    "too short for a size": (GOOD + b"\1" * 7, "CORRUPT", "7 bytes are left"),
    "zeros": (GOOD + bytes(200), "CORRUPT", f"no record at byte {5 * SIZE}"),
    "blank": (GOOD + record.encode_blank(100), "CORRUPT", f"no record at byte {5 * SIZE}"),
    "body": (flipped(4 * SIZE + 90), "CORRUPT", "body CRC"),
    "magic": (flipped(4 * SIZE + 4), "CORRUPT", "magic"),
    "size": (flipped(3 * SIZE + 3), "CORRUPT", "lengths"),
    "no topic": (GOOD + run_of([message(5, topic_bytes=b"")]), "MESSAGE_ILLEGAL", "topic"),
    "topic of two folders": (
        GOOD + run_of([message(5, topic_bytes=b"a/b")]),
        "MESSAGE_ILLEGAL",
        "topic of 3 bytes",
    ),
    "negative queue": (GOOD + run_of([message(5, queue_id=-1)]), "MESSAGE_ILLEGAL", "queue -1"),
    "inner batch": (
        GOOD + run_of([message(5, sys_flag=record.INNER_BATCH)]),
        "MESSAGE_ILLEGAL",
        "inner batch",
    ),
    "large body": (GOOD + run_of([message(5, size=2001)]), "MESSAGE_ILLEGAL", "maxMessageSize"),
}


@pytest.mark.parametrize("kind", BAD)
def test_bad_bytes_are_refused_before_anything_is_written(kind: str, store: Calls) -> None:
    data, status, complaint = BAD[kind]
    with pytest.raises(Failed, match=complaint) as caught:
        place(store, data)
    assert caught.value.status == getattr(store.lib, f"RMQ_{status}")
    assert store.end_offset == 0
    assert store.put(b"00000000").queue_offset == 0


def test_record_larger_than_a_file_is_refused(store: Calls) -> None:
    store.store.log.options.limits.body_size_max = 1 << 20
    with pytest.raises(Failed, match=f"limit is {LOG_FILE_SIZE - BLANK_SIZE}"):
        place(store, GOOD + run_of([message(9, size=LOG_FILE_SIZE)]))
    assert store.end_offset == 0


def test_record_without_a_crc_property_is_refused_where_all_have_one(store: Calls) -> None:
    store.store.log.options.limits.append_property_crc = True
    with pytest.raises(Failed, match="enabledAppendPropCRC"):
        place(store, GOOD)
    wrong = bytearray(run_of([message(1)], property_crc=True))
    wrong[-3] ^= 1
    with pytest.raises(Failed, match="CRC property does not match"):
        place(store, bytes(wrong))
    assert store.end_offset == 0


def test_message_for_light_queues_is_refused_where_there_are_such(store: Calls) -> None:
    light = run_of([message(1, property_bytes=b"INNER_MULTI_DISPATCH\x01%LMQ%a\x02")])
    place(store, light)
    store.store.log.options.multi_dispatch = True
    with pytest.raises(Failed, match="INNER_MULTI_DISPATCH"):
        place(store, light)
    assert store.end_offset == len(light)


def test_read_only_store_places_nothing(core: Any, tmp_path: Path) -> None:
    Calls(core, tmp_path).close()
    store = Calls(core, tmp_path, read_only=True)
    with pytest.raises(Failed) as caught:
        place(store, GOOD)
    assert caught.value.status == store.lib.RMQ_READ_ONLY
    store.close()


@pytest.mark.parametrize("call", [ALLOCATE, RESIZE, ANY])
def test_full_disk_leaves_whole_records_from_the_first_on(
    call: int, core: Any, tmp_path: Path
) -> None:
    records = [message(number, size=1500) for number in range(40)]

    door = FaultyDoor(core)
    store = Calls(core, tmp_path, door.vfs)
    store.store.clock.fixed_ms = NOW_MS
    store.let_writers_by()
    place(store, run_of(records[:3]))

    door.arm(call, 0, errno.ENOSPC, count=1 << 40)
    with pytest.raises(Failed) as caught:
        place(store, run_of(records[3:]))
    assert caught.value.status == store.lib.RMQ_NO_SPACE

    door.disarm()
    store.abandon()

    store = Calls(core, tmp_path, door.vfs)
    expected = placed_log(records, store_timestamp=NOW_MS)
    found = bytes_of_log(store, tmp_path)
    assert 3 * 1500 < len(found) < len(expected)
    assert expected.startswith(found)

    store.close()
    door.free()


def test_process_that_dies_while_it_places_leaves_whole_records_to_recovery(
    core: Any, tmp_path: Path
) -> None:
    records = [message(number, size=700) for number in range(200)]

    store = Calls(core, tmp_path)
    store.store.clock.fixed_ms = NOW_MS
    data = run_of(records)

    run = store.ffi.new("struct rmq_run *")
    kept = store.ffi.from_buffer(data)
    run.data, run.size = kept, len(data)
    log_of_store = store.ffi.addressof(store.store, "log")
    store.check(store.lib.rmq_run_validate(run, log_of_store, store.error))
    store.check(store.lib.rmq_run_place(run, log_of_store, store.error))

    placed = int(run.records)
    assert 0 < placed < len(records)
    store.abandon()

    store = Calls(core, tmp_path)
    assert store.recovery.was_closed == 0

    expected = placed_log(records[:placed], store_timestamp=NOW_MS)
    assert bytes_of_log(store, tmp_path) == expected
    store.wait_dispatched(store.end_offset)
    assert store.read(0, (placed - 1) // 3)[1].startswith(b"%08d" % ((placed - 1) // 3 * 3))
    store.close()
