"""Messages that a consumer failed on: its group gets them again later, or as dead letters."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

from rmqstore._native.core import Receipt, Record
from rmqstore.broker.operations.core import Core, ViewOf, refuse_other_than_master
from rmqstore.broker.operations.lookups import LookupOperations
from rmqstore.broker.operations.message_rules import (
    DELAY_ORIGIN,
    illegal,
    scheduled,
)
from rmqstore.broker.operations.records import copied
from rmqstore.broker.operations.timer_rules import TIMED, TIMER_ORIGIN
from rmqstore.errors import PutError, RequestRefused
from rmqstore.message import PutStatus, SysFlag
from rmqstore.permissions import PERM_WRITE
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import DELAY, REAL_QUEUE, REAL_TOPIC
from rmqstore.store.metadata import GroupConfig, TopicConfig
from rmqstore.topic_names import RETRY_PREFIX

__all__ = ["SendBack", "SendBackOperation"]

_FIRST_LEVEL = 3
"""Delay level of the first retry, where the consumer names none; each further one is longer."""
_RETRY_TOPIC, _FIRST_ID = "RETRY_TOPIC", "ORIGIN_MESSAGE_ID"
"""Properties of a retry: topic and id of the message as its producer sent it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBack:
    """A message that a group consumes again."""

    group: str
    physical_offset: int
    """Where it is in the log."""
    level: int
    """Delay level; 0: the broker chooses it, below 0: the group gives the message up."""
    retries_max: int | None = None
    """How often the group tries a message; None: as the group is configured."""


class SendBackOperation:
    """Stores retries and dead letters of groups."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)
        self._lookups = LookupOperations(core)

    async def send_back(self, back: SendBack) -> None:
        """Return once the retry is as durable as a message of a producer: the consumer then forgets
        the message.

        A group without retry queues loses the message, as its operator configured. Raises
        RequestRefused, and PutError where the retry is not stored, or may be lost.
        """
        core = self._core
        refuse_other_than_master(core.role)
        group = core.metadata.group(back.group)
        if group is None:
            raise RequestRefused(
                f"subscription group not exist, {back.group}; a consumer makes its group, or make "
                "it with updateSubGroup",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        if not core.config.permission & PERM_WRITE:
            raise _forbidden(f"the broker[{core.config.host}] sending message is forbidden")
        if group.retry_queue_count <= 0:
            return

        record = self._record_at(back.physical_offset)
        topic = await self._topic_for(back, group, record)
        if not topic.perm & PERM_WRITE:
            raise _forbidden(f"the topic[{topic.name}] sending message is forbidden")
        await self._put(back, record, topic, is_dead=self._is_dead(back, group, record))

    def _record_at(self, physical_offset: int) -> Record:
        try:
            record = self._lookups.message_at(physical_offset)
        except RequestRefused:
            raise RequestRefused(
                f"look message by offset failed, {physical_offset}", code=ResponseCode.SYSTEM_ERROR
            ) from None
        if record.sys_flag & SysFlag.INNER_BATCH:
            raise illegal(
                f"the record at {physical_offset} is a batch, of which one message cannot be "
                "consumed again; consume it until it succeeds"
            )
        return record

    def _is_dead(self, back: SendBack, group: GroupConfig, record: Record) -> bool:
        limit = group.retries_max if back.retries_max is None else back.retries_max
        return back.level < 0 or record.reconsume_times >= limit

    async def _topic_for(self, back: SendBack, group: GroupConfig, record: Record) -> TopicConfig:
        metadata = self._core.metadata
        if self._is_dead(back, group, record):
            return await metadata.dead_letter_topic(back.group)
        # One that is there keeps its order, which the subscriptions of the group decide.
        known = metadata.topic(RETRY_PREFIX + back.group)
        return known or await metadata.retry_topic(back.group)

    async def _put(
        self, back: SendBack, record: Record, topic: TopicConfig, *, is_dead: bool
    ) -> None:
        core, properties = self._core, record.properties
        for name in (DELAY_ORIGIN, TIMER_ORIGIN, REAL_TOPIC, REAL_QUEUE, *TIMED):
            properties.pop(name, None)
        properties.setdefault(_RETRY_TOPIC, record.topic)
        properties.setdefault(_FIRST_ID, record.message_id)
        properties["WAIT"] = "false"

        queue = 0 if is_dead else random.randrange(max(topic.write_queue_count, 1))
        wait = core.metadata.wait_of(topic.name, queue)
        level = 0 if is_dead else back.level or _FIRST_LEVEL + record.reconsume_times
        properties[DELAY] = str(level)
        levels = len(core.config.store.delay_levels_ms)
        place = scheduled(topic.name, queue, properties, levels) or (topic.name, queue)

        times = record.reconsume_times + 1
        put = copied(self._view(), record, *place, properties, reconsume_times=times)
        found: Receipt | Coroutine[Any, Any, Receipt] = core.store.append(put)
        receipt = await found if isinstance(found, Coroutine) else found
        core.traffic.stored(receipt.topic, 1, receipt.size)
        origin = properties[_RETRY_TOPIC]
        core.traffic.statistics.put_back(origin, back.group, is_dead=is_dead)
        if wait is None:
            return
        status, reason = await core.metadata.kept(wait, with_members=True)
        if status is not PutStatus.PUT_OK:
            raise PutError(f"a fail-over may lose the topic {topic.name}: {reason}", status=status)


def _forbidden(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.NO_PERMISSION)
