"""Messages that delete a waiting timer message: recalls, and those of producers with
TIMER_DEL_UNIQKEY.

A deletion works only in the slot of its message. So the message is looked up first, and the
deletion gets its slot, whatever time it came with. One that names no known message stays as it is:
the message may come after it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from rmqstore.broker.operations.core import Core, ViewOf, dispatched
from rmqstore.broker.operations.timer_rules import DELETES, OUT_MS
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import REAL_TOPIC
from rmqstore.topic_names import TIMER_TOPIC

__all__ = ["RecallHandle", "TimerTargets", "Wheel", "too_late"]

_FOUND_MAX = 64
_VERSION = "v1"


class Wheel(Protocol):
    """The part of the timer's service that sends use."""

    def slot_count(self, due_ms: int) -> int:
        """Return the number of messages that wait in the slot of a time, less deletions."""

    def is_open(self, slot_ms: int) -> bool:
        """Whether all messages that are now in the log, and wait in a slot, are found before it is
        read."""


class RecallHandle(NamedTuple):
    """What names a timer message to its producer."""

    topic: str
    broker: str
    due_ms: int
    """A millisecond past the beginning of the message's slot."""
    key: str

    @classmethod
    def parse(cls, text: str) -> RecallHandle | None:
        """Return the handle that a text encodes, None for any other text."""
        try:
            parts = base64.b64decode(text, altchars=b"-_", validate=True).decode().split(" ")
        except (binascii.Error, ValueError):
            return None
        if len(parts) != 5 or parts[0] != _VERSION or not (parts[3].isascii() and parts[4]):
            return None
        return cls(parts[1], parts[2], int(parts[3]), parts[4]) if parts[3].isdecimal() else None

    def __str__(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker} {self.due_ms} {self.key}"
        return base64.urlsafe_b64encode(text.encode()).decode()


class TimerTargets:
    """Finds the messages that deletions name, by the index of keys."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    async def slot_of(self, named: str) -> int | None:
        """Return the slot of the message that a deletion names; None where the index of keys has no
        such message."""
        if not self._core.store.store.config.message_index_enable:
            return None
        await dispatched(self._core)
        topic, separator, key = named.rpartition("+")
        now_ms = self._core.runtime.wall_ms()
        slots = await self._core.runtime.in_thread(self._slots, topic, key, now_ms)
        if not slots and separator:
            # RocketMQ 5.5.0 names the key alone, which may hold the separator.
            slots = await self._core.runtime.in_thread(self._slots, "", named, now_ms)
        return max(slots, default=None)

    def _slots(self, topic: str, key: str, now_ms: int) -> list[int]:
        records = self._view().query(TIMER_TOPIC, key, False, 0, now_ms + 60_000, _FOUND_MAX)
        return list(_slots(records, topic, key))


class _Found(Protocol):
    @property
    def properties(self) -> dict[str, str]: ...
    @property
    def unique_key(self) -> str | None: ...


def _slots(records: Iterable[_Found], topic: str, key: str) -> Iterable[int]:
    for record in records:
        properties = record.properties
        if record.unique_key != key or DELETES in properties:
            continue
        slot = properties.get(OUT_MS, "")
        if slot.isdecimal() and topic in ("", properties.get(REAL_TOPIC)):
            yield int(slot)


def too_late() -> RequestRefused:
    """Return the refusal of a deletion that may have come too late."""
    return RequestRefused(
        "the timer message is due and may have been delivered; its deletion came too late",
        code=ResponseCode.ILLEGAL_OPERATION,
    )
