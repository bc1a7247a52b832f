"""The revive of popped messages: which come again, and how far a revive queue is read.

A revive queue has check points, each of messages that were popped, and acknowledgements of such
messages, in about the order of their times. A check point is open until each of its messages is
acknowledged, or delivered again and safe. The progress of a queue passes no open check point, and
no acknowledgement that an open check point needs: what comes after a crash is what the progress has
not passed.

Nothing here reads a clock or the store.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import NamedTuple

from rmqstore.broker.pop_records import PopAck, PopCheckPoint

__all__ = ["Revival", "ReviveQueue", "put_again"]

_GRACE_MS = 2000
"""How much later than a check point records may be that come before its acknowledgements."""
_SLOT_MS = 1000
"""How much later than a record in a revive queue one may be that comes before it."""
_PAUSES_S = (10, 20, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
"""Before a check point is due that was put again, by the number of times."""

_Key = tuple[str, str, int, int, int, str]
"""Topic, group, queue, start offset, time and broker of a pop."""


class Revival(NamedTuple):
    """A check point that is due."""

    revive_offset: int
    """Its offset in the revive queue."""
    point: PopCheckPoint
    offsets: tuple[int, ...]
    """Of the messages without acknowledgements, which come again."""


class _Entry:
    """A record of the revive queue that the progress has not passed."""

    __slots__ = ("acked", "end_offset", "key", "offset", "point", "time_ms")

    def __init__(self, offset: int, record: PopCheckPoint | PopAck, key: _Key, due_ms: int) -> None:
        self.offset = offset
        self.key = key
        self.point = record if isinstance(record, PopCheckPoint) else None
        self.acked = record.offsets if isinstance(record, PopAck) else ()
        self.time_ms = due_ms if self.point is None else self.point.revive_ms
        """After that a check point is due, and an acknowledgement is of no use."""
        self.end_offset: int | None = None
        """Of a check point: the end of its deliveries in the log; None before they are made."""

    def is_safe(self, safe_offset: int) -> bool:
        """Whether the deliveries of a check point are in the log before *safe_offset*."""
        return self.end_offset is not None and self.end_offset <= safe_offset


class ReviveQueue:
    """The records of one revive queue that were read and are not passed."""

    def __init__(self, offset: int, *, broker_name: str) -> None:
        """*offset* is the first one that is read. Records of early releases, which name no broker,
        are of *broker_name*."""
        self.offset = offset
        """Of the next record to be read."""
        self.passed = offset - 1
        """The progress, as RocketMQ keeps it: the offset of the last record that is done with."""
        self.time_ms = 0
        """All records that are due before it are read."""
        self._broker_name = broker_name
        self._entries: deque[_Entry] = deque()
        self._waiting: deque[_Entry] = deque()
        """Check points before their deliveries."""
        self._points: dict[_Key, list[_Entry]] = {}
        """The check points with a key that are not passed."""
        self._acks: dict[_Key, dict[int, int]] = {}
        """For each acknowledged message, the revive offset of its last acknowledgement."""

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_settled(self) -> bool:
        """Whether no delivery is left that is not passed."""
        return not self._entries or self._entries[0].end_offset is None

    def is_full(self, count_max: int) -> bool:
        """Whether *count_max* records wait for the end of check points that are delivered."""
        return len(self._entries) - len(self._waiting) > count_max and not self.is_settled

    def take(self, record: PopCheckPoint | PopAck, due_ms: int, *, limit_ms: int) -> None:
        """Take the next record of the queue, which was due at *due_ms*. What is due at *limit_ms*
        or later does not come yet, whatever a record says."""
        key = self._key_of(record)
        entry = _Entry(self.offset, record, key, due_ms)
        self._entries.append(entry)
        if entry.point is not None:
            self._waiting.append(entry)
            self._points.setdefault(key, []).append(entry)
        else:
            acks = self._acks.setdefault(key, {})
            for offset in entry.acked:
                acks[offset] = self.offset
        self.offset += 1
        self.time_ms = max(self.time_ms, min(due_ms - _SLOT_MS, limit_ms))

    def skip(self) -> None:
        """Take that the next record is of no use: it is neither of a check point nor of an
        acknowledgement, or cannot be read."""
        self.offset += 1

    def skip_to(self, offset: int) -> None:
        """Take that the records before *offset* are gone."""
        self.offset = max(self.offset, offset)

    def read_to_end(self, time_ms: int) -> None:
        """Take that the queue is read to its end, and that every record that is due before
        *time_ms* is in it."""
        # The clock, and with it the timer, may have been set back.
        self.time_ms = time_ms

    def due(self, count_max: int) -> list[Revival]:
        """Return the next check points that are due, in their order, each of which needs `done`."""
        found = []
        for entry in islice(self._waiting, count_max):
            if entry.time_ms + _GRACE_MS >= self.time_ms:
                break
            point, acks = entry.point, self._acks.get(entry.key, {})
            assert point is not None, "an acknowledgement does not wait"
            left = tuple(
                offset
                for bit, offset in enumerate(point.offsets)
                if offset not in acks and not point.bits >> bit & 1
            )
            found.append(Revival(entry.offset, point, left))
        return found

    def done(self, end_offset: int) -> None:
        """Take that the messages of the next check point that come again are in the log before
        *end_offset*, 0 where none comes again."""
        self._waiting.popleft().end_offset = end_offset

    def settle(self, safe_offset: int) -> bool:
        """Pass what needs nothing more, where the log is safe before *safe_offset*; return whether
        the progress has changed."""
        before = self.passed
        while self._entries:
            entry = self._entries[0]
            if entry.point is None:
                if entry.time_ms + _GRACE_MS >= self.time_ms or not self._is_safe(
                    entry, safe_offset
                ):
                    break
                self._forget(entry)
            elif not entry.is_safe(safe_offset):
                break
            else:
                self._close(entry)
            self.passed = entry.offset
            self._entries.popleft()
        if not self._entries:
            self.passed = max(self.passed, self.offset - 1)
        return self.passed != before

    def _is_safe(self, ack: _Entry, safe_offset: int) -> bool:
        """Whether no check point needs an acknowledgement. One may come after it, where the timer
        was late."""
        return all(each.is_safe(safe_offset) for each in self._points.get(ack.key, ()))

    def _close(self, point: _Entry) -> None:
        points = self._points[point.key]
        points.remove(point)
        if not points:
            del self._points[point.key]

    def _forget(self, entry: _Entry) -> None:
        acks = self._acks[entry.key]
        for offset in entry.acked:
            if acks.get(offset) == entry.offset:
                del acks[offset]
        if not acks:
            del self._acks[entry.key]

    def _key_of(self, record: PopCheckPoint | PopAck) -> _Key:
        name = record.broker_name or self._broker_name
        return (
            record.topic,
            record.group,
            record.queue,
            record.start_offset,
            record.pop_time_ms,
            name,
        )


def put_again(point: PopCheckPoint, offset: int, now_ms: int) -> PopCheckPoint:
    """Return the check point of one message that cannot be delivered again yet."""
    text = point.times or ""
    times = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0
    invisible_ms = point.invisible_ms
    if point.revive_ms <= now_ms:
        invisible_ms += _PAUSES_S[min(times, len(_PAUSES_S) - 1)] * 1000
    return PopCheckPoint(
        topic=point.topic,
        queue=point.queue,
        group=point.group,
        start_offset=offset,
        offsets=(offset,),
        pop_time_ms=point.pop_time_ms,
        invisible_ms=invisible_ms,
        broker_name=point.broker_name,
        times=str(times + 1),
        is_suspended=point.is_suspended,
    )
