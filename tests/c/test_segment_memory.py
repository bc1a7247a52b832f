"""A log file read and summed up with each request for memory failing in its turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.c.segments import inner, log_of, one
from tests.c.store_calls import Failed
from tests.reference.columns import NAMES

CALLS_MAX = 2000
STEPS_MAX = 10_000
FILE = log_of(
    [
        record
        for number in range(20)
        for record in (
            one(topic_bytes=b"topic %d" % number, body=bytes(number * 50), queue_id=number % 3),
            inner(5, base=5 * number),
        )
    ]
)
ROWS = [found["physical_offset"] for found in FILE.rows()]


def check(core: Any, status: int, error: Any) -> None:
    ffi, lib = core
    if status != lib.RMQ_OK:
        assert error.status == status
        raise Failed(status, bytes(ffi.string(error.detail)).decode(), error.os_errno)


def work(core: Any, segment: Any, step: Callable[..., int], error: Any) -> list[int]:
    """Drive a segment to its end; returns the physical offsets of its rows."""
    ffi, lib = core
    state = ffi.new("enum rmq_segment_state *")
    array = ffi.new("struct ArrowArray *")
    ranges = ffi.new(
        "struct rmq_queue_range[]", [(number, 0, 1 << 40, 0, 1 << 60) for number in range(3)]
    )

    rows: list[int] = []

    for _ in range(STEPS_MAX):
        check(core, step(segment, state, error), error)
        if state[0] == lib.RMQ_SEGMENT_TOPIC:
            put = lib.rmq_topic_filter_put
            check(core, put(ffi.addressof(segment.topics), segment.topic, ranges, 3, error), error)
            continue

        assert state[0] in (lib.RMQ_SEGMENT_FULL, lib.RMQ_SEGMENT_OVER)
        if segment.columns.rows > 0:
            columns = ffi.addressof(segment.columns)
            check(core, lib.rmq_arrow_batch(columns, array, error), error)
            places = array.children[NAMES.index("physical_offset")].buffers[1]
            rows += [int(ffi.cast("int64_t *", places)[i]) for i in range(array.length)]
            array.release(array)

        if state[0] == lib.RMQ_SEGMENT_OVER:
            return rows

    raise AssertionError("the scan does not end")


def read(core: Any, *, sums: bool) -> tuple[list[int], int, int]:
    """Return rows, number of queues in the summary, and records."""
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    segment = ffi.new("struct rmq_segment *")

    data = ffi.from_buffer(FILE.data)
    numbers = ffi.new("uint8_t[]", list(range(len(NAMES))))
    columns = ffi.new("struct rmq_columns_options *", [numbers, len(NAMES), 7, 1 << 20])

    options = ffi.new("struct rmq_segment_options *")
    options.stop = options.file_end = len(FILE.data)
    options.unwrap = options.by_topic = True
    options.begin_ms, options.end_ms = -(2**63), 2**63 - 1

    step = lib.rmq_segment_summarize if sums else lib.rmq_segment_fill

    try:
        check(core, lib.rmq_segment_open(segment, options, columns, error), error)
        check(core, lib.rmq_segment_feed(segment, data, len(FILE.data), 0, error), error)
        return work(core, segment, step, error), segment.summary.count, segment.records
    finally:
        lib.rmq_segment_close(segment)


@pytest.mark.parametrize("sums", [False, True])
@pytest.mark.parametrize("failing", [1, 1 << 40])
def test_reading_survives_the_failure_of_each_request_for_memory(
    failing_core: Any, sums: bool, failing: int
) -> None:
    _, lib = failing_core
    for first in range(CALLS_MAX):
        before = lib.failing_memory_blocks()
        lib.failing_memory_arm(first, failing)
        failure = None
        try:
            found = read(failing_core, sums=sums)
        except Failed as failed:
            failure = failed
        finally:
            was_reached = lib.failing_memory_count() > first
            lib.failing_memory_arm(0, 0)
        if failure is None:
            assert found == (([] if sums else ROWS), 21 if sums else 0, len(FILE.records))
        else:
            assert was_reached
            assert failure.status == lib.RMQ_NO_MEMORY
            assert "no memory for" in failure.detail
        assert lib.failing_memory_blocks() == before
        if not was_reached:
            return
    pytest.fail(f"reading makes more than {CALLS_MAX} requests")
