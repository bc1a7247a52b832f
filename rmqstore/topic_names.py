"""The names of topics that a broker has for itself: of groups, and of delayed messages."""

from __future__ import annotations

__all__ = ["DLQ_PREFIX", "RETRY_PREFIX", "SCHEDULE_TOPIC", "TIMER_TOPIC"]

RETRY_PREFIX = "%RETRY%"
"""Before the name of a group: the topic of messages that the group consumes again."""
DLQ_PREFIX = "%DLQ%"
"""Before the name of a group: the topic of messages that the group has given up."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of messages that wait for their time: queue n - 1 has those of delay level n."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic of timer messages, which wait in its queue 0."""
