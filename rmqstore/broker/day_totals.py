"""How many messages a broker stored, and sent to consumers: in all, and before today and yesterday.

They survive a restart; RocketMQ's begin at 0 then. Days are numbers, of the local calendar.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

__all__ = ["DayTotals", "Totals"]

_SIZE_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers of messages."""

    put: int = 0
    sent: int = 0

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.put + other.put, self.sent + other.sent)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the file holds."""

    day: int = 0
    """The present day, 0 before the first one."""
    yesterday: Totals = Totals()
    """Before yesterday began."""
    today: Totals = Totals()
    """Before today began."""
    now: Totals = Totals()


class DayTotals:
    """The totals of one broker, since its directory was made."""

    def __init__(self) -> None:
        self._before = Totals()
        """Of earlier runs."""
        self._day = 0
        self._yesterday = self._today = Totals()

    @property
    def yesterday(self) -> Totals:
        """The totals when yesterday began."""
        return self._yesterday

    @property
    def today(self) -> Totals:
        """The totals when today began."""
        return self._today

    def now(self, run: Totals) -> Totals:
        """Return the totals, with those of the present *run*."""
        return self._before + run

    def take_day(self, day: int, run: Totals) -> None:
        """Take the present day. After days without the broker yesterday's total is today's."""
        if day == self._day:
            return
        now = self.now(run)
        self._yesterday = self._today if day == self._day + 1 else now
        self._day, self._today = day, now

    def encode(self, run: Totals) -> bytes:
        """Return the content of the file."""
        kept = _Kept(self._day, self._yesterday, self._today, self.now(run))
        return json.dumps(asdict(kept)).encode()

    def restore(self, content: bytes) -> None:
        """Take the totals of earlier runs. Raises ValueError for a content that is damaged."""
        fields = json.loads(content)
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        day = _number(fields, "day")
        yesterday, today, now = (_totals(fields, name) for name in ("yesterday", "today", "now"))
        self._day, self._yesterday, self._today, self._before = day, yesterday, today, now


def _totals(fields: dict[str, object], name: str) -> Totals:
    member = fields.get(name)
    if not isinstance(member, dict):
        raise ValueError(f"{name} is not a JSON object")
    return Totals(_number(member, "put"), _number(member, "sent"))


def _number(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int or not 0 <= value < _SIZE_MAX:
        raise ValueError(f"{name} is not a number of messages or a day")
    return value
