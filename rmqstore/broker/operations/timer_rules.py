"""The rules for timer messages: when a message is one, and where it then waits."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import DELAY, REAL_QUEUE, REAL_TOPIC
from rmqstore.topic_names import TIMER_TOPIC

__all__ = [
    "DELAY_MS",
    "DELAY_S",
    "DELETES",
    "DELIVER_MS",
    "OUT_MS",
    "TIMED",
    "TIMER_ORIGIN",
    "UNIQUE_KEY",
    "TimerRules",
    "deletion_keys",
]

DELAY_S, DELAY_MS, DELIVER_MS = "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS"
"""Properties with the time of a timer message, the first of them counts."""
TIMED = frozenset({DELAY_S, DELAY_MS, DELIVER_MS})
OUT_MS = "TIMER_OUT_MS"
"""Property with the slot of a timer message, which the broker sets."""
DELETES = "TIMER_DEL_UNIQKEY"
"""Property of a deletion: which message is not delivered."""
UNIQUE_KEY = "UNIQ_KEY"
TIMER_ORIGIN = "TIMER_ORIGIN"
"""Property of a delivered message, or of one that is entered again: its offset in queue 0 of
rmq_sys_wheel_timer. It is an addition of this library."""
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_SEPARATOR = "+"


def deletion_keys(properties: Mapping[str, str]) -> Iterator[str]:
    """Yield what a deletion names."""
    key = properties.get(DELETES)
    if key:
        yield key


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRules:
    """The settings that decide on timer messages."""

    is_enabled: bool
    precision_ms: int
    delay_max_s: int
    slot_messages_max: int
    count_of: Callable[[int], int]
    """Returns the number of messages in a slot."""

    def timed(
        self, topic: str, queue: int, properties: dict[str, str], now_ms: int
    ) -> tuple[str, int] | None:
        """Return the topic and the queue where a message waits for its time, whose *properties*
        then say where it belongs; None for one that is not a timer message, or is due. Raises
        RequestRefused."""
        if DELAY in properties and _is_above_0(properties[DELAY]):
            for name in TIMED:
                properties.pop(name, None)
            return None
        if OUT_MS in properties or TIMED.isdisjoint(properties):
            return None
        if not self.is_enabled:
            raise RequestRefused(
                "accurate timer message is not enabled, timerWheelEnable is false",
                code=ResponseCode.SYSTEM_ERROR,
            )

        due_ms = _due_ms(properties, now_ms)
        if due_ms is None or due_ms - now_ms > self.delay_max_s * 1000:
            raise self._illegal()
        if due_ms <= now_ms:
            if DELETES in properties:
                raise self._illegal()
            return None
        # A slot is read when it is over, so a message is never early.
        slot_ms = (due_ms - 1) // self.precision_ms * self.precision_ms
        self._refuse_full(slot_ms)
        properties[OUT_MS] = str(slot_ms)
        properties[REAL_TOPIC], properties[REAL_QUEUE] = topic, str(queue)
        return TIMER_TOPIC, 0

    def _illegal(self) -> RequestRefused:
        return RequestRefused(
            "timer message illegal, the delay time should not be bigger than the max delay "
            f"{self.delay_max_s * 1000}ms; or if set del msg, the delay time should be bigger than "
            "the current time",
            code=ResponseCode.MESSAGE_ILLEGAL,
        )

    def _refuse_full(self, slot_ms: int) -> None:
        """Refuses messages of a full slot, the more the fuller it is."""
        limit = self.slot_messages_max
        count = self.count_of(slot_ms)
        if count <= limit or (count < 2 * limit and random.random() >= (count - limit) / limit):
            return
        raise RequestRefused(
            f"timer message is under flow control, max num limit is {2 * limit} or the current "
            f"value is greater than {limit} and less than {2 * limit}, trigger random flow control",
            code=ResponseCode.SYSTEM_ERROR,
        )


def _is_above_0(text: str) -> bool:
    return bool(_NUMBER.fullmatch(text)) and int(text) > 0


def _due_ms(properties: Mapping[str, str], now_ms: int) -> int | None:
    """Returns the time that the first property of its kind names, None where that is no number."""
    for name, factor, start_ms in (
        (DELAY_S, 1000, now_ms),
        (DELAY_MS, 1, now_ms),
        (DELIVER_MS, 1, 0),
    ):
        text = properties.get(name)
        if text is not None:
            return start_ms + int(text) * factor if _NUMBER.fullmatch(text) else None
    return None
