"""Where messages wait that are delivered later: for the time of their level, or their own."""

from __future__ import annotations

from rmqstore.broker.operations.core import Core
from rmqstore.broker.operations.message_rules import LATER, scheduled
from rmqstore.broker.operations.timer_deletions import Wheel
from rmqstore.broker.operations.timer_rules import TimerRules

__all__ = ["WaitingPlaces"]


class WaitingPlaces:
    """The rules for messages that are delivered later, by the settings of a broker."""

    def __init__(self, core: Core, wheel: Wheel | None = None) -> None:
        """*wheel* is that of timer messages, where there is one."""
        self._core = core
        self._levels = len(core.config.store.delay_levels_ms)
        self._timers = TimerRules(
            is_enabled=core.config.timers,
            precision_ms=core.config.timer_precision_ms,
            delay_max_s=core.config.timer_delay_max_s,
            slot_messages_max=core.config.timer_slot_messages_max,
            count_of=(lambda _: 0) if wheel is None else wheel.slot_count,
        )

    def place_of(
        self, topic: str, queue: int, properties: dict[str, str]
    ) -> tuple[str, int] | None:
        """Return the topic and the queue where a message waits, whose *properties* then say where
        it belongs; None for one that is not delivered later. Raises RequestRefused."""
        if LATER.isdisjoint(properties):
            return None
        now_ms = self._core.runtime.wall_ms()
        timed = self._timers.timed(topic, queue, properties, now_ms)
        return timed or scheduled(topic, queue, properties, self._levels)
