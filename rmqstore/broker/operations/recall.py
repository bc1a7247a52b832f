"""Recall of timer messages by their producers (370): a deletion is sent in their place."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.broker.operations.core import Core
from rmqstore.broker.operations.send import ClientMessage, SendOperation
from rmqstore.broker.operations.timer_deletions import RecallHandle
from rmqstore.broker.operations.timer_rules import DELETES, DELIVER_MS, UNIQUE_KEY
from rmqstore.errors import RequestRefused
from rmqstore.message import PutStatus
from rmqstore.net.addresses import Address
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.codes import ResponseCode

__all__ = ["Recall", "RecallOperation"]

_TAG = "_RECALL_TAG_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """What a producer asks for."""

    topic: str
    handle: str
    group: str | None
    peer: Address


class RecallOperation:
    """Stores the deletions of recalled messages. A success means that the message is not
    delivered."""

    def __init__(self, core: Core, send: SendOperation) -> None:
        self._core = core
        self._send = send

    async def recall(self, recall: Recall) -> str:
        """Return the unique key of the message that is not delivered. Raises RequestRefused, and
        PutError for a deletion that is not stored."""
        self._refuse(recall)
        handle = RecallHandle.parse(recall.handle)
        if handle is None:
            raise _illegal("recall handle is invalid")
        if handle.topic != recall.topic:
            raise _illegal("recall failed, topic not match")
        if handle.broker != self._core.config.name:
            raise _illegal("recall failed, broker service not available")
        now_ms = self._core.runtime.wall_ms()
        if not 0 < handle.due_ms - now_ms <= self._core.config.timer_delay_max_s * 1000:
            raise _illegal("recall failed, timestamp invalid")

        message = self._deletion(recall, handle, now_ms)
        try:
            found = self._send.send(message)
            sent = await found if not isinstance(found, tuple) else found
        except RequestRefused as error:
            if error.code == ResponseCode.MESSAGE_ILLEGAL:
                raise _illegal(f"recall failed, {error}") from None
            raise
        if sent.status is not PutStatus.PUT_OK:
            raise RequestRefused(
                f"recall failed, a fail-over may lose it: {sent.reason}",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return handle.key

    def _refuse(self, recall: Recall) -> None:
        """Refuses what the broker does not serve at all, in RocketMQ's order."""
        core = self._core
        if not core.config.recalls:
            raise RequestRefused(
                "recall failed, operation is forbidden", code=ResponseCode.NO_PERMISSION
            )
        if not core.role.is_master and not core.role.waits_for:
            raise RequestRefused(
                "recall failed, broker service not available",
                code=ResponseCode.SLAVE_NOT_AVAILABLE,
            )
        if core.role.waits_for or not core.config.permission & PERM_WRITE:
            raise RequestRefused(
                "recall failed, broker service not available",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
            )
        if core.metadata.topic(recall.topic) is None:
            raise RequestRefused(
                f"recall failed, the topic[{recall.topic}] not exist",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )

    def _deletion(self, recall: Recall, handle: RecallHandle, now_ms: int) -> ClientMessage:
        properties = {
            "TAGS": _TAG,
            UNIQUE_KEY: handle.key,
            DELIVER_MS: str(handle.due_ms),
            DELETES: f"{handle.topic}+{handle.key}",
        }
        if recall.group:
            properties["PGROUP"] = recall.group
        return ClientMessage(
            topic=recall.topic,
            body=b"0",
            properties=properties,
            queue=0,
            flag=0,
            sys_flag=0,
            born_timestamp_ms=now_ms,
            born_host=recall.peer,
            default_topic="",
            default_topic_queues=0,
        )


def _illegal(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.ILLEGAL_OPERATION)
