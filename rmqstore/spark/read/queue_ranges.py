"""Which messages of a topic the options choose, queue by queue."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

from rmqstore.spark.option_values import EARLIEST, LATEST, ByQueue
from rmqstore.spark.options import Options
from rmqstore.spark.read.conditions import EVERYTHING, Conditions
from rmqstore.spark.read.ranges import QueueRange

__all__ = ["EVERY_QUEUE", "choice", "narrowed", "range_of", "ranges_of"]

EVERY_QUEUE = -1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def choice(options: Options) -> Callable[[bytes], tuple[QueueRange, ...] | None]:
    """Return a function from a topic, as it is stored, to what `core.SegmentScan.choose` takes;
    None means that the topic is not wanted."""

    def chosen(topic: bytes) -> tuple[QueueRange, ...] | None:
        return ranges_of(options, topic.decode(errors="replace"))

    return chosen


def ranges_of(
    options: Options, topic: str, conditions: Conditions = EVERYTHING
) -> tuple[QueueRange, ...] | None:
    """Return the ranges of a topic's queues that are wanted, None for none.

    Where *conditions* leave nothing of a queue, its range is empty.
    """
    queues = _queues_of(options, topic)
    if queues is None or not (conditions.topics is None or topic in conditions.topics):
        return None
    named = [queue for queue in queues if queue != EVERY_QUEUE]
    for by_queue in (
        options.starting_offsets,
        options.ending_offsets,
        options.starting_ms_by_queue,
        options.ending_ms_by_queue,
    ):
        if isinstance(by_queue, dict) and EVERY_QUEUE in queues:
            named += [queue for queue in by_queue.get(topic, ()) if queue not in named]
    if EVERY_QUEUE in queues:
        others = sorted(conditions.queues or ())
        named += [EVERY_QUEUE] if conditions.queues is None else others
    return tuple(
        narrowed(_range(options, topic, queue), conditions)
        for queue in dict.fromkeys(named)
        if conditions.queues is None or queue in conditions.queues
    )


def narrowed(range_: QueueRange, conditions: Conditions) -> QueueRange:
    """Return what *conditions* leave of a range."""
    first, stop = conditions.queue_offsets
    begin_ms, end_ms = conditions.store_ms
    return QueueRange(
        range_.queue_id,
        max(range_.start, first),
        min(range_.stop, stop),
        max(range_.begin_ms, begin_ms),
        min(range_.end_ms, end_ms),
    )


def range_of(options: Options, topic: str, queue_id: int) -> QueueRange | None:
    """Return the range of one queue that is wanted, None when it is not."""
    ranges = ranges_of(options, topic) or ()
    by_id = {each.queue_id: each for each in ranges}
    found = by_id.get(queue_id, by_id.get(EVERY_QUEUE))
    return None if found is None else found._replace(queue_id=queue_id)


def _queues_of(options: Options, topic: str) -> tuple[int, ...] | None:
    if options.topics is not None:
        return (EVERY_QUEUE,) if topic in options.topics else None
    if options.topic_pattern is not None:
        return (EVERY_QUEUE,) if re.fullmatch(options.topic_pattern, topic) else None
    if options.assign is not None:
        return options.assign.get(topic) or None
    return (EVERY_QUEUE,)


def _range(options: Options, topic: str, queue: int) -> QueueRange:
    begin_ms, end_ms = options.begin_ms, options.end_ms
    if options.starting_ms_by_queue is not None:
        begin_ms = options.starting_ms_by_queue.get(topic, {}).get(queue, begin_ms)
    if options.ending_ms_by_queue is not None:
        end_ms = options.ending_ms_by_queue.get(topic, {}).get(queue, end_ms)
    start = _offset(options.starting_offsets, topic, queue, EARLIEST)
    stop = _offset(options.ending_offsets, topic, queue, LATEST)
    return QueueRange(
        queue,
        _INT64_MIN if start == EARLIEST else start,
        _INT64_MAX if stop == LATEST else stop,
        begin_ms,
        end_ms,
    )


def _offset(
    bound: Literal["earliest", "latest"] | ByQueue, topic: str, queue: int, default: int
) -> int:
    return bound.get(topic, {}).get(queue, default) if isinstance(bound, dict) else default
