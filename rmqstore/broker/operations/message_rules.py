"""The rules for the messages of producers: which are stored, and what their properties mean.

A message whose property asks for a service that this broker does not have is refused, and never
stored as an ordinary one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from rmqstore.broker.metadata.topics import light_topic
from rmqstore.broker.operations.timer_rules import TIMED, TIMER_ORIGIN
from rmqstore.errors import RemotingFrameError, RequestRefused
from rmqstore.message import Durability, SysFlag, decode_properties
from rmqstore.remoting.bodies.batch import batch_properties
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import DELAY, REAL_QUEUE, REAL_TOPIC, schedule
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import HALF_TOPIC, LIGHT_PREFIX, RETRY_PREFIX

__all__ = [
    "CRC",
    "DELAY_ORIGIN",
    "INNER",
    "LATER",
    "LIGHT_QUEUES",
    "checked_batch",
    "durability_of",
    "illegal",
    "light_queues_of",
    "ordinary_flag",
    "prepared",
    "refuse_kind_of_topic",
    "refuse_kind_in_batch",
    "scheduled",
    "stored_flag",
    "taken_as_single",
    "taken_priority",
]

_BATCH_MESSAGES_MAX = 16_384
"""Messages of one batch: the answer names the id of each, in a header of at most 1 MiB."""
_TOPIC_SIZE_MAX = 127
_ORDINARY_FLAGS = ~int(
    SysFlag.TRANSACTION_MASK
    | SysFlag.BORN_HOST_V6
    | SysFlag.STORE_HOST_V6
    | SysFlag.NEED_UNWRAP
    | SysFlag.INNER_BATCH
)
_INNER_FLAGS = int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP)
_TRANSACTION_FLAGS = int(SysFlag.TRANSACTION_MASK)
_MULTI_TAGS = int(SysFlag.MULTI_TAGS)
DELAY_ORIGIN = "DELAY_ORIGIN"
"""Property of a delivered message: "LEVEL-OFFSET", its place in SCHEDULE_TOPIC_XXXX. It is an
addition of this library."""
_LEVEL = re.compile(r"[+-]?[0-9]{1,9}")
_HALF = "TRAN_MSG"
"""Property of a half message, and of its records."""
_HALF_RECORD = (
    "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET",
    "HALF_ORIGIN",
)
"""Properties that the broker writes to half messages, which a message that is forwarded has too."""
_OTHER_SERVICES = {
    "__LITE_TOPIC": "light",
}
"""Properties of messages for services that this broker does not have, and the kind of message."""
INNER = "INNER_NUM"
"""Property with the number of messages in a batch that is one record."""
CRC = "__CRC32#"
"""Property that the store makes."""
LIGHT_QUEUES = "INNER_MULTI_DISPATCH"
"""Property with the names of the light queues that a message is in, too, with commas between."""
_LIGHT_OFFSETS = "INNER_MULTI_QUEUE_OFFSET"
_POP_CHECK = "POP_CK"
_PRIORITY = "_SYS_MSG_PRIORITY_"
_PRIORITY_MAX = 2**31 - 1
_NUMBER = re.compile("[0-9]{1,10}")
_ORDERED = "__SHARDINGKEY"
LATER = frozenset({DELAY, *TIMED})
"""Properties of messages that are delivered later."""
_LOOKED_AT = frozenset(
    {*_OTHER_SERVICES, _HALF, INNER, CRC, _POP_CHECK, DELAY_ORIGIN, TIMER_ORIGIN, _LIGHT_OFFSETS}
)
"""Properties that an ordinary message does not have."""
_LOOKED_AT_IN_BATCHES = tuple(
    name.encode() for name in (*_OTHER_SERVICES, _HALF, *LATER, INNER, CRC, LIGHT_QUEUES)
)


def durability_of(properties: Mapping[str, str]) -> Durability | None:
    """Return what a message waits for: MEMORY for one that does not wait, None for the default of
    the store."""
    return Durability.MEMORY if properties.get("WAIT", "").lower() == "false" else None


def stored_flag(sys_flag: int, topic: TopicConfig) -> int:
    """Return the sysFlag of a record from that of a message."""
    flag = ordinary_flag(sys_flag)
    return flag | _MULTI_TAGS if topic.filter_type == "MULTI_TAG" else flag


def ordinary_flag(sys_flag: int) -> int:
    """Return the part of a sysFlag that says nothing of hosts, transactions and batches."""
    return sys_flag & _ORDINARY_FLAGS


def scheduled(
    topic: str, queue: int, properties: dict[str, str], levels: int
) -> tuple[str, int] | None:
    """Return the topic and the queue where a message waits for its time, whose *properties* then
    say where it belongs; None for one that is not delayed. *levels* is the largest delay level.
    Raises RequestRefused (MESSAGE_ILLEGAL).
    """
    text = properties.get(DELAY)
    if text is None:
        return None
    if not _LEVEL.fullmatch(text):
        raise illegal(f"property {DELAY} is {text[:20]!r}; give a delay level, 1 to {levels}")
    level = int(text)
    return schedule(properties, topic, queue, level, level_max=levels) if level > 0 else None


def taken_priority(properties: dict[str, str]) -> int | None:
    """Return the priority of a message, None without one. A delayed or an ordered message has none;
    as in RocketMQ 5.5.0 the property is removed from it."""
    text = properties.get(_PRIORITY)
    if text is None or not _NUMBER.fullmatch(text) or int(text) > _PRIORITY_MAX:
        return None
    if _ORDERED in properties or DELAY in properties:
        del properties[_PRIORITY]
        return None
    return int(text)


def refuse_kind_of_topic(topic: TopicConfig) -> None:
    """Raise RequestRefused (MESSAGE_ILLEGAL) for a compacted topic."""
    if topic.attributes.get("cleanup.policy") == "COMPACTION":
        raise _not_served("compacted", "cleanup.policy of the topic")


def taken_as_single(sys_flag: int, properties: dict[str, str], reconsume_times: int) -> bool:
    """Check a message that is not a batch, and remove properties that are not stored; return
    whether it is a half message. Raises RequestRefused (MESSAGE_ILLEGAL)."""
    is_half = False
    if sys_flag & _TRANSACTION_FLAGS or not _LOOKED_AT.isdisjoint(properties):
        _refuse_services(properties)
        properties.pop(CRC, None)
        properties.pop(_POP_CHECK, None)
        properties.pop(DELAY_ORIGIN, None)
        properties.pop(_LIGHT_OFFSETS, None)
        properties.pop(TIMER_ORIGIN, None)
        is_half = _is_half(sys_flag, properties, reconsume_times)
    if sys_flag & _INNER_FLAGS or INNER in properties:
        raise illegal("an inner batch is sent with SEND_BATCH_MESSAGE (320), not by itself")
    return is_half


def _is_half(sys_flag: int, properties: Mapping[str, str], reconsume_times: int) -> bool:
    """Returns whether a message is a half message, by its property or its flag. One that a consumer
    sends again with a delay was committed before, as in RocketMQ."""
    kind = sys_flag & _TRANSACTION_FLAGS
    if kind not in (0, SysFlag.TRANSACTION_PREPARED):
        raise illegal(
            f"sysFlag {sys_flag:#x} ends a transaction; send END_TRANSACTION (37) for that"
        )
    if reconsume_times > 0 and properties.get(DELAY, "0") != "0":
        return False
    return kind != 0 or _has_half_property(properties)


def _has_half_property(properties: Mapping[str, str]) -> bool:
    return properties.get(_HALF, "").lower() == "true"


def prepared(topic: str, queue: int, properties: dict[str, str], group: str) -> tuple[str, int]:
    """Return topic and queue where a half message waits for the end of its transaction, whose
    *properties* then say where it belongs; *group* is that of its producer. A delay counts from the
    commit on."""
    for name in _HALF_RECORD:
        properties.pop(name, None)
    properties.setdefault("PGROUP", group)
    properties[_HALF] = "true"
    properties["__transactionId__"] = properties["UNIQ_KEY"]
    properties[REAL_TOPIC], properties[REAL_QUEUE] = topic, str(queue)
    return HALF_TOPIC, 0


def checked_batch(topic: str, body: bytes, sys_flag: int) -> int:
    """Return the number of messages of a batch that may be stored. Raises RequestRefused
    (MESSAGE_ILLEGAL)."""
    if sys_flag & _TRANSACTION_FLAGS:
        raise _half_in_batch("sysFlag")
    if len(topic) > _TOPIC_SIZE_MAX:
        raise illegal(f"message topic length too long {len(topic)}")
    if topic.startswith(RETRY_PREFIX):
        raise illegal(f"batch request does not support retry group {topic}")

    count = 0
    try:
        for text in batch_properties(body):
            count += 1
            if count > _BATCH_MESSAGES_MAX:
                raise illegal(
                    f"the batch holds more than {_BATCH_MESSAGES_MAX} messages; send smaller ones"
                )
            _refuse_in_batch(text)
    except RemotingFrameError as error:
        raise illegal(str(error)) from None
    if count == 0:
        raise illegal("the batch is empty; send one message at least")
    return count


def _refuse_in_batch(text: bytes) -> None:
    if b"\0" in text:
        raise illegal("properties in the batch hold a 0 byte; leave it out")
    if not any(name in text for name in _LOOKED_AT_IN_BATCHES):
        return
    found = decode_properties(text.decode("utf-8", "replace"))
    refuse_kind_in_batch(found)
    if INNER in found or CRC in found:
        raise illegal(f"properties in the batch hold {INNER} or {CRC}, which the store makes")


def refuse_kind_in_batch(properties: Mapping[str, str]) -> None:
    """Raise RequestRefused (MESSAGE_ILLEGAL) for the properties of a batch, or of a message in it,
    that ask for more than an ordinary message."""
    _refuse_services(properties)
    if _has_half_property(properties):
        raise _half_in_batch(f"property {_HALF}")
    if LIGHT_QUEUES in properties:
        raise illegal(
            f"a batch takes no messages for light queues (property {LIGHT_QUEUES}), and none of "
            "its messages was stored; send them one by one"
        )
    for name in LATER & properties.keys():
        if name != DELAY or properties[name] != "0":
            raise illegal(
                f"a batch takes no delayed messages (property {name}), and none of its messages "
                "was stored; send delayed ones one by one"
            )


def light_queues_of(properties: Mapping[str, str]) -> frozenset[str]:
    """Return the names of the light queues that a message is in. Raises RequestRefused
    (MESSAGE_ILLEGAL): a name of another kind would put the message into the queue of an ordinary
    topic, and a name that no topic can have into none."""
    names = frozenset(properties[LIGHT_QUEUES].split(","))
    for name in names:
        if light_topic(name) is None:
            raise illegal(
                f"property {LIGHT_QUEUES} names {name[:40]!r}; the name of a light queue is "
                f"{LIGHT_PREFIX} and at least one of the characters that topics have"
            )
    return names


def _refuse_services(properties: Mapping[str, str]) -> None:
    """Raise RequestRefused (MESSAGE_ILLEGAL) for a property that asks for a missing service."""
    for name, kind in _OTHER_SERVICES.items():
        if name in properties:
            raise _not_served(kind, f"property {name}")


def _half_in_batch(sign: str) -> RequestRefused:
    return illegal(
        f"a batch takes no transactional messages ({sign}), and none of its messages was stored; "
        "send them one by one"
    )


def _not_served(kind: str, sign: str) -> RequestRefused:
    return illegal(
        f"{kind} messages ({sign}) are not served by this broker and were not stored; send "
        "ordinary messages"
    )


def illegal(remark: str) -> RequestRefused:
    """Return the refusal of a message as it is."""
    return RequestRefused(remark, code=ResponseCode.MESSAGE_ILLEGAL)
