"""The texts of POP in fields of headers: receipt handles, and what an answer says of its queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

from rmqstore.arguments import INT64_MAX, shown
from rmqstore.errors import InvalidFieldError
from rmqstore.topic_names import RetryKind, retry_kind

__all__ = [
    "ORDERLY_QUEUE",
    "PoppedQueue",
    "ReceiptHandle",
    "offsets_text",
    "popped_queues",
    "starts_text",
]

ORDERLY_QUEUE = 999
"""The revive queue that handles of orderly messages name; there is no such queue."""
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiptHandle:
    """What a consumer acknowledges a popped message with (`extraInfo`, property POP_CK)."""

    start_offset: int
    """Where the pop began."""
    pop_time_ms: int
    invisible_ms: int
    revive_queue: int
    kind: RetryKind
    """The form of the topic's name."""
    broker_name: str
    queue: int
    offset: int | None = None
    """Of the message; None in a handle of a whole pop."""
    physical_offset: int | None = None
    """Of the message, in the handles of proxies."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the handle of a text. Raises InvalidFieldError, which says what is wrong."""
        parts = text.split(" ")
        if not 7 <= len(parts) <= 9:
            raise _malformed(text, f"it has {len(parts)} parts instead of 7 to 9")
        kind = _number(text, "the form of the topic", parts[4], high=max(RetryKind))
        return cls(
            start_offset=_number(text, "the first offset", parts[0]),
            pop_time_ms=_number(text, "the time of the pop", parts[1]),
            invisible_ms=_number(text, "the invisible time", parts[2]),
            revive_queue=_number(text, "the revive queue", parts[3], high=_INT32_MAX),
            kind=RetryKind(kind),
            broker_name=parts[5],
            queue=_number(text, "the queue", parts[6], high=_INT32_MAX),
            offset=_number(text, "the offset", parts[7]) if len(parts) > 7 else None,
            physical_offset=(
                _number(text, "the physical offset", parts[8]) if len(parts) > 8 else None
            ),
        )

    def __str__(self) -> str:
        times = f"{self.start_offset} {self.pop_time_ms} {self.invisible_ms} {self.revive_queue}"
        handle = f"{times} {int(self.kind)} {self.broker_name} {self.queue}"
        offsets = (self.offset, self.physical_offset)
        return " ".join([handle, *(str(each) for each in offsets if each is not None)])

    @property
    def is_orderly(self) -> bool:
        """Whether the message was popped in order."""
        return self.revive_queue == ORDERLY_QUEUE

    @property
    def revive_ms(self) -> int:
        """When the message is delivered again unless it is acknowledged."""
        return self.pop_time_ms + self.invisible_ms


class PoppedQueue(NamedTuple):
    """The messages of one queue in the answer to a pop."""

    topic: str
    queue: int
    start_offset: int
    offsets: tuple[int, ...]


def starts_text(popped: Iterable[PoppedQueue]) -> str:
    """Return where the pop began in each queue: "KIND QUEUE OFFSET" with ";" between."""
    return ";".join(
        f"{int(retry_kind(each.topic))} {each.queue} {each.start_offset}" for each in popped
    )


def offsets_text(popped: Iterable[PoppedQueue]) -> str:
    """Return the messages of each queue: "KIND QUEUE OFFSET,OFFSET" with ";" between."""
    return ";".join(
        f"{int(retry_kind(each.topic))} {each.queue} {','.join(map(str, each.offsets))}"
        for each in popped
    )


def popped_queues(text: str | None) -> Iterator[tuple[RetryKind, int, tuple[int, ...]]]:
    """Yield form, queue and offsets of either text. Raises InvalidFieldError."""
    for part in text.split(";") if text else ():
        pieces = part.split(" ")
        if len(pieces) != 3:
            raise _malformed(text or "", f"{shown(part)} has {len(pieces)} parts instead of 3")
        yield (
            RetryKind(_number(part, "the form of the topic", pieces[0], high=max(RetryKind))),
            _number(part, "the queue", pieces[1], high=_INT32_MAX),
            tuple(_number(part, "an offset", each) for each in pieces[2].split(",")),
        )


def _number(text: str, name: str, digits: str, *, high: int = INT64_MAX) -> int:
    # int() also accepts signs, spaces, underscores and digits of other scripts.
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) > high:
        raise _malformed(text, f"{name} is {shown(digits)}, not a number from 0 to {high}")
    return int(digits)


def _malformed(text: str, problem: str) -> InvalidFieldError:
    return InvalidFieldError(
        f"receipt handle {shown(text)}: {problem}; send the handle of the popped message",
        field="extraInfo",
    )
