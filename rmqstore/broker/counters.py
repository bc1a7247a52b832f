"""Counts by topic and by group, with their sums and rates of the last minute, hour and day.

They are RocketMQ's. A count costs one lookup: `add` writes to a table of the last ten seconds, and
`sample` moves that table to the history, where a count takes a few bytes for each period. Time is
an argument, in seconds of a monotonic clock.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import repeat
from operator import sub
from typing import Generic, TypeVar

__all__ = ["SAMPLE_S", "Counters", "Sum", "Sums"]

K = TypeVar("K", bound=Hashable)

SAMPLE_S = 10.0
"""How often `Counters.sample` is called."""
_MINUTE, _HOUR, _DAY = (6, SAMPLE_S), (6, 600.0), (24, 3600.0)
"""Number and length of the periods of each span."""
_CODES, _LIMITS = "BHIQ", (0xFF, 0xFFFF, 0xFFFFFFFF)
_MESSAGES, _BYTES, _TIMES = range(3)


@dataclass(frozen=True, slots=True)
class Sum:
    """What was counted in a span of time."""

    total: int
    rate: float
    """The total for each second."""
    mean: float
    """The total for each call of `Counters.add`."""


@dataclass(frozen=True, slots=True)
class Sums:
    """What was counted in the last minute, hour and day."""

    minute: Sum
    hour: Sum
    day: Sum


class _Span:
    """The counts of the last periods of one length, whose present one began at *began_s*."""

    def __init__(self, kept: int, began_s: float) -> None:
        self._periods: deque[tuple[float, list[array[int]]]] = deque(maxlen=kept)
        """When each period began, and its messages, bytes and calls by row."""
        self.began_s = began_s

    @property
    def since_s(self) -> float:
        """When the span began."""
        return self._periods[0][0] if self._periods else self.began_s

    def end_period(self, columns: list[array[int]], now_s: float) -> None:
        self._periods.append((self.began_s, columns))
        self.began_s = now_s

    def sum(self, column: int, row: int) -> int:
        """Return what was counted in a row in all periods."""
        columns = (each[column] for _, each in self._periods)
        return sum(each[row] for each in columns if row < len(each))

    def clear_row(self, row: int) -> None:
        for _, columns in self._periods:
            for column in columns:
                if row < len(column):
                    column[row] = 0


class _LongSpan(_Span):
    """A span whose present period has samples already: it keeps the totals at its beginning."""

    def __init__(self, kept: int, began_s: float, period_s: float) -> None:
        super().__init__(kept, began_s)
        self._period_s = period_s
        self._marks = [array("Q") for _ in range(3)]

    def sample(self, totals: list[array[int]], now_s: float) -> None:
        """End the present period if its time is over. Rows are made at the end."""
        if now_s - self.began_s < self._period_s - SAMPLE_S / 2:
            return
        columns = []
        for total, marks in zip(totals, self._marks, strict=True):
            marks.extend(repeat(0, len(total) - len(marks)))
            deltas = array("Q", map(sub, total, marks))
            columns.append(array(_code(max(deltas, default=0)), deltas))
        self.end_period(columns, now_s)
        self._marks = [array("Q", total) for total in totals]

    def present(self, column: int, row: int, total: int) -> int:
        """Return what was counted in a row in the present period."""
        marks = self._marks[column]
        return total - (marks[row] if row < len(marks) else 0)

    def clear_row(self, row: int) -> None:
        super().clear_row(row)
        for marks in self._marks:
            if row < len(marks):
                marks[row] = 0


def _code(largest: int) -> str:
    """Returns the type code of an array that holds numbers up to *largest*."""
    return _CODES[bisect_left(_LIMITS, largest)]


class Counters(Generic[K]):
    """Counts of messages and bytes by key.

    Keys stay, so that they are to be names that the broker has in its tables.
    """

    def __init__(self, now_s: float) -> None:
        self.recent: dict[K, list[int]] = {}
        """Messages, bytes and calls since the last sample."""
        self._rows: dict[K, int] = {}
        self._free: list[int] = []
        self._born_s = array("d")
        self._totals = [array("Q") for _ in range(3)]
        self._minute = _Span(_MINUTE[0], now_s)
        self._hour = _LongSpan(_HOUR[0], now_s, _HOUR[1])
        self._day = _LongSpan(_DAY[0], now_s, _DAY[1])

    def add(self, key: K, messages: int, size_bytes: int = 0) -> None:
        """Count some messages of a key."""
        counts = self.recent.get(key)
        if counts is None:
            self.recent[key] = [messages, size_bytes, 1]
        else:
            counts[_MESSAGES] += messages
            counts[_BYTES] += size_bytes
            counts[_TIMES] += 1

    def sample(self, now_s: float) -> None:
        """Move the recent counts to the history."""
        recent, self.recent = self.recent, {}
        rows = [self._row_of(key) for key in recent]
        columns = []
        for at, total in enumerate(self._totals):
            counts = [each[at] for each in recent.values()]
            column = array(_code(max(counts, default=0)))
            column.frombytes(bytes(column.itemsize * len(total)))
            for row, count in zip(rows, counts, strict=True):
                column[row] = count
                total[row] += count
            columns.append(column)

        self._minute.end_period(columns, now_s)
        self._hour.sample(self._totals, now_s)
        self._day.sample(self._totals, now_s)

    def _row_of(self, key: K) -> int:
        row = self._rows.get(key)
        if row is not None:
            return row
        if self._free:
            row = self._free.pop()
        else:
            row = len(self._born_s)
            self._born_s.append(0.0)
            for total in self._totals:
                total.append(0)
        self._rows[key] = row
        self._born_s[row] = self._minute.began_s
        return row

    # -- Reports.

    def messages(self, key: K, now_s: float) -> Sums | None:
        """Return the messages of a key, None where it had none."""
        return self._sums(key, _MESSAGES, now_s)

    def sizes(self, key: K, now_s: float) -> Sums | None:
        """Return the bytes of a key, None where it had none."""
        return self._sums(key, _BYTES, now_s)

    def rate(self, key: K, now_s: float) -> float:
        """Return how many messages of a key came in each second of the last minute."""
        return self._sum(self._minute, key, _MESSAGES, now_s).rate

    def rate_of_all(self, now_s: float) -> float:
        """Return how many messages of all keys came in each second of the last minute."""
        return sum(self.rate(key, now_s) for key in self)

    def total(self, key: K) -> tuple[int, int]:
        """Return all messages and bytes of a key."""
        messages, size_bytes, _ = self.recent.get(key, (0, 0, 0))
        row = self._rows.get(key)
        if row is not None:
            messages += self._totals[_MESSAGES][row]
            size_bytes += self._totals[_BYTES][row]
        return messages, size_bytes

    def __iter__(self) -> Iterator[K]:
        """Iterate over the keys."""
        yield from self._rows
        yield from (key for key in self.recent if key not in self._rows)

    def _sums(self, key: K, column: int, now_s: float) -> Sums | None:
        if key not in self._rows and key not in self.recent:
            return None
        spans = self._minute, self._hour, self._day
        return Sums(*(self._sum(each, key, column, now_s) for each in spans))

    def _sum(self, span: _Span, key: K, column: int, now_s: float) -> Sum:
        row, born_s = self._rows.get(key), self._minute.began_s
        total, times = (self._sum_of(span, key, row, each) for each in (column, _TIMES))
        if row is not None:
            born_s = self._born_s[row]
        # As in RocketMQ, a new key is ten seconds old.
        passed_s = max(now_s - max(span.since_s, born_s), SAMPLE_S)
        return Sum(total, total / passed_s, total / times if times else 0.0)

    def _sum_of(self, span: _Span, key: K, row: int | None, column: int) -> int:
        count = self.recent.get(key, (0, 0, 0))[column]
        if row is not None:
            count += span.sum(column, row)
            if isinstance(span, _LongSpan):
                count += span.present(column, row, self._totals[column][row])
        return count

    # -- The end of keys.

    def forget(self, is_gone: Callable[[K], bool]) -> None:
        """Forget the counts of keys."""
        for key in [each for each in self.recent if is_gone(each)]:
            del self.recent[key]
        for key in [each for each in self._rows if is_gone(each)]:
            row = self._rows.pop(key)
            for total in self._totals:
                total[row] = 0
            for span in (self._minute, self._hour, self._day):
                span.clear_row(row)
            self._free.append(row)
