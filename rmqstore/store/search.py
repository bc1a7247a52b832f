"""Messages by key, tag, time, topic and queue, by the shortest way that the store offers."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rmqstore._native.core import Record
from rmqstore.store.store import Store

__all__ = ["search"]

_MAX_TIME_MS = 2**63 - 1
_REPORT_EVERY = 4096
_INDEX_MAX = 100_000


def search(
    store: Store,
    *,
    topic: str | None = None,
    queue: int | None = None,
    key: str | None = None,
    tag: str | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[Record]:
    """Yield the records that meet every condition given.

    A *key* is one of the keys, or the unique key. *begin_ms* is the first store timestamp wanted,
    *end_ms* the first one no longer wanted. A key within a topic is looked up in the index, a topic
    is read through its queues; anything else walks the whole log, and only then *progress* is
    called, periodically, with the finished and the total bytes.
    """
    begin = 0 if begin_ms is None else begin_ms
    end = _MAX_TIME_MS if end_ms is None else end_ms
    if topic is None:
        candidates = _whole_log(store, progress)
    else:
        candidates = _of_topic(store, topic, key, tag, begin, end)
    for record in candidates:
        if (
            queue in (None, record.queue)
            and (key is None or key == record.unique_key or key in record.keys)
            and (tag is None or tag == record.tags)
            and begin <= record.store_timestamp < end
        ):
            yield record


def _of_topic(
    store: Store, topic: str, key: str | None, tag: str | None, begin: int, end: int
) -> Iterator[Record]:
    if key is not None and store.directory.has_index and not store._index_files_skipped():
        yield from store.find(topic, key, begin_ms=begin, end_ms=end, max_count=_INDEX_MAX)
        return
    for queue in store.queues(topic):
        start = queue.offset_at(begin) if begin > 0 else None
        for record in queue.records(start, tags=tag):
            if record.store_timestamp >= end:
                break
            yield record


def _whole_log(store: Store, progress: Callable[[int, int], None] | None) -> Iterator[Record]:
    start, stop = max(store.start_offset, 0), store.end_offset
    for number, record in enumerate(store.scan_log()):
        yield record
        if progress is not None and number % _REPORT_EVERY == 0:
            progress(record.physical_offset - start, stop - start)
