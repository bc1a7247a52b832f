"""RocketMQ's rules for topics: names, topics of the system, creation by sending, attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from rmqstore.errors import RequestRefused
from rmqstore.permissions import PERM_INHERIT, PERM_READ_WRITE
from rmqstore.remoting.bodies.topic_config import TOPIC_UNIT, TOPIC_UNIT_SUB
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import (
    DLQ_PREFIX,
    GIVEN_UP_TOPIC,
    HALF_TOPIC,
    LIGHT_PREFIX,
    NOTE_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    revive_topic,
)

__all__ = [
    "TEMPLATE_TOPIC",
    "SystemTopics",
    "alter_attributes",
    "check_name",
    "dead_letter_topic",
    "given_up_topic",
    "is_system",
    "made_by_sending",
    "parse_attributes",
    "refuse_sending",
    "refuse_system",
    "retry_topic",
    "with_attributes",
]

TEMPLATE_TOPIC = "TBW102"
"""The topic that others are made from when a message is sent to them."""

_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_NAME_SIZE_MAX = 127
_GROUP_TOPIC_SIZE_MAX = 255
"""Of retry and dead-letter topics, as 5.5.0 allows."""

_NOT_FOR_SENDING = frozenset(
    {
        SCHEDULE_TOPIC,
        HALF_TOPIC,
        NOTE_TOPIC,
        GIVEN_UP_TOPIC,
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
    }
)
_SYSTEM = _NOT_FOR_SENDING | {
    TEMPLATE_TOPIC,
    "BenchmarkTest",
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
}
_SYSTEM_PREFIX = "rmq_sys_"


def is_system(name: str) -> bool:
    """Whether a topic belongs to RocketMQ itself, on every broker."""
    return name in _SYSTEM or name.startswith(_SYSTEM_PREFIX)


def check_name(name: str) -> None:
    """Check the name of a topic to be made. Raises RequestRefused (INVALID_PARAMETER)."""
    if not name.strip():
        raise _invalid("The specified topic is blank.")
    if not _NAME.fullmatch(name):
        raise _invalid(
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    is_of_group = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    if len(name) > (_GROUP_TOPIC_SIZE_MAX if is_of_group else _NAME_SIZE_MAX):
        raise _invalid("The specified topic is longer than topic max length.")


def refuse_sending(name: str) -> None:
    """Raise RequestRefused (NO_PERMISSION) for a topic that clients must not send to.

    RocketMQ lets them send to rmq_sys_wheel_timer and others, where a message without the right
    properties stops its timers; here all topics with that prefix are refused.
    """
    if name in _NOT_FOR_SENDING or name.startswith(_SYSTEM_PREFIX):
        raise RequestRefused(
            f"Sending message to topic[{name}] is forbidden.", code=ResponseCode.NO_PERMISSION
        )


def refuse_system(name: str) -> None:
    """Raise RequestRefused (INVALID_PARAMETER) for a topic of the system."""
    if is_system(name):
        raise _invalid(f"The topic[{name}] is conflict with system topic.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTopics:
    """The topics that a broker has from its start; a stored topic of the name counts instead."""

    cluster_name: str
    broker_name: str
    queue_count: int = 8
    """Of topics that are made by sending, at most."""
    creates_topics: bool = True
    levels: int = 18
    """Delay levels, each of which has a queue."""
    revive_queues: int = 8
    """Of the topic with the check points of POP."""
    _made: dict[str, TopicConfig] = field(default_factory=dict, init=False, repr=False)

    def all(self) -> Mapping[str, TopicConfig]:
        """Return the topics by name."""
        if not self._made:
            self._made.update((topic.name, topic) for topic in self._topics())
        return self._made

    def _topics(self) -> Iterable[TopicConfig]:
        yield _topic("SELF_TEST_TOPIC", 1)
        if self.creates_topics:
            yield _topic(TEMPLATE_TOPIC, self.queue_count, PERM_READ_WRITE | PERM_INHERIT)
        yield _topic("BenchmarkTest", 1024)
        yield _topic(self.cluster_name, 16, PERM_READ_WRITE | PERM_INHERIT)
        yield _topic(self.broker_name, 1, PERM_READ_WRITE | PERM_INHERIT)
        yield _topic("OFFSET_MOVED_EVENT", 1)
        yield _topic(SCHEDULE_TOPIC, self.levels)
        yield _topic(f"{self.cluster_name}_REPLY_TOPIC", 1)
        yield _topic(revive_topic(self.cluster_name), self.revive_queues)
        yield _topic(f"rmq_sys_SYNC_BROKER_MEMBER_{self.broker_name}", 1, PERM_INHERIT)
        yield _topic(HALF_TOPIC, 1)
        yield _topic(NOTE_TOPIC, 1)
        yield _topic(TIMER_TOPIC, 1)


def given_up_topic() -> TopicConfig:
    """Return the topic of half messages that are given up."""
    return _topic(GIVEN_UP_TOPIC, 1)


def light_topic(name: str) -> TopicConfig | None:
    """Return the topic that a light queue is, which exists by its name; None for another name."""
    is_light = name.startswith(LIGHT_PREFIX) and len(LIGHT_PREFIX) < len(name) <= _NAME_SIZE_MAX
    return _topic(name, 1) if is_light and _NAME.fullmatch(name) else None


def retry_topic(group: str, queue_count: int, *, order: bool = False) -> TopicConfig:
    """Return the retry topic of a group."""
    return TopicConfig(RETRY_PREFIX + group, queue_count, queue_count, PERM_READ_WRITE, order=order)


def dead_letter_topic(group: str) -> TopicConfig:
    """Return the topic of the messages that a group has given up."""
    return TopicConfig(DLQ_PREFIX + group, 1, 1, PERM_READ_WRITE)


def made_by_sending(
    name: str,
    find: Callable[[str], TopicConfig | None],
    *,
    template: str,
    queue_count: int,
    is_unit: bool,
    creates_topics: bool,
) -> TopicConfig | None:
    """Return the topic that a message to the unknown topic *name* makes, None when none is made.

    *template* and *queue_count* are those of the request, *find* returns the topic of a name.
    """
    is_retry = name.startswith(RETRY_PREFIX)
    model = find(template)
    inherits = model is not None and bool(model.perm & PERM_INHERIT)
    if template == TEMPLATE_TOPIC and not creates_topics:
        inherits = False
    if model is not None and inherits:
        count = max(min(queue_count, model.write_queue_count), 0)
        perm, filter_type = model.perm & ~PERM_INHERIT, model.filter_type
    elif is_retry:
        count, perm, filter_type = 1, PERM_READ_WRITE, "SINGLE_TAG"
    else:
        return None
    sys_flag = (TOPIC_UNIT_SUB if is_retry else TOPIC_UNIT) if is_unit else 0
    return TopicConfig(name, count, count, perm, filter_type, sys_flag)


# -- attributes

_VALUES: Mapping[str, tuple[Iterable[str] | None, bool]] = {
    # Key: values, None for any integer; whether it may be changed.
    "queue.type": (("SimpleCQ", "BatchCQ"), False),
    "cleanup.policy": (("DELETE",), False),
    "message.type": (
        ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "MIXED"),
        True,
    ),
    "reserve.time": (None, True),
}


def parse_attributes(text: str) -> dict[str, str]:
    """Return the changes of "+key=value,-key" by key with its sign. Raises RequestRefused."""
    changes: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, separator, value = part.partition("=")
        is_malformed = not key[1:] or "+" in key[1:] or "-" in key[1:]
        if is_malformed or (key[0] == "+") != bool(separator) or key in changes:
            raise _refused("kv string format wrong.")
        changes[key] = value
    return changes


def alter_attributes(
    current: Mapping[str, str], changes: Mapping[str, str], *, is_new: bool
) -> dict[str, str]:
    """Return the attributes after *changes*, whose keys have a sign. Raises RequestRefused."""
    altered = dict(current)
    seen: set[str] = set()
    for signed, value in changes.items():
        sign, key = signed[:1], signed[1:]
        if sign not in ("+", "-") or not key:
            raise _refused(f"wrong format key: {signed}")
        if is_new and sign == "-":
            raise _refused(f"only add attribute is supported while creating topic. key: {key}")
        if key in seen:
            raise _refused(f"alter duplication key. key: {key}")
        seen.add(key)

        if key not in _VALUES:
            raise _refused(f"unsupported key: {key}")
        values, is_changeable = _VALUES[key]
        if not is_new and not is_changeable:
            raise _refused(f"attempt to update an unchangeable attribute. key: {key}")
        if sign == "-":
            if key not in altered:
                raise _refused(f"attempt to delete a nonexistent key: {key}")
            del altered[key]
            continue
        _check_value(key, value, values)
        altered[key] = value
    return altered


def _check_value(key: str, value: str, values: Iterable[str] | None) -> None:
    if key == "message.type" and value == "MIXED":
        raise _invalid("MIXED message type is not supported.")
    if values is None:
        if not re.fullmatch("-?[0-9]{1,18}", value):
            raise _refused(f"value {value} of attribute {key} is not an integer")
    elif value not in values:
        raise _refused(f"value {value} of attribute {key} is not one of {', '.join(values)}")


def with_attributes(
    topic: TopicConfig, known: TopicConfig | None, changes: Mapping[str, str]
) -> TopicConfig:
    """Return *topic* with the attributes of the *known* one of its name after *changes*."""
    current = {} if known is None else known.attributes
    return replace(topic, attributes=alter_attributes(current, changes, is_new=known is None))


def _topic(name: str, queue_count: int, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(name, queue_count, queue_count, perm)


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.SYSTEM_ERROR)


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.INVALID_PARAMETER)
