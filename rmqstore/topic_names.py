"""The names of topics that a broker has for itself: of groups, of delayed messages, of
transactions, and of light queues."""

from __future__ import annotations

__all__ = [
    "DLQ_PREFIX",
    "GIVEN_UP_TOPIC",
    "HALF_TOPIC",
    "LIGHT_PREFIX",
    "NOTE_TOPIC",
    "RETRY_PREFIX",
    "SCHEDULE_TOPIC",
    "TIMER_TOPIC",
]

RETRY_PREFIX = "%RETRY%"
"""Before the name of a group: the topic of messages that the group consumes again."""
DLQ_PREFIX = "%DLQ%"
"""Before the name of a group: the topic of messages that the group has given up."""
LIGHT_PREFIX = "%LMQ%"
"""Before the names of light topics, each of which is one queue of messages of other topics, and of
groups that consume such topics."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
"""The topic of messages that wait for their time: queue n - 1 has those of delay level n."""
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""The topic of timer messages, which wait in its queue 0."""
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
"""The topic of half messages, whose transactions are not ended."""
NOTE_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
"""The topic of notes, which name half messages whose transactions are ended."""
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
"""The topic of half messages that are given up, because their producers did not decide."""
