"""Whether queues and index of a store say what its commit log says."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Any

from rmqstore import Record, Store
from rmqstore.message import SysFlag, TransactionType

FILES: dict[str, Any] = {
    "commit_log_file_size_bytes": 65536,
    "consume_queue_file_size_bytes": 1000,
    "index_slot_count": 64,
    "index_entry_count": 500,
}
"""Sizes so small that every file rolls within a test."""


def has_queue_offset(record: Record) -> bool:
    """Tell whether the record takes a place in its queue."""
    kind = int(record.sys_flag & SysFlag.TRANSACTION_MASK)
    return kind not in (TransactionType.PREPARED, TransactionType.ROLLBACK)


def walk_log(store: Store) -> list[Record]:
    """Return every record of the log, having checked that nothing in it is bad."""
    scan = store.scan_log(on_corrupt="stop")
    records = list(scan)
    assert scan.verdict == "limit", (scan.verdict, scan.error)
    assert scan.offset == store.end_offset
    return records


def check_agreement(store: Store, *, key_count: int = 50) -> list[Record]:
    """Walk the log; compare every queue with it in full and the index by a sample of keys.

    Returns the records of the log.
    """
    store.wait_dispatched()
    records = walk_log(store)
    check_queues(store, records)
    check_keys(store, records, key_count)
    return records


def check_queues(store: Store, records: list[Record]) -> None:
    """Every queue holds what the log has for it, in order, without a hole, and nothing else."""
    expected: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
    for record in records:
        if has_queue_offset(record):
            place = (record.queue_offset, record.physical_offset)
            expected[record.topic, record.queue].append(place)

    for (topic, number), places in expected.items():
        offsets = [offset for offset, _ in places]
        assert offsets == list(range(offsets[0], offsets[0] + len(offsets))), (topic, number)

    for queue in store.queues():
        places = expected.pop((queue.topic, queue.number), [])
        found = [(each.queue_offset, each.physical_offset) for each in queue.records()]
        assert found == places, f"{queue}: {_first_difference(found, places)}"
        if places:
            assert (queue.start, queue.end) == (places[0][0], places[-1][0] + 1), queue
        else:
            assert queue.start == queue.end, queue

    assert not expected, f"no queue for {sorted(expected)}"


def check_keys(store: Store, records: list[Record], count: int) -> None:
    """A sample of keys, the newest always among them, finds exactly the records that carry it."""
    carriers: dict[tuple[str, str], list[int]] = defaultdict(list)
    for record in records:
        if int(record.sys_flag & SysFlag.TRANSACTION_MASK) == TransactionType.ROLLBACK:
            continue  # Never indexed.
        for key in {*record.keys, *([record.unique_key] if record.unique_key else [])}:
            carriers[record.topic, key].append(record.physical_offset)
    names = list(carriers)
    chosen = names[-5:] + random.Random(len(names)).sample(names, min(count, len(names)))
    for topic, key in chosen:
        found = [each.physical_offset for each in store.find(topic, key, max_count=1000)]
        assert found == carriers[topic, key][-1000:], (topic, key)


def _first_difference(found: list[tuple[int, int]], places: list[tuple[int, int]]) -> str:
    for number, (one, other) in enumerate(zip(found, places, strict=False)):
        if one != other:
            return f"number {number} is {one}, the log says {other}"
    return f"{len(found)} units, the log says {len(places)}"
