"""The names of topics that a broker has for itself: of groups, of delayed messages, of
transactions, of POP, and of light queues."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

__all__ = [
    "DLQ_PREFIX",
    "GIVEN_UP_TOPIC",
    "HALF_TOPIC",
    "LIGHT_PREFIX",
    "NOTE_TOPIC",
    "RETRY_PREFIX",
    "REVIVE_GROUP",
    "SCHEDULE_TOPIC",
    "TIMER_TOPIC",
    "RetryKind",
    "pop_retry_topic",
    "popped_from",
    "retry_kind",
    "revive_topic",
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
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
"""The group whose offsets say how far the revive topic is read."""
_SEPARATOR_V1, _SEPARATOR_V2 = "_", "+"


class RetryKind(IntEnum):
    """The flag of receipt handles: which form the name of the message's topic has."""

    NONE = 0
    """Not a retry topic."""
    V1 = 1
    """%RETRY%GROUP_TOPIC."""
    V2 = 2
    """%RETRY%GROUP+TOPIC; names of groups and topics have no "+"."""


def revive_topic(cluster: str) -> str:
    """Return the topic of the check points and acknowledgements of a cluster, which say what
    consumers popped."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


def pop_retry_topic(topic: str, group: str, kind: RetryKind) -> str:
    """Return the topic of messages that a group pops again, which came from *topic*; *topic* itself
    for NONE."""
    if kind is RetryKind.NONE:
        return topic
    separator = _SEPARATOR_V2 if kind is RetryKind.V2 else _SEPARATOR_V1
    return f"{RETRY_PREFIX}{group}{separator}{topic}"


def retry_kind(topic: str) -> RetryKind:
    """Return the form of a topic's name."""
    if not topic.startswith(RETRY_PREFIX):
        return RetryKind.NONE
    return RetryKind.V2 if _SEPARATOR_V2 in topic else RetryKind.V1


def popped_from(retry_topic: str, is_group: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    """Yield each pair of a known group and a topic that a retry topic of POP may be of.

    A name of form V1 may be read in several ways, because names of groups and of topics may have a
    "_" too: the group with the longest name comes first.
    """
    kind = retry_kind(retry_topic)
    if kind is RetryKind.NONE:
        return
    name = retry_topic.removeprefix(RETRY_PREFIX)
    if kind is RetryKind.V2:
        group, _, topic = name.partition(_SEPARATOR_V2)
        if topic and _SEPARATOR_V2 not in topic and is_group(group):
            yield group, topic
        return
    at = len(name) - 1
    while (at := name.rfind(_SEPARATOR_V1, 0, at)) > 0:
        if is_group(name[:at]):
            yield name[:at], name[at + 1 :]
