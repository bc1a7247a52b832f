"""The tables that a group of brokers shares: changed by the master, and copied by its slaves.

The coroutines use no loop, clock or files directly. A subclass of `SharedTables` provides them:
`keeper.Metadata` for a broker, another class for the simulator.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rmqstore.broker.membership.membership import Membership
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata import groups as group_rules
from rmqstore.broker.metadata import topics as topic_rules
from rmqstore.broker.metadata.change_body import SIZE_MAX, ChangeBody
from rmqstore.broker.metadata.offsets import Offsets
from rmqstore.broker.metadata.queue_starts import QueueStart, consumed_starts
from rmqstore.broker.metadata.spreading import Holders, Spread
from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.unkept import Unkept
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError, RequestRefused, StoreError
from rmqstore.message import PutStatus
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.headers.metadata import ChangesRequestHeader, ChangesResponseHeader
from rmqstore.store.metadata import FORBIDDEN_READ, GroupConfig, RequestMode, TopicConfig

__all__ = ["Broker", "SharedTables", "Wait"]

_SPREAD_MS = 3000
"""Longest wait of the answer to a change for the slaves."""
_KEPT_MS = 2000
"""Longest wait of the answer to a message for its topic: RocketMQ's clients wait for 3 s."""
_OFFSETS_EVERY_MS = 1000
"""Longest wait of a slave for offsets, while no topic or group changes."""
_GUESTS_MAX = 10_000
"""Groups that consumers may make at a slave."""
_WAIT_MAX_MS = 5000
"""Longest delay of the answer to a slave, whose next request is its report."""


class Broker(Protocol):
    """The part of a broker that the tables use."""

    @property
    def config(self) -> BrokerConfig:
        """The settings."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def role(self) -> Role:
        """The present role."""

    @property
    def is_leading(self) -> bool:
        """Whether this is the master, and no other one can have been elected."""

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    def registration_due(self) -> None:
        """Register at the nameservers soon: the topics have changed."""

    @property
    def membership(self) -> Membership:
        """How the broker gets its role, and who its members are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """A message whose topic has a change that is not yet kept."""

    topic: str
    queue: int
    """Negative for a queue that the broker chooses."""
    changes_id: str
    deadline_ms: int


class SharedTables(ABC):
    """Topics, groups, offsets and request modes of a broker, from the time when `tables` is set.

    Reads are synchronous. A change takes effect immediately; awaiting it returns when it is durable
    here and on the members of the sync-state set that answer in time. Changes raise
    RequestRefused.
    """

    tables: Tables

    def __init__(self, broker: Broker, *, process: str) -> None:
        """*process* differs from that of another process of this broker at the same time of day."""
        self._broker = broker
        self._process = process
        self._rules = topic_rules.SystemTopics(
            cluster_name=broker.config.cluster_name,
            broker_name=broker.config.name,
            queue_count=broker.config.topic_queue_count,
            creates_topics=broker.config.create_topics,
            levels=len(broker.config.store.delay_levels_ms),
            revive_queues=broker.config.revive_queue_count,
        )
        self._holders = Holders()
        self.unkept = Unkept()
        """Changes of topics that sends wait for; false while there are none."""
        self._unkept_epoch: int | None = None
        """The epoch of these changes."""
        self._changes_id = ""
        self._led_epoch: int | None = None
        """The epoch that this broker is master of, 0 without a controller."""
        self._admitted: frozenset[int] | None = None
        """Brokers that may join the sync-state set because they hold all changes."""
        self._guests: dict[str, GroupConfig] = {}
        """Groups that consumers made at this slave, whose tables are those of its master."""
        self._unsaved: set[str] = set()
        """Tables that were taken from a master and are not saved: the disk was full, or the master
        was replaced meanwhile."""

    @property
    def offsets(self) -> Offsets:
        """Commits, and what was committed."""
        return self.tables.offsets

    # -- the environment

    @abstractmethod
    def _wake(self) -> None:
        """End the waits of `_change_within`."""

    @abstractmethod
    async def _change_within(self, limit_ms: int) -> None:
        """Return after `_wake`, and after *limit_ms* at the latest."""

    @abstractmethod
    def _begin_saving(self, *names: str) -> Awaitable[DiskError | None]:
        """Start to save tables; awaiting it returns None once they are durable, or the error."""

    @abstractmethod
    async def _save(self, *names: str) -> None:
        """Return when tables are durable. Raises DiskError."""

    @abstractmethod
    async def save_timer(self, checkpoint: bytes, metrics: bytes) -> None:
        """Save the timer state of a master of RocketMQ. Raises OSError."""

    @abstractmethod
    def _declare_queues(self, topic: TopicConfig) -> None:
        """Declare the kind of a topic's queues to the store."""

    @abstractmethod
    def _log_end(self) -> int:
        """Return the physical offset of the next message that is put."""

    @abstractmethod
    def dispatched_offset(self) -> int:
        """Return the physical offset before which records are in their queues."""

    @abstractmethod
    async def remove_queues(self, topics: Collection[str], log_offset: int) -> None:
        """Remove the queues of deleted topics, with the records before *log_offset*."""

    @property
    @abstractmethod
    def log_cuts(self) -> int:
        """The number of cuts and restarts of the log."""

    @abstractmethod
    def empty_queues(self) -> Mapping[str, Sequence[int]]:
        """Return by topic the queues without messages, whose messages may lie before the start of
        the log."""

    @abstractmethod
    def begin_queues(self, starts: Sequence[QueueStart]) -> None:
        """Let queues without messages continue at offsets, durably. Raises StoreError."""

    def take_role(self, role: Role) -> None:
        """Begin numbers of its own as the master of an epoch, end them otherwise."""
        epoch = max(role.epoch, 0) if role.is_master else None
        if epoch != self._led_epoch:
            self._led_epoch = epoch
            self._holders.forget()
            self._admitted = None
            self._changes_id = ""
            if epoch is not None:
                self._guests.clear()
                if epoch != self._unkept_epoch:
                    self.unkept.clear()
                    self._unkept_epoch = epoch
                self.tables.lead(epoch)
                self._begin_consumed_queues()
                self._changes_id = f"{epoch}-{self._broker.wall_ms()}-{self._process}"
                if "topic" in self._unsaved:
                    self._keep_taken_topics()
        # The sync-state set may have changed.
        self._settle()
        self._wake()

    def _begin_consumed_queues(self) -> None:
        starts = consumed_starts(self.offsets, self.empty_queues())
        try:
            self.begin_queues(starts)
        except StoreError as error:
            self._broker.log.error("where %d queues continue is not saved: %s", len(starts), error)

    # -- reads

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic, None for an unknown one."""
        known = self.tables.topics.get(name)
        if known is None and self._broker.config.light_queues:
            return topic_rules.light_topic(name)
        return known

    def group(self, name: str) -> GroupConfig | None:
        """Return a group, None for an unknown group, which is not created."""
        known = self.tables.groups.get(name) or self._guests.get(name)
        if known is None and self._broker.config.light_queues:
            return group_rules.light_group(name)
        return known

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic."""
        return self.tables.is_forbidden(group, topic)

    def request_mode(self, topic: str, group: str) -> RequestMode | None:
        """Return how a group gets the messages of a topic, None where no operator has set it."""
        return self.tables.modes.get(topic, {}).get(group)

    def system_topics(self) -> Collection[str]:
        """Return the names of the topics that this broker has from its start."""
        return self._rules.all().keys()

    # -- changes

    def topic_for_send(
        self,
        name: str,
        *,
        default_topic: str = topic_rules.TEMPLATE_TOPIC,
        queues: int = 8,
        is_unit: bool = False,
    ) -> TopicConfig | None:
        """Return the topic of a message, created if the rules allow; None otherwise. Messages to a
        created topic wait by `wait_of` and `kept`, whichever of them made it."""
        known = self.topic(name)
        if known is not None:
            return known
        topic_rules.check_name(name)
        made = topic_rules.made_by_sending(
            name,
            self.topic,
            template=default_topic,
            queue_count=queues,
            is_unit=is_unit,
            creates_topics=self._broker.config.create_topics,
        )
        if made is not None:
            self._broker.log.info("topic %s is made by a message", name)
            self._set_topic(made)
            self._begin_keeping("topic")
        return made

    async def retry_topic(self, group: str, *, order: bool = False) -> TopicConfig:
        """Return the retry topic of a group, created with *order* if it is missing."""
        config = self.group(group)
        queues = 1 if config is None else max(config.retry_queue_count, 1)
        wanted = topic_rules.retry_topic(group, queues, order=order)
        known = self.topic(wanted.name)
        if known is not None and known.order == order:
            return known
        await self.change_topic(wanted)
        return wanted

    async def dead_letter_topic(self, group: str) -> TopicConfig:
        """Return the topic of a group's dead letters, created if it is missing."""
        wanted = topic_rules.dead_letter_topic(group)
        known = self.topic(wanted.name)
        if known is None:
            await self.change_topic(wanted)
        return known or wanted

    async def group_for(self, name: str) -> GroupConfig | None:
        """Return a group, created if the rules allow; None otherwise."""
        known = self.group(name)
        creates = self._broker.config.create_groups
        if known is not None or not group_rules.may_be_made(name, creates_groups=creates):
            return known
        if not self._broker.role.is_master:
            return self._guest(name)
        self._broker.log.info("group %s is made by a consumer", name)
        made = GroupConfig(name)
        await self.change_group(made)
        return made

    def _guest(self, name: str) -> GroupConfig | None:
        """Returns a new group of this slave alone, None where it has too many."""
        if len(self._guests) >= _GUESTS_MAX:
            return None
        self._broker.log.info("group %s is made by a consumer, in the memory of this slave", name)
        return self._guests.setdefault(name, GroupConfig(name))

    async def change_topic(self, topic: TopicConfig) -> Spread:
        """Add or replace a topic."""
        return await self._keep(self._set_topic(topic), "topic")

    def _set_topic(self, topic: TopicConfig) -> int:
        self._refuse_slave()
        self._declare_queues(topic)
        former = self.topic(topic.name)
        number = self.tables.set_topic(topic)
        self.unkept.changed(topic, former, number)
        self._broker.registration_due()
        return number

    async def confirm_topics(self) -> Spread:
        """Return as after the last change of a topic or group: the change may have been refused
        because it was not saved, or answered while members lacked it."""
        self._refuse_slave()
        return await self._keep(self.tables.log.last_urgent, "topic")

    async def delete_topic(self, name: str) -> Spread:
        """Remove a topic, the offsets of all groups on it, and its queues."""
        self._refuse_slave()
        # A topic that is made again under this name has no message before this offset.
        log_offset = self._log_end()
        number = self.tables.remove_topic(name)
        self.unkept.deleted(name)
        self._broker.registration_due()
        spread = await self._keep(number, "topic", "offset")
        await self.remove_queues((name,), log_offset)
        return spread

    async def change_group(self, group: GroupConfig) -> Spread:
        """Add or replace a group."""
        self._refuse_slave()
        return await self._keep(self.tables.set_group(group), "group")

    async def delete_group(self, name: str, *, with_offsets: bool) -> Spread:
        """Remove a group, and its offsets if *with_offsets*."""
        self._refuse_slave()
        number = self.tables.remove_group(name, with_offsets=with_offsets)
        return await self._keep(number, "group", "offset")

    async def forbid(self, group: str, topic: str, *, is_forbidden: bool) -> Spread:
        """Forbid a group to read a topic, or allow it again."""
        self._refuse_slave()
        bits = self.tables.forbidden.get(group, {}).get(topic, 0) & ~FORBIDDEN_READ
        bits |= FORBIDDEN_READ if is_forbidden else 0
        return await self._keep(self.tables.forbid(group, topic, bits), "group")

    async def order_topics(self, names: Collection[str]) -> None:
        """Have the known topics of *names* as ordered ones, which nameservers say they are."""
        for name in names:
            topic = self.topic(name)
            if topic is not None and not topic.order:
                self._broker.log.info("topic %s is ordered, as a nameserver says", name)
                await self.change_topic(replace(topic, order=True))

    async def set_mode(self, mode: RequestMode) -> Spread:
        """Add or replace the request mode of a group on a topic."""
        self._refuse_slave()
        return await self._keep(self.tables.set_mode(mode), "mode")

    def _refuse_slave(self) -> None:
        if not self._broker.role.is_master:
            raise RequestRefused(
                "Can't modify topic or subscription group from slave broker, please execute it "
                "from master broker.",
                code=ResponseCode.SYSTEM_ERROR,
            )

    async def _keep(self, number: int, *names: str) -> Spread:
        """Save tables and wait for the slaves, at the same time."""
        changes_id = self._changes_id
        saving = self._begin_keeping(*names)
        spread = await self._await_slaves(number, changes_id)
        failure = await saving
        if failure is not None:
            first = "free space on the disk and " if failure.lacks_space else ""
            raise RequestRefused(
                f"the change is in effect but not saved: {failure}; {first}send it again",
                code=ResponseCode.SYSTEM_ERROR,
            )
        if self._changes_id != changes_id or spread is None:
            raise RequestRefused(
                "this broker ceased to be the master before its slaves reported the change; look "
                "at the new master whether it is there",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return replace(spread, is_leading=self._broker.is_leading)

    def _begin_keeping(self, *names: str) -> Awaitable[DiskError | None]:
        """Save tables and pass their changes on; awaiting the result awaits the saving."""
        # Before the answer, so that a slave that joins later holds the change.
        self._admit()
        saving = self._begin_saving(*names)
        self._wake()
        return saving

    def _keep_taken_topics(self) -> None:
        """Save the topics that this broker took as a slave and has only in memory. Messages wait
        for it: it is not known which topics the file lacks."""
        for topic in self.tables.topics.values():
            self.unkept.changed(topic, None, self.tables.log.sequence)
        self._begin_saving("topic")

    async def failure_of(self, *names: str) -> DiskError | None:
        """Save tables; return None, or the error."""
        number = self.tables.log.sequence
        try:
            await self._save(*names)
        except DiskError as error:
            self._broker.log.error("the metadata is not saved: %s", error)
            if "topic" in names:
                self.unkept.not_saved(number, str(error))
                self._wake()
            return error
        if self.unkept and "topic" in names:
            self.unkept.saved(number)
            self._settle()
            self._wake()
        return None

    # -- slaves

    def _others(self) -> frozenset[int] | None:
        """The possible members except this master; None when its role has ended but `take_role`
        was not called yet."""
        role, possible = self._broker.role, self._broker.membership.possible_members
        if role.epoch >= 0 and role.broker_id not in possible:
            return None
        return possible - {role.broker_id}

    async def _await_slaves(self, number: int, changes_id: str) -> Spread | None:
        """Returns the members that hold a change; None once another role began or the role
        ended."""
        deadline_ms = self._broker.now_ms() + _SPREAD_MS
        while True:
            others = self._others()
            if others is None or self._changes_id != changes_id:
                return None
            spread = self._holders.spread(number, others)
            now_ms = self._broker.now_ms()
            if now_ms >= deadline_ms or not self._holders.is_awaited(spread, now_ms=now_ms):
                return spread
            await self._change_within(deadline_ms - now_ms)

    def wait_of(self, topic: str, queue: int) -> Wait | None:
        """Return what a message that is about to be stored waits for, None for nothing: in a group
        without the change of its topic, a fail-over would leave the message unreadable."""
        if not self.unkept or self.unkept.of(topic, queue) is None:
            return None
        deadline_ms = self._broker.now_ms() + _KEPT_MS
        return Wait(topic=topic, queue=queue, changes_id=self._changes_id, deadline_ms=deadline_ms)

    async def kept(self, wait: Wait, *, with_members: bool) -> tuple[PutStatus, str]:
        """Return PUT_OK once the topic of a stored message is kept: saved here and, where puts need
        members and *with_members*, on every member of the set that reports. Otherwise return at the
        deadline, with the status of a message that may be lost and the reason."""
        needs_members = with_members and self._broker.membership.puts_need_members
        while True:
            if self._changes_id != wait.changes_id:
                return PutStatus.FLUSH_SLAVE_TIMEOUT, "the role of this broker ended"
            change = self.unkept.of(wait.topic, wait.queue)
            if change is None or (change.is_saved and not needs_members):
                return PutStatus.PUT_OK, ""
            if change.failure:
                return PutStatus.FLUSH_DISK_TIMEOUT, f"it is not saved: {change.failure}"
            lacking = self._lacking(change.number)
            if change.is_saved and lacking is not None and not lacking:
                return PutStatus.PUT_OK, ""
            now_ms = self._broker.now_ms()
            is_in_vain = self._holders.has_gone_silent(lacking or (), now_ms=now_ms)
            if now_ms >= wait.deadline_ms or is_in_vain:
                break
            await self._change_within(wait.deadline_ms - now_ms)
        if not change.is_saved:
            return PutStatus.FLUSH_DISK_TIMEOUT, "it is not saved yet"
        ids = ", ".join(map(str, sorted(lacking or ()))) or "unknown"
        return PutStatus.FLUSH_SLAVE_TIMEOUT, f"broker ids {ids} have not reported it"

    def _lacking(self, number: int) -> frozenset[int] | None:
        """Returns the members that report changes and lack the change *number*; None once the role
        has ended."""
        others = self._others()
        if others is None:
            return None
        missing = frozenset(self._holders.spread(number, others).missing)
        return missing - self._broker.membership.members_without_reports

    def _settle(self) -> None:
        """Drop the changes of topics that are kept."""
        if not self.unkept or not self._changes_id:
            return
        needs_members = self._broker.membership.puts_need_members

        def is_held(number: int) -> bool:
            return not needs_members or self._lacking(number) == frozenset()

        self.unkept.settle(is_held)

    def _admit(self) -> None:
        """Admit brokers that hold all changes of topics and groups to the sync-state set."""
        admitted = self._holders.holding(self.tables.log.last_urgent)
        if self._changes_id and admitted != self._admitted:
            self._admitted = admitted
            self._broker.membership.admit(admitted)

    async def changes_for(self, poll: ChangesRequestHeader) -> tuple[ChangesResponseHeader, bytes]:
        """Return the changes that a slave lacks, delayed while there are none; without a body if
        the slave must request the whole tables."""
        log = self.tables.log
        if not self._changes_id:
            raise RequestRefused(
                "this broker is not a master; send the change to the master, which the nameserver "
                "and the controller name",
                code=ResponseCode.SYSTEM_ERROR,
            )
        changes_id = self._changes_id
        if poll.changes_id != changes_id:
            answer = self._whole()
            self.tables.note_all()
            return answer
        if not log.floor <= poll.since <= log.sequence:
            return self._whole()

        began_ms = self._broker.now_ms()
        self._holders.report(poll.broker_id, poll.since, now_ms=began_ms)
        self._admit()
        self._settle()
        self._wake()
        end_ms = began_ms + min(max(poll.wait_ms, 0), _WAIT_MAX_MS)
        offsets_ms = min(end_ms, began_ms + _OFFSETS_EVERY_MS)
        while self._changes_id == changes_id and log.last_urgent <= poll.since:
            now_ms = self._broker.now_ms()
            if now_ms >= (offsets_ms if log.sequence > poll.since else end_ms):
                break
            limit_ms = offsets_ms if now_ms < offsets_ms else min(end_ms, now_ms + 1000)
            await self._change_within(limit_ms - now_ms)

        if self._changes_id != changes_id or log.floor > poll.since:
            return self._whole()
        number = log.sequence
        body = ChangeBody.of(self.tables, log.after(poll.since)).encode()
        if len(body) > SIZE_MAX:
            return self._whole()
        self._holders.report(poll.broker_id, poll.since, now_ms=self._broker.now_ms())
        return ChangesResponseHeader(changes_id=changes_id, number=number), body

    def _whole(self) -> tuple[ChangesResponseHeader, bytes]:
        number = self.tables.log.sequence
        return ChangesResponseHeader(changes_id=self._changes_id, number=number), b""

    async def save_taken(self, names: Collection[str], topics: Iterable[str]) -> None:
        """Save tables that were taken from a master, with new or changed *topics*, and those of
        earlier calls that are not saved yet. Raises DiskError."""
        self._unsaved |= {each.name for each in self.tables.all if each.is_urgent} & set(names)
        for name in topics:
            self._declare_queues(self.tables.topics[name])
        files = sorted(self._unsaved)
        await self._save(*files)
        self._unsaved.difference_update(files)
        if "topic" in names:
            self._broker.registration_due()
