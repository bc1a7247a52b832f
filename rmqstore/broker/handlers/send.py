"""Sends of clients: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

The checks are made in RocketMQ's order, and the answer's code is that of the put's status. A
message whose property asks for a service that this broker does not have is refused, and never
stored as an ordinary one.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, cast

from rmqstore._native.core import Receipt
from rmqstore.broker.context import Context
from rmqstore.broker.metadata.shared import Wait
from rmqstore.broker.metadata.topics import RETRY_PREFIX, check_name, refuse_sending
from rmqstore.broker.serving import ViewOf, packed_host
from rmqstore.errors import PutError, RemotingFrameError, RequestRefused, StoreClosedError
from rmqstore.message import Durability, PutStatus, SysFlag, decode_properties, unique_key
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.bodies.batch import batch_properties
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import (
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler
from rmqstore.store.metadata import GroupConfig, TopicConfig

__all__ = ["SendRequests"]

_REGION = "DefaultRegion"
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
_OTHER_SERVICES = {
    "DELAY": "delayed",
    "TIMER_DELIVER_MS": "timer",
    "TIMER_DELAY_SEC": "timer",
    "TIMER_DELAY_MS": "timer",
    "TIMER_DEL_UNIQKEY": "timer",
    "TRAN_MSG": "transactional",
    "REPLY_TO_CLIENT": "request and reply",
    "__LITE_TOPIC": "light",
}
"""Properties of messages for services that this broker does not have, and the kind of message."""
_INNER = "INNER_NUM"
_CRC = "__CRC32#"
_PRIORITY = "_SYS_MSG_PRIORITY_"
_PRIORITY_MAX = 2**31 - 1
_NUMBER = re.compile("[0-9]{1,10}")
_ORDERED = "__SHARDINGKEY"
_LOOKED_AT = frozenset({*_OTHER_SERVICES, _INNER, _CRC, "POP_CK"})
"""Properties that an ordinary message does not have."""
_LOOKED_AT_IN_BATCHES = tuple(name.encode() for name in (*_OTHER_SERVICES, _INNER, _CRC))
_CODES: Mapping[str, ResponseCode] = {
    PutStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutStatus.OS_PAGE_CACHE_BUSY: ResponseCode.SYSTEM_BUSY,
}
_STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)
_NOT_ENOUGH = "in-sync replicas not enough"

_Header = SendMessageRequestHeader | SendMessageRequestHeaderV2
_Send = Call[_Header, bytes]
_Found = Frame | Coroutine[Any, Any, Frame]


class SendRequests:
    """The handlers of sends."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._view = ViewOf(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.SEND_MESSAGE: self._send_long,
            RequestCode.SEND_MESSAGE_V2: self._send_short,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
        }

    def _send_long(self, call: Call[SendMessageRequestHeader, bytes]) -> _Found:
        return self._send(call, is_batch=bool(call.header.is_batch))

    def _send_short(self, call: Call[SendMessageRequestHeaderV2, bytes]) -> _Found:
        return self._send(call, is_batch=bool(call.header.is_batch))

    def _send_batch(self, call: Call[SendMessageRequestHeaderV2, bytes]) -> _Found:
        return self._send(call, is_batch=True)

    def _send(self, call: _Send, *, is_batch: bool) -> _Found:
        topic = self._context.metadata.topic(call.header.topic)
        if topic is None or topic.name.startswith(RETRY_PREFIX):
            return self._send_to_special(call, topic, is_batch=is_batch)
        return self._put(call, topic, is_batch=is_batch)

    async def _send_to_special(
        self, call: _Send, topic: TopicConfig | None, *, is_batch: bool
    ) -> Frame:
        """Send to a topic that is made by it, or to one of a group's retries."""
        header = call.header
        self._refuse_other_than_master()
        if topic is None:
            check_name(header.topic)
            refuse_sending(header.topic)
            topic = self._context.metadata.topic_for_send(
                header.topic,
                default_topic=header.default_topic,
                queues=header.default_topic_queues,
                is_unit=bool(header.unit_mode),
            )
        if topic is None:
            raise RequestRefused(
                f"topic[{header.topic}] not exist, apply first please! The broker makes none from "
                f"{header.default_topic}; make it with updateTopic",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if topic.name.startswith(RETRY_PREFIX):
            name = topic.name.removeprefix(RETRY_PREFIX)
            group = await self._context.metadata.group_for(name)
            if group is None:
                raise RequestRefused(
                    f"subscription group not exist, {name}",
                    code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                )
            _refuse_dead_letter(header, group)
        found = self._put(call, topic, is_batch=is_batch)
        return found if isinstance(found, Frame) else await found

    def _put(self, call: _Send, topic: TopicConfig, *, is_batch: bool) -> _Found:
        request, header = call.request, call.header
        refuse_sending(topic.name)
        self._refuse_unwritable(header, topic)
        properties = decode_properties(header.properties or "")
        priority = None if is_batch else _taken_priority(properties)
        queue = _queue_of(header, topic, priority)
        wait = self._context.metadata.wait_of(topic.name, queue)
        began = time.perf_counter()
        try:
            put = self._put_batch if is_batch else self._put_one
            found = put(call, topic, queue, properties)
            self._context.traffic.put_took(time.perf_counter() - began)
        except PutError as error:
            return self._failure(request, error)
        except StoreClosedError as error:
            raise RequestRefused(str(error), code=ResponseCode.SERVICE_NOT_AVAILABLE) from None
        if wait is None:
            return found
        return self._when_topic_is_kept(request, found, wait, _durability(properties))

    # -- Checks.

    def _refuse_other_than_master(self) -> None:
        role = self._context.role
        if role.waits_for:
            raise RequestRefused(
                f"this broker takes no messages: {role.waits_for}",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
            )
        if role.name != "master":
            raise RequestRefused(
                f"this broker is a {role.name}; the master is "
                f"{role.master_address or 'not known here'}: get the route again",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
            )

    def _refuse_unwritable(self, header: _Header, topic: TopicConfig) -> None:
        self._refuse_other_than_master()
        host = self._context.config.host
        if not self._context.config.permission & PERM_WRITE and topic.order:
            raise _forbidden(f"the broker[{host}] sending message is forbidden")
        if not topic.perm & PERM_WRITE:
            raise _forbidden(
                f"topic[{topic.name}] has permission {topic.perm}, without {PERM_WRITE} for writing"
            )
        queues = max(topic.read_queue_count, topic.write_queue_count)
        if header.queue_id >= queues:
            raise RequestRefused(
                f"request queueId[{header.queue_id}] is illegal, topic[{topic.name}] has {queues} "
                "queues",
                code=ResponseCode.INVALID_PARAMETER,
            )
        if header.sys_flag & SysFlag.TRANSACTION_MASK:
            raise _not_served("transactional", "sysFlag")
        if topic.attributes.get("cleanup.policy") == "COMPACTION":
            raise _not_served("compacted", "cleanup.policy of the topic")

    # -- One message.

    def _put_one(
        self, call: _Send, topic: TopicConfig, queue: int, properties: dict[str, str]
    ) -> _Found:
        request, header = call.request, call.header
        if not _LOOKED_AT.isdisjoint(properties):
            _refuse_properties(properties)
            properties.pop(_CRC, None)
            properties.pop("POP_CK", None)
        if header.sys_flag & (SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP) or _INNER in properties:
            raise _illegal("an inner batch is sent with SEND_BATCH_MESSAGE (320), not by itself")

        key = properties.get("UNIQ_KEY")
        if key is None:
            key = properties["UNIQ_KEY"] = unique_key()
        put = partial(
            self._view().put,
            topic.name,
            request.body,
            self._text_of(properties),
            queue=queue,
            flag=header.flag,
            sys_flag=_sys_flag(header, topic),
            born_timestamp=header.born_timestamp_ms,
            born_host=packed_host(call.peer.proxied_peer or call.peer.peer),
            reconsume_times=header.reconsume_times or 0,
        )
        found = self._context.store.append(put, _durability(properties))
        if isinstance(found, Receipt):
            return self._success(request, found, key)
        return self._when_acknowledged(request, found, key)

    def _text_of(self, properties: dict[str, str]) -> bytes:
        """Returns the text of the properties with those of the broker."""
        properties["MSG_REGION"] = _REGION
        properties["TRACE_ON"] = "true"
        properties["CLUSTER"] = self._context.config.cluster_name
        text = "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])
        if "\0" in text:
            raise _illegal("properties hold a 0 byte, which RocketMQ's files cannot keep apart")
        return text.encode("utf-8", "replace")

    # -- A batch.

    def _put_batch(
        self, call: _Send, topic: TopicConfig, queue: int, properties: dict[str, str]
    ) -> _Found:
        request, header = call.request, call.header
        if len(topic.name) > _TOPIC_SIZE_MAX:
            raise _illegal(f"message topic length too long {len(topic.name)}")
        if topic.name.startswith(RETRY_PREFIX):
            raise _illegal(f"batch request does not support retry group {topic.name}")
        count = _checked_batch(request.body)
        _refuse_properties(properties)

        key = properties.get("UNIQ_KEY")
        envelope: dict[str, Any] = {
            "queue": queue,
            "sys_flag": _sys_flag(header, topic),
            "born_timestamp": header.born_timestamp_ms,
            "born_host": packed_host(call.peer.proxied_peer or call.peer.peer),
            "reconsume_times": header.reconsume_times or 0,
        }
        view, durability = self._view(), _durability(properties)
        if key is not None and view.takes_batches(topic.name, queue):
            properties.pop(_CRC, None)
            properties[_INNER] = str(count)
            envelope["sys_flag"] |= SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
            text = self._text_of(properties)
            one = partial(view.put, topic.name, request.body, text, flag=header.flag, **envelope)
            found = self._context.store.append(one, durability)
            if isinstance(found, Receipt):
                return self._success(request, found, key, is_inner=True)
            return self._when_acknowledged(request, found, key, is_inner=True)

        own = self._text_of({})
        many = partial(view.put_batch, topic.name, request.body, count, appended=own, **envelope)
        several = self._context.store.append(many, durability)
        if isinstance(several, list):
            return self._success(request, several, key)
        return self._when_acknowledged(request, several, key)

    # -- Answers.

    async def _when_topic_is_kept(
        self, request: Frame, found: _Found, wait: Wait, durability: Durability | None
    ) -> Frame:
        """Returns the answer to a put, which is a success only if the topic survives with it."""
        answer = found if isinstance(found, Frame) else await found
        if answer.code != ResponseCode.SUCCESS:
            return answer
        with_members = durability is None
        status, reason = await self._context.metadata.kept(wait, with_members=with_members)
        if status is PutStatus.PUT_OK:
            return answer
        remark = (
            f"the message is stored, but a fail-over may lose its topic {wait.topic}, which was "
            f"made or changed just now: {reason}; send the message again"
        )
        return request.respond(_CODES[status], remark[:500], dict(answer.ext_fields))

    async def _when_acknowledged(
        self,
        request: Frame,
        acknowledged: Coroutine[Any, Any, Receipt | list[Receipt]],
        key: str | None,
        *,
        is_inner: bool = False,
    ) -> Frame:
        try:
            return self._success(request, await acknowledged, key, is_inner=is_inner)
        except PutError as error:
            return self._failure(request, error, key, is_inner=is_inner)
        except StoreClosedError as error:
            raise RequestRefused(str(error), code=ResponseCode.SERVICE_NOT_AVAILABLE) from None

    def _success(
        self,
        request: Frame,
        receipts: Receipt | list[Receipt],
        key: str | None,
        *,
        is_inner: bool = False,
    ) -> Frame:
        self._count(receipts)
        return request.respond(
            ResponseCode.SUCCESS, fields=_fields(receipts, key, is_inner=is_inner)
        )

    def _count(self, receipts: Receipt | list[Receipt]) -> None:
        if isinstance(receipts, list):
            size_bytes = sum(each.size for each in receipts)
            self._context.traffic.stored(receipts[0].topic, len(receipts), size_bytes)
        else:
            self._context.traffic.stored(receipts.topic, 1, receipts.size)

    def _failure(
        self, request: Frame, error: PutError, key: str | None = None, *, is_inner: bool = False
    ) -> Frame:
        """The answer to a put that was not acknowledged; it names a message that was stored."""
        code = _CODES.get(error.status, ResponseCode.SYSTEM_ERROR)
        remark = str(error)
        if code not in _STORED:
            self._context.traffic.refused()
        if error.status == PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH:
            remark = f"{_NOT_ENOUGH}: {remark}"
        fields = None
        if code in _STORED:
            receipts = cast("Receipt | list[Receipt] | None", error.receipt)
            if receipts:
                self._count(receipts)
            fields = _fields(receipts, key, is_inner=is_inner)
        return request.respond(code, remark[:500], fields)


def _fields(
    receipts: Receipt | list[Receipt] | None, key: str | None, *, is_inner: bool
) -> dict[str, str]:
    if receipts is None or receipts == []:
        return {"MSG_REGION": _REGION, "TRACE_ON": "true"}
    first = receipts[0] if isinstance(receipts, list) else receipts
    ids = [each.message_id for each in receipts] if isinstance(receipts, list) else None
    return SendMessageResponseHeader(
        message_id=first.message_id if ids is None else ",".join(ids),
        queue_id=first.queue,
        queue_offset=first.queue_offset,
        transaction_id=key,
        batch_unique_id=key if is_inner else None,
        region=_REGION,
        is_traced=True,
    ).to_fields()


def _taken_priority(properties: dict[str, str]) -> int | None:
    """Returns the priority of a message, None without one. A delayed or an ordered message has
    none; as in RocketMQ 5.5.0 the property is removed from it."""
    text = properties.get(_PRIORITY)
    if text is None or not _NUMBER.fullmatch(text) or int(text) > _PRIORITY_MAX:
        return None
    if _ORDERED in properties or "DELAY" in properties:
        del properties[_PRIORITY]
        return None
    return int(text)


def _queue_of(header: _Header, topic: TopicConfig, priority: int | None) -> int:
    """Returns the queue of a message: that of its priority, the one that it names, or any."""
    queues = max(topic.write_queue_count, 1)
    if priority is not None:
        return min(priority, queues - 1)
    return header.queue_id if header.queue_id >= 0 else random.randrange(queues)


def _sys_flag(header: _Header, topic: TopicConfig) -> int:
    flag = header.sys_flag & _ORDINARY_FLAGS
    return flag | SysFlag.MULTI_TAGS if topic.filter_type == "MULTI_TAG" else flag


def _durability(properties: Mapping[str, str]) -> Durability | None:
    return Durability.MEMORY if properties.get("WAIT", "").lower() == "false" else None


def _checked_batch(body: bytes) -> int:
    """Returns the number of messages of a batch that may be stored."""
    count = 0
    try:
        for text in batch_properties(body):
            count += 1
            if count > _BATCH_MESSAGES_MAX:
                raise _illegal(
                    f"the batch holds more than {_BATCH_MESSAGES_MAX} messages; send smaller ones"
                )
            if b"\0" in text:
                raise _illegal("properties in the batch hold a 0 byte; leave it out")
            if any(name in text for name in _LOOKED_AT_IN_BATCHES):
                found = decode_properties(text.decode("utf-8", "replace"))
                _refuse_properties(found)
                if _INNER in found or _CRC in found:
                    raise _illegal(
                        f"properties in the batch hold {_INNER} or {_CRC}, which the store makes"
                    )
    except RemotingFrameError as error:
        raise _illegal(str(error)) from None
    if count == 0:
        raise _illegal("the batch is empty; send one message at least")
    return count


def _refuse_properties(properties: Mapping[str, str]) -> None:
    for name, kind in _OTHER_SERVICES.items():
        value = properties.get(name)
        if value is None or (name == "DELAY" and value == "0"):
            continue
        if name == "TRAN_MSG" and value.lower() != "true":
            continue
        raise _not_served(kind, f"property {name}")


def _refuse_dead_letter(header: _Header, group: GroupConfig) -> None:
    """Refuse a retry that RocketMQ stores with the dead letters of the group: its consumer keeps
    the message."""
    limit = header.max_reconsume_times
    limit = group.retries_max if limit is None else limit
    if (header.reconsume_times or 0) > limit:
        raise _illegal(
            f"the message was consumed {header.reconsume_times} times, the limit is {limit}: dead "
            "letters are not served by this broker, and it was not stored; consume it again"
        )


def _not_served(kind: str, sign: str) -> RequestRefused:
    return _illegal(
        f"{kind} messages ({sign}) are not served by this broker and were not stored; send "
        "ordinary messages"
    )


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.MESSAGE_ILLEGAL)


def _forbidden(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.NO_PERMISSION)
