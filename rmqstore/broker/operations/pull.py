"""The reading of a broker: a pull is checked, read, and counted once its result is sent.

A result holds records as they are in the log, copied once. Messages that are no longer in memory,
by RocketMQ's estimate, are read on a thread. A filter by properties looks at some messages at a
time, so that other requests are served between them.
"""

from __future__ import annotations

from collections.abc import Coroutine
from dataclasses import dataclass, replace
from enum import Enum, IntEnum, auto
from typing import Any, NamedTuple

from rmqstore.broker.broadcast_offsets import Reader
from rmqstore.broker.clients import BROADCASTING, ClientTable
from rmqstore.broker.operations.broadcasts import Broadcasts
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.filters import (
    ALL,
    TAG,
    Filter,
    RetrySelector,
    filter_of,
    is_of_tags,
    refuse_unsupported,
)
from rmqstore.broker.operations.queue_reads import (
    BYTES_MAX,
    TURNS_MAX,
    Found,
    QueueReads,
    goes_on,
)
from rmqstore.errors import RequestRefused
from rmqstore.filters import selector_of
from rmqstore.message import GetStatus
from rmqstore.permissions import PERM_READ
from rmqstore.remoting.bodies.clients import SubscriptionData
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, TopicConfig
from rmqstore.topic_names import RETRY_PREFIX

__all__ = [
    "CheckedPull",
    "Forbidding",
    "Outcome",
    "Pull",
    "PullForbidden",
    "PullOperation",
    "PullResult",
]

_MESSAGES_MAX = 512


class Outcome(Enum):
    """What a pull means for its consumer."""

    FOUND = auto()
    NONE = auto()
    """There is no message at the offset yet."""
    RETRY = auto()
    """No message here; the consumer goes on at the next offset."""
    MOVED = auto()
    """The offset is not in the queue; the consumer goes on at the next offset."""
    RESET = auto()
    """The group was reset; the consumer goes on at the next offset, from which it commits."""


_OUTCOMES = {
    GetStatus.FOUND: Outcome.FOUND,
    GetStatus.MESSAGE_WAS_REMOVING: Outcome.RETRY,
    GetStatus.NO_MATCHED_MESSAGE: Outcome.RETRY,
    GetStatus.OFFSET_FOUND_NULL: Outcome.NONE,
    GetStatus.OFFSET_OVERFLOW_ONE: Outcome.NONE,
    GetStatus.OFFSET_OVERFLOW_BADLY: Outcome.MOVED,
    GetStatus.OFFSET_TOO_SMALL: Outcome.MOVED,
}
_EMPTY = (GetStatus.NO_MATCHED_LOGIC_QUEUE, GetStatus.NO_MESSAGE_IN_QUEUE)


@dataclass(slots=True, kw_only=True)
class Pull:
    """A request for the messages of a queue. The operation changes nothing of it; see
    `ClientMessage` why it is not frozen."""

    group: str
    topic: str
    queue: int
    offset: int
    messages_max: int
    bytes_max: int | None = None
    commit_offset: int | None = None
    """The next offset of the group to commit, None for no commit."""
    has_subscription: bool = False
    """Whether the pull has the subscription; otherwise that of the consumer's heartbeat counts."""
    expression_type: str = TAG
    expression: str | None = None
    subscription_version: int = 0
    """The version of the subscription that the consumer has."""
    reader: Reader | None = None
    """The consumer, where it broadcasts."""


@dataclass(slots=True)
class CheckedPull:
    """A pull that may be read."""

    pull: Pull
    topic: TopicConfig
    group: GroupConfig
    filter: Filter
    messages_max: int
    bytes_max: int


class PullResult(NamedTuple):
    """What a pull found. A NamedTuple, because it is made for each read."""

    outcome: Outcome
    is_slow: bool
    """Whether the messages were read from the disk."""
    status: GetStatus
    next_offset: int
    """Where the consumer goes on."""
    min_offset: int
    max_offset: int
    message_count: int
    """Number of *records*."""
    records: bytes
    """Records one after the other, as they are in the log."""


class Forbidding(IntEnum):
    """What forbids a pull; RocketMQ's numbers."""

    BROKER = 1
    GROUP = 2
    TOPIC = 3
    BROADCAST = 4
    SUBSCRIPTION = 5


class PullForbidden(RequestRefused):
    """A pull without a permission; *by* names what forbids it."""

    def __init__(self, remark: str, by: Forbidding) -> None:
        super().__init__(remark, code=ResponseCode.NO_PERMISSION)
        self.by = by


class PullOperation:
    """Reads messages of a broker's store for consumers."""

    def __init__(self, core: Core, clients: ClientTable) -> None:
        self._core = core
        self._clients = clients
        self._view = ViewOf(core)
        self.broadcasts = Broadcasts(core, clients)
        """The consumers that broadcast."""
        self._reads = QueueReads(core)

    # -- Checks.

    def check(self, pull: Pull) -> CheckedPull | Coroutine[Any, Any, CheckedPull]:
        """Return a pull that may be read; for a new group a coroutine that returns it.

        Call and coroutine raise RequestRefused for a pull that the broker does not serve.
        """
        group = self._core.metadata.group(pull.group)
        return self._check_with_new_group(pull) if group is None else self._checked(pull, group)

    async def _check_with_new_group(self, pull: Pull) -> CheckedPull:
        group = await self._core.metadata.group_for(pull.group)
        if group is None:
            raise RequestRefused(
                f"subscription group [{pull.group}] does not exist, and the broker makes none; "
                "make it with updateSubGroup",
                code=ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
            )
        return self._checked(pull, group)

    def _checked(self, pull: Pull, group: GroupConfig) -> CheckedPull:
        config = self._core.config
        if self._is_silent_slave():
            raise RequestRefused(
                "[REJECTREQUEST]this broker is a slave and slaveReadEnable is false; pull from the "
                "master",
                code=ResponseCode.SYSTEM_BUSY,
            )
        if not config.permission & PERM_READ:
            raise PullForbidden(
                f"the broker[{config.host}] pulling message is forbidden", Forbidding.BROKER
            )
        if not group.consume_enabled:
            raise PullForbidden(f"subscription group no permission, {group.name}", Forbidding.GROUP)
        topic = self._core.metadata.topic(pull.topic)
        if topic is None:
            raise RequestRefused(
                f"topic[{pull.topic}] not exist, apply first please!",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if not topic.perm & PERM_READ:
            raise PullForbidden(
                f"the topic[{topic.name}] pulling message is forbidden", Forbidding.TOPIC
            )
        if not 0 <= pull.queue < topic.read_queue_count:
            raise RequestRefused(
                f"queueId[{pull.queue}] is illegal, topic[{topic.name}] has "
                f"{topic.read_queue_count} queues to read",
                code=ResponseCode.INVALID_PARAMETER,
            )
        asked_bytes = pull.bytes_max
        return CheckedPull(
            pull,
            topic,
            group,
            self._filter_of(pull, group),
            min(max(pull.messages_max, 1), _MESSAGES_MAX),
            BYTES_MAX if asked_bytes is None else min(max(asked_bytes, 1), BYTES_MAX),
        )

    def _is_silent_slave(self) -> bool:
        core = self._core
        is_slave = core.role.is_slave
        return is_slave and not (core.config.slave_reads or core.is_shown_as_master)

    def _filter_of(self, pull: Pull, group: GroupConfig) -> Filter:
        """Returns the filter of the subscription."""
        if pull.has_subscription:
            return self._own_filter(pull)

        known = self._clients.consumer_group(pull.group)
        subscription = None if known is None else known.subscriptions.get(pull.topic)
        if known is None or subscription is None:
            raise RequestRefused(
                f"the consumer's subscription not exist: group {pull.group}, topic {pull.topic}; "
                "send a heartbeat",
                code=ResponseCode.SUBSCRIPTION_NOT_EXIST,
            )
        if not group.broadcast_enabled and known.message_model == BROADCASTING:
            raise PullForbidden(
                f"the consumer group[{pull.group}] can not consume by broadcast way",
                Forbidding.BROADCAST,
            )
        if self._core.metadata.is_forbidden(pull.group, pull.topic):
            raise PullForbidden(
                f"the consumer group[{pull.group}] is forbidden for topic[{pull.topic}]",
                Forbidding.SUBSCRIPTION,
            )
        return self._registered_filter(pull, subscription)

    def _own_filter(self, pull: Pull) -> Filter:
        allows_sql = self._core.config.sql_filters
        found = filter_of(pull.expression_type, pull.expression, allows_sql=allows_sql)
        return self._for_retries(pull) if self._is_for_retries(pull, found) else found

    def _registered_filter(self, pull: Pull, subscription: SubscriptionData) -> Filter:
        """Returns the filter of a heartbeat's subscription."""
        allows_sql = self._core.config.sql_filters
        for kind in (subscription.expression_type, pull.expression_type):
            refuse_unsupported(kind, allows_sql=allows_sql)
        if subscription.version < pull.subscription_version:
            # The heartbeat with this version may come 30 s later: a Java client skips one while it
            # sends another. Clients compare tags themselves, because brokers compare hashes; they
            # do not evaluate expressions.
            if is_of_tags(pull.expression_type):
                return ALL
            raise RequestRefused(
                "the consumer's subscription not latest; send a heartbeat",
                code=ResponseCode.SUBSCRIPTION_NOT_LATEST,
            )
        if is_of_tags(subscription.expression_type):
            return filter_of(TAG, subscription.expression, allows_sql=allows_sql)

        data = self._core.metadata.filters.get(pull.topic, pull.group)
        if data is None:
            raise RequestRefused(
                "The broker's consumer filter data is not exist! Your expression may be wrong: "
                f"{subscription.expression[:200]}",
                code=ResponseCode.FILTER_DATA_NOT_EXIST,
            )
        if data.version < pull.subscription_version:
            raise RequestRefused(
                "the consumer's consumer filter data not latest; send a heartbeat",
                code=ResponseCode.FILTER_DATA_NOT_LATEST,
            )
        found = Filter(selector=selector_of(data.expression))
        return self._for_retries(pull) if self._is_for_retries(pull, found) else found

    def _is_for_retries(self, pull: Pull, found: Filter) -> bool:
        is_retry = pull.topic.startswith(RETRY_PREFIX)
        return is_retry and found.selector is not None and self._core.config.sql_filters_of_retries

    def _for_retries(self, pull: Pull) -> Filter:
        """Returns the filter of a retry topic."""
        group = pull.topic.removeprefix(RETRY_PREFIX)
        known = self._core.metadata.filters.of_group(group)
        return Filter(
            selector=RetrySelector({each.topic: selector_of(each.expression) for each in known})
        )

    # -- Reads.

    def first(self, checked: CheckedPull) -> PullResult | Coroutine[Any, Any, PullResult]:
        """Commit the offset of a pull and read it; return the result, or a coroutine that returns
        it where the disk is read. Call and coroutine raise StoreError."""
        pull = checked.pull
        offsets = self._core.metadata.offsets
        if pull.commit_offset is not None and self._core.role.is_master:
            offsets.commit(pull.topic, pull.group, pull.queue, pull.commit_offset)
        reset = offsets.take_reset(pull.topic, pull.group, pull.queue)
        if reset is None and pull.reader is not None:
            reset = self.broadcasts.begun(pull.reader, pull.queue, pull.offset)
        if reset is not None:
            low, high = self._view().bounds(pull.topic, pull.queue) or (0, 0)
            status = GetStatus.OFFSET_RESET
            return PullResult(Outcome.RESET, False, status, reset, low, high, 0, b"")
        if self._reads.is_far_behind(pull.topic, pull.queue, pull.offset):
            return self._read_on_thread(checked)
        result = self.read(checked, pull.offset)
        return self._read_on(checked, result) if _goes_on(checked, result) else result

    def read(self, checked: CheckedPull, offset: int) -> PullResult:
        """Read a pull from *offset*. Raises StoreError."""
        return self._result(checked, self._get(checked, offset))

    def read_again(self, checked: CheckedPull, offset: int) -> PullResult:
        """Read a pull that waited, from *offset*, in the present role. Raises StoreError, and
        RequestRefused (SYSTEM_BUSY) in a role that serves no pulls."""
        if not self._core.role.is_known or self._is_silent_slave():
            raise RequestRefused(
                "[REJECTREQUEST]the role of this broker has changed; get the route again",
                code=ResponseCode.SYSTEM_BUSY,
            )
        return self.read(checked, offset)

    def with_present_filter(self, checked: CheckedPull) -> CheckedPull:
        """Return a pull that waited with the present expression of its group, the same pull where
        that has not changed. Raises RequestRefused as `check`."""
        if checked.filter.selector is None or checked.pull.has_subscription:
            return checked
        present = self._filter_of(checked.pull, checked.group)
        return checked if present == checked.filter else replace(checked, filter=present)

    async def _read_on_thread(self, checked: CheckedPull) -> PullResult:
        offset, runtime = checked.pull.offset, self._core.runtime
        for _ in range(TURNS_MAX):
            found = await runtime.in_thread(self._get, checked, offset)
            result = self._result(checked, found, is_slow=True)
            if not _goes_on(checked, result):
                break
            offset = result.next_offset
        return result

    async def _read_on(self, checked: CheckedPull, result: PullResult) -> PullResult:
        """Reads on where a filter by properties has selected nothing."""
        for _ in range(TURNS_MAX - 1):
            await self._core.runtime.sleep(0)
            result = self.read_again(checked, result.next_offset)
            if not _goes_on(checked, result):
                break
        return result

    def _get(self, checked: CheckedPull, offset: int) -> Found:
        pull = checked.pull
        return self._reads.get(
            pull.topic,
            pull.queue,
            offset,
            checked.messages_max,
            checked.bytes_max,
            checked.filter,
        )

    def _result(self, checked: CheckedPull, found: Found, *, is_slow: bool = False) -> PullResult:
        status = found[0]
        if status is GetStatus.FOUND:
            outcome = Outcome.FOUND
        elif status in _EMPTY:
            outcome = Outcome.MOVED if checked.pull.offset != 0 else Outcome.NONE
        else:
            outcome = _OUTCOMES[status]
            if outcome is Outcome.MOVED and not self._core.is_leading:
                # The master may have more, and the consumer must not lose its place.
                outcome = Outcome.RETRY
        return PullResult(outcome, is_slow, *found)

    def end_of(self, topic: str, queue: int) -> int:
        """Return the end of a queue, 0 for an unknown one."""
        bounds = self._view().bounds(topic, queue)
        return 0 if bounds is None else bounds[1]

    # -- Results.

    def delivered(self, checked: CheckedPull, result: PullResult) -> None:
        """Count a result that is sent to its consumer."""
        if result.outcome is Outcome.RESET:
            return
        pull = checked.pull
        count, size_bytes = result.message_count, len(result.records)
        self._core.traffic.pulled(checked.topic.name, pull.group, count, size_bytes)
        self._core.metadata.offsets.pulled(pull.topic, pull.group, pull.queue, result.next_offset)

    def next_broker(self, checked: CheckedPull, result: PullResult) -> int:
        """Return the id of the broker that the consumer should pull from next."""
        if result.outcome is Outcome.RESET or not self._core.config.slave_reads:
            return 0
        group = checked.group
        return group.slow_consumer_broker_id if result.is_slow else group.broker_id


def _goes_on(checked: CheckedPull, result: PullResult) -> bool:
    return goes_on(checked.filter, result.status, result.next_offset, result.max_offset)
