"""The put path of a broker: a message, or a batch, of a producer is checked and stored.

The checks are made in RocketMQ's order.
"""

from __future__ import annotations

import random
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple, cast

from rmqstore._native.core import Receipt
from rmqstore.broker.metadata.shared import Wait
from rmqstore.broker.metadata.topics import check_name, refuse_sending
from rmqstore.broker.operations.core import Core, ViewOf, refuse_other_than_master
from rmqstore.broker.operations.light_queues import LightQueues
from rmqstore.broker.operations.message_rules import (
    CRC,
    INNER,
    LATER,
    LIGHT_QUEUES,
    checked_batch,
    durability_of,
    illegal,
    prepared,
    refuse_kind_in_batch,
    refuse_kind_of_topic,
    stored_flag,
    taken_as_single,
    taken_priority,
)
from rmqstore.broker.operations.records import packed_host, property_text
from rmqstore.broker.operations.timer_deletions import (
    RecallHandle,
    TimerTargets,
    Wheel,
    too_late,
)
from rmqstore.broker.operations.timer_rules import DELETES, DELIVER_MS, OUT_MS, TIMED
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.errors import PutError, RequestRefused, StoreClosedError
from rmqstore.message import Durability, PutStatus, SysFlag, unique_key
from rmqstore.net.addresses import Address
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import DELAY
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import RETRY_PREFIX, TIMER_TOPIC

__all__ = ["REGION", "ClientMessage", "SendOperation", "Sent"]

REGION = "DefaultRegion"
"""The region of a broker, which RocketMQ's trace of messages names."""
_STORED = frozenset(
    {
        PutStatus.FLUSH_DISK_TIMEOUT,
        PutStatus.FLUSH_SLAVE_TIMEOUT,
        PutStatus.SLAVE_NOT_AVAILABLE,
    }
)
"""Failures of puts whose message is stored, or may be."""


@dataclass(slots=True, kw_only=True)
class ClientMessage:
    """A message of a producer, or a batch of its messages. The operation changes nothing of it; it
    is not frozen, because that triples the time to make one, and each put makes one."""

    group: str = ""
    """The producer group, which half messages need."""
    topic: str
    body: bytes
    """Of a batch, its messages one after the other, as clients encode them."""
    properties: Mapping[str, str]
    queue: int
    """Below 0: the broker chooses the queue."""
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: Address
    reconsume_times: int = 0
    retries_max: int | None = None
    """How often a consumer may try the message; None: as its group is configured."""
    is_batch: bool = False
    default_topic: str
    """The topic whose queues a topic gets that this message makes."""
    default_topic_queues: int
    is_unit: bool = False


class Sent(NamedTuple):
    """A message, or a batch, that is in the log. A NamedTuple, because it is made for each put."""

    receipts: Receipt | list[Receipt] | None
    """One for each message of a batch that is not one record; None where they are not known."""
    key: str | None
    """The unique key of the message, or of the batch."""
    is_inner: bool = False
    """Whether a batch is stored as one record."""
    status: PutStatus = PutStatus.PUT_OK
    """Any other than PUT_OK: a failure may lose the message."""
    reason: str = ""
    """Why the status is not PUT_OK."""
    queue: int | None = None
    """The queue of a message that is delivered later; None: that of the receipt."""
    handle: str | None = None
    """What a timer message is recalled with."""


_Found = Sent | Coroutine[Any, Any, Sent]


class SendOperation:
    """Stores the messages of producers in the store of a broker."""

    def __init__(self, core: Core, wheel: Wheel | None = None) -> None:
        """*wheel* is that of timer messages, where there is one."""
        self._core = core
        self._view = ViewOf(core)
        self._waiting = WaitingPlaces(core, wheel)
        self._wheel = wheel
        self._targets = TimerTargets(core)
        self._light = LightQueues(core)

    def send(self, message: ClientMessage) -> _Found:
        """Store a message or a batch; return the result, or a coroutine that returns it once the
        message is acknowledged.

        Call and coroutine raise RequestRefused for a message that the broker does not take, and
        PutError for one that the store did not take.
        """
        if DELETES in message.properties and not TIMED.isdisjoint(message.properties):
            return self._send_deletion(message)
        return self._send(message)

    async def _send_deletion(self, message: ClientMessage) -> Sent:
        """Send the deletion of a timer message in the slot of that message."""
        properties = message.properties
        slot_ms = await self._targets.slot_of(properties[DELETES])
        if slot_ms is not None:
            kept = {name: each for name, each in properties.items() if name not in TIMED}
            # A slot of a time begins before it.
            properties = {**kept, DELIVER_MS: str(slot_ms + 1)}
        found = self._send(replace(message, properties=properties))
        sent = found if isinstance(found, Sent) else await found
        if slot_ms is not None and self._wheel is not None and not self._wheel.is_open(slot_ms):
            raise too_late()
        return sent

    def _send(self, message: ClientMessage) -> _Found:
        topic = self._core.metadata.topic(message.topic)
        if topic is None or topic.name.startswith(RETRY_PREFIX):
            return self._send_to_special(message, topic)
        return self._put(message, topic)

    async def _send_to_special(self, message: ClientMessage, topic: TopicConfig | None) -> Sent:
        """Send to a topic that is made by it, or to one of a group's retries."""
        refuse_other_than_master(self._core.role)
        metadata = self._core.metadata
        if topic is None:
            check_name(message.topic)
            refuse_sending(message.topic)
            topic = metadata.topic_for_send(
                message.topic,
                default_topic=message.default_topic,
                queues=message.default_topic_queues,
                is_unit=message.is_unit,
            )
        if topic is None:
            raise RequestRefused(
                f"topic[{message.topic}] not exist, apply first please! The broker makes none from "
                f"{message.default_topic}; make it with updateTopic",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if topic.name.startswith(RETRY_PREFIX):
            name = topic.name.removeprefix(RETRY_PREFIX)
            group = await metadata.group_for(name)
            if group is None:
                raise RequestRefused(
                    f"subscription group not exist, {name}",
                    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                )
            limit = group.retries_max if message.retries_max is None else message.retries_max
            if message.reconsume_times > limit and not message.is_batch:
                topic = await metadata.dead_letter_topic(name)
                properties = {**message.properties, DELAY: "-1"}
                message = replace(message, topic=topic.name, queue=0, properties=properties)
        found = self._put(message, topic)
        return found if isinstance(found, Sent) else await found

    def _put(self, message: ClientMessage, topic: TopicConfig) -> _Found:
        refuse_sending(topic.name)
        self._refuse_unwritable(message, topic)
        properties = dict(message.properties)
        priority = None if message.is_batch else taken_priority(properties)
        queue = _queue_of(message, topic, priority)
        wait = self._core.metadata.wait_of(topic.name, queue)
        began = time.perf_counter()
        try:
            put = self._put_batch if message.is_batch else self._put_one
            found = put(message, topic, queue, properties)
            self._core.traffic.put_took(time.perf_counter() - began)
        except PutError as error:
            return self._unacknowledged(error)
        except StoreClosedError as error:
            raise RequestRefused(str(error), code=ResponseCode.SERVICE_NOT_AVAILABLE) from None
        if wait is None:
            return found
        return self._when_topic_is_kept(found, wait, durability_of(properties))

    # -- Checks.

    def _refuse_unwritable(self, message: ClientMessage, topic: TopicConfig) -> None:
        refuse_other_than_master(self._core.role)
        config = self._core.config
        if config.accepts_sends_from_ms:
            self._refuse_early(config.accepts_sends_from_ms)
        if not config.permission & PERM_WRITE and topic.order:
            raise _forbidden(f"the broker[{config.host}] sending message is forbidden")
        if not topic.perm & PERM_WRITE:
            raise _forbidden(
                f"topic[{topic.name}] has permission {topic.perm}, without {PERM_WRITE} for writing"
            )
        queues = max(topic.read_queue_count, topic.write_queue_count)
        if message.queue >= queues:
            raise RequestRefused(
                f"request queueId[{message.queue}] is illegal, topic[{topic.name}] has {queues} "
                "queues",
                code=ResponseCode.INVALID_PARAMETER,
            )
        refuse_kind_of_topic(topic)

    def _refuse_early(self, from_ms: int) -> None:
        """Refuse a message before the time that startAcceptSendRequestTimeStamp names."""
        if self._core.runtime.wall_ms() < from_ms:
            until = datetime.fromtimestamp(from_ms / 1000).isoformat(" ", "milliseconds")
            raise RequestRefused(
                f"broker unable to service, until {until}", code=ResponseCode.SYSTEM_ERROR
            )

    # -- One message.

    def _put_one(
        self, message: ClientMessage, topic: TopicConfig, queue: int, properties: dict[str, str]
    ) -> _Found:
        is_half = taken_as_single(message.sys_flag, properties, message.reconsume_times)
        light = self._light.admit(properties) if LIGHT_QUEUES in properties else None
        key = properties.get("UNIQ_KEY")
        if key is None:
            key = properties["UNIQ_KEY"] = unique_key()
        name, number = topic.name, queue
        if is_half or not LATER.isdisjoint(properties):
            name, number = self._place_of(message, name, queue, properties, is_half=is_half)
        handle = self._handle_of(topic.name, key, properties) if name == TIMER_TOPIC else None
        put = partial(
            self._view().put,
            name,
            message.body,
            self._text_of(properties),
            queue=number,
            flag=message.flag,
            sys_flag=stored_flag(message.sys_flag, topic),
            born_timestamp=message.born_timestamp_ms,
            born_host=packed_host(message.born_host),
            reconsume_times=message.reconsume_times,
        )
        found = self._core.store.append(put, durability_of(properties))
        if light:
            self._light.made(light)
        if isinstance(found, Receipt):
            return self._acknowledged(found, key, queue=queue, handle=handle)
        return self._when_acknowledged(found, key, queue=queue, handle=handle)

    def _handle_of(self, topic: str, key: str, properties: Mapping[str, str]) -> str | None:
        if topic.startswith(RETRY_PREFIX) or DELETES in properties:
            return None
        due_ms = int(properties[OUT_MS]) + 1
        return str(RecallHandle(topic, self._core.config.name, due_ms, key))

    def _place_of(
        self,
        message: ClientMessage,
        topic: str,
        queue: int,
        properties: dict[str, str],
        *,
        is_half: bool,
    ) -> tuple[str, int]:
        """Returns topic and queue where a half message or a delayed one waits, or its own."""
        if is_half:
            config = self._core.config
            if config.rejects_transactions:
                raise _forbidden(
                    f"the broker[{config.host}] sending transaction message is forbidden"
                )
            if LIGHT_QUEUES in properties:
                raise illegal(
                    f"a half message is in no light queues (property {LIGHT_QUEUES}), which would "
                    "have it before its commit; send it without them"
                )
            # A time counts from the commit on; one that is wrong is refused before.
            self._waiting.place_of(topic, queue, dict(properties))
            return prepared(topic, queue, properties, message.group)
        return self._waiting.place_of(topic, queue, properties) or (topic, queue)

    def _text_of(self, properties: dict[str, str]) -> bytes:
        """Returns the text of the properties with those of the broker."""
        properties["MSG_REGION"] = REGION
        properties["TRACE_ON"] = "true"
        properties["CLUSTER"] = self._core.config.cluster_name
        return property_text(properties)

    # -- A batch.

    def _put_batch(
        self, message: ClientMessage, topic: TopicConfig, queue: int, properties: dict[str, str]
    ) -> _Found:
        count = checked_batch(topic.name, message.body, message.sys_flag)
        refuse_kind_in_batch(properties)

        key = properties.get("UNIQ_KEY")
        envelope: dict[str, Any] = {
            "queue": queue,
            "sys_flag": stored_flag(message.sys_flag, topic),
            "born_timestamp": message.born_timestamp_ms,
            "born_host": packed_host(message.born_host),
            "reconsume_times": message.reconsume_times,
        }
        view, durability = self._view(), durability_of(properties)
        if key is not None and view.takes_batches(topic.name, queue):
            properties.pop(CRC, None)
            properties[INNER] = str(count)
            envelope["sys_flag"] |= SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
            text = self._text_of(properties)
            one = partial(view.put, topic.name, message.body, text, flag=message.flag, **envelope)
            found = self._core.store.append(one, durability)
            if isinstance(found, Receipt):
                return self._acknowledged(found, key, is_inner=True)
            return self._when_acknowledged(found, key, is_inner=True)

        own = self._text_of({})
        many = partial(view.put_batch, topic.name, message.body, count, appended=own, **envelope)
        several = self._core.store.append(many, durability)
        if isinstance(several, list):
            return self._acknowledged(several, key)
        return self._when_acknowledged(several, key)

    # -- Results.

    async def _when_topic_is_kept(
        self, found: _Found, wait: Wait, durability: Durability | None
    ) -> Sent:
        """Returns the result of a put, which is a success only if the topic survives with it."""
        sent = found if isinstance(found, Sent) else await found
        if sent.status is not PutStatus.PUT_OK:
            return sent
        with_members = durability is None
        status, reason = await self._core.metadata.kept(wait, with_members=with_members)
        if status is PutStatus.PUT_OK:
            return sent
        return sent._replace(
            status=status,
            reason=f"the message is stored, but a fail-over may lose its topic {wait.topic}, which "
            f"was made or changed just now: {reason}; send the message again",
        )

    async def _when_acknowledged(
        self,
        acknowledged: Coroutine[Any, Any, Receipt | list[Receipt]],
        key: str | None,
        *,
        is_inner: bool = False,
        queue: int | None = None,
        handle: str | None = None,
    ) -> Sent:
        try:
            return self._acknowledged(
                await acknowledged, key, is_inner=is_inner, queue=queue, handle=handle
            )
        except PutError as error:
            return self._unacknowledged(error, key, is_inner=is_inner, queue=queue, handle=handle)
        except StoreClosedError as error:
            raise RequestRefused(str(error), code=ResponseCode.SERVICE_NOT_AVAILABLE) from None

    def _acknowledged(
        self,
        receipts: Receipt | list[Receipt],
        key: str | None,
        *,
        is_inner: bool = False,
        queue: int | None = None,
        handle: str | None = None,
    ) -> Sent:
        self._count(receipts)
        return Sent(receipts, key, is_inner, queue=queue, handle=handle)

    def _unacknowledged(
        self,
        error: PutError,
        key: str | None = None,
        *,
        is_inner: bool = False,
        queue: int | None = None,
        handle: str | None = None,
    ) -> Sent:
        """Returns the result of a put that failed once its message was stored. Raises any other
        *error*."""
        if error.status not in _STORED:
            self._core.traffic.refused()
            raise error
        receipts = cast("Receipt | list[Receipt] | None", error.receipt) or None
        if receipts is not None:
            self._count(receipts)
        return Sent(receipts, key, is_inner, PutStatus(error.status), str(error), queue, handle)

    def _count(self, receipts: Receipt | list[Receipt]) -> None:
        if isinstance(receipts, list):
            size_bytes = sum(each.size for each in receipts)
            self._core.traffic.stored(receipts[0].topic, len(receipts), size_bytes)
        else:
            self._core.traffic.stored(receipts.topic, 1, receipts.size)


def _queue_of(message: ClientMessage, topic: TopicConfig, priority: int | None) -> int:
    """Returns the queue of a message: that of its priority, the one that it names, or any."""
    queues = max(topic.write_queue_count, 1)
    if priority is not None:
        return min(priority, queues - 1)
    return message.queue if message.queue >= 0 else random.randrange(queues)


def _forbidden(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.NO_PERMISSION)
