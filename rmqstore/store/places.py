"""Errors about offsets that hold nothing."""

from __future__ import annotations

from rmqstore.errors import NotFoundError, OffsetOutOfRange, StoreError
from rmqstore.message import GetStatus

__all__ = ["no_record", "past_the_end"]


def past_the_end(place: str, start: int, low: int, high: int) -> OffsetOutOfRange:
    """Return the exception for a *start* past the end of the range from *low* to *high*."""
    return OffsetOutOfRange(
        f"{place} ends at {high}; start {start} is past the end",
        start=low,
        end=high,
        nearest=high,
    )


def no_record(
    topic: str,
    queue: int,
    offset: int,
    status: GetStatus,
    *,
    low: int,
    high: int,
    following: int | None,
) -> StoreError:
    """Return the error of a get at an *offset* without a record, in a queue that holds *low* to
    *high*; *following* is the offset of the next record there is."""
    name = f"queue {topic}/{queue}"

    if following is not None:
        return OffsetOutOfRange(
            f"{name} has no message at offset {offset}; the next one is at {following}",
            start=low,
            end=high,
            nearest=following,
        )

    if status is GetStatus.NO_MATCHED_LOGIC_QUEUE:
        return NotFoundError(f"no {name}; see Store.queues()")

    return OffsetOutOfRange(
        f"{name} holds the offsets {low} to {high - 1}, not {offset}"
        if low < high
        else f"{name} is empty; offset {offset} is not there",
        start=low,
        end=high,
        nearest=min(max(offset, low), max(high - 1, low)),
    )
