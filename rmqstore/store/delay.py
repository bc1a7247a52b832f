"""The stored form of delayed messages: they wait in the queue of their level in one topic."""

from __future__ import annotations

from dataclasses import replace

from rmqstore.message import Message
from rmqstore.topic_names import SCHEDULE_TOPIC

__all__ = ["DELAY", "REAL_QUEUE", "REAL_TOPIC", "schedule", "scheduled"]

DELAY = "DELAY"
"""Property with the delay level of a message."""
REAL_TOPIC, REAL_QUEUE = "REAL_TOPIC", "REAL_QID"
"""Properties of a message that waits for its time: where it is delivered."""


def schedule(
    properties: dict[str, str], topic: str, queue: int, level: int, *, level_max: int
) -> tuple[str, int]:
    """Write to *properties* where a message of a delay level, from 1, is delivered; return the
    topic and the queue where it waits. A level above *level_max* means the largest, as in
    RocketMQ."""
    level = min(level, level_max)
    properties[DELAY] = str(level)
    properties[REAL_TOPIC], properties[REAL_QUEUE] = topic, str(queue)
    return SCHEDULE_TOPIC, level - 1


def scheduled(message: Message, *, level_max: int) -> Message:
    """Return a delayed message as it is stored."""
    properties = dict(message.properties)
    topic, queue = schedule(
        properties, message.topic, message.queue, message.delay_level, level_max=level_max
    )
    return replace(
        message,
        topic=topic,
        queue=queue,
        delay_level=int(properties.pop(DELAY)),
        properties=properties,
    )
