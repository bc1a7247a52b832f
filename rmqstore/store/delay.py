"""The stored form of delayed messages."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.message import Message

__all__ = ["scheduled"]

_SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"


def scheduled(message: Message, *, level_max: int) -> Message:
    """Return a delayed message as RocketMQ stores it: in the schedule topic, with its own topic and
    queue as properties."""
    level = min(message.delay_level, level_max)
    properties = {
        **message.properties,
        "REAL_TOPIC": message.topic,
        "REAL_QID": str(message.queue),
    }
    return replace(
        message,
        topic=_SCHEDULE_TOPIC,
        queue=level - 1,
        delay_level=level,
        properties=properties,
    )
