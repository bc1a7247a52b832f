"""The metadata of one broker: read at once, changed durably, and spread to its slaves."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Protocol

from rmqstore.aio import AsyncStore
from rmqstore.broker.metadata import groups as group_rules
from rmqstore.broker.metadata import topics as topic_rules
from rmqstore.broker.metadata.change_body import SIZE_MAX, ChangeBody
from rmqstore.broker.metadata.files import SavedTable, TimerFiles
from rmqstore.broker.metadata.spreading import Holders, Spread
from rmqstore.broker.metadata.tables import Offsets, Tables
from rmqstore.broker.roles import Role
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError, RequestRefused
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.work_thread import WorkThread
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.headers.metadata import ChangesRequestHeader, ChangesResponseHeader
from rmqstore.store.metadata import (
    DelayOffsets,
    GroupConfig,
    GroupTable,
    RequestMode,
    RequestModes,
    TopicConfig,
    TopicTable,
    load_consumer_offsets,
)
from rmqstore.store.topic_queues import declare_queues

__all__ = ["Host", "Metadata"]

_SAVE_OFFSETS_S = 5.0
"""RocketMQ's flushConsumerOffsetInterval."""
_SPREAD_MS = 3000
"""How long the answer to a change waits for the slaves."""
_OFFSETS_EVERY_MS = 1000
"""How long a slave may wait for offsets, while no topic or group changes."""
_WAIT_MAX_MS = 5000
"""How long a request of a slave is held; it reports what it holds with the next one."""


class Host(Protocol):
    """What the metadata needs of its broker."""

    @property
    def config(self) -> BrokerConfig:
        """The settings."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def store(self) -> AsyncStore:
        """The store, open."""

    @property
    def role(self) -> Role:
        """The present role."""

    def wall_ms(self) -> int:
        """Return the time of the wall clock."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    def registration_due(self) -> None:
        """Register at the nameservers soon: the topics have changed."""


class Metadata:
    """Topics, groups, offsets and request modes of a broker.

    An async context manager: entering loads the files, leaving saves them. Reads are synchronous.
    A change is in effect at once; awaiting it returns when it is durable here and, as far as they
    answer in time, on the members of the sync-state set. Changes raise RequestRefused.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._rules = topic_rules.SystemTopics(
            cluster_name=host.config.cluster_name,
            broker_name=host.config.name,
            queue_count=host.config.topic_queue_count,
            creates_topics=host.config.create_topics,
        )
        self._holders = Holders()
        self._changes_id = ""
        self._led_epoch: int | None = None
        """The epoch that this broker is master of, 0 without a controller."""
        self._changed = asyncio.Event()
        self._saving: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Metadata:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Load the files. Raises CorruptionError, DiskError."""
        store = self._host.store.store
        root = Path(store.path)
        self._work = WorkThread(asyncio.get_running_loop(), "rmqstore-broker-files")
        self._store = store
        self.timer_files = TimerFiles(root)
        self.tables = await self._work.run(lambda: self._load(root))
        self.offsets: Offsets = self.tables.offsets
        """Commits, and what was committed."""
        tables = self.tables
        self._files: Mapping[str, SavedTable] = {
            "topic": SavedTable(root, tables.topic_table, self._work),
            "group": SavedTable(root, tables.group_table, self._work),
            "mode": SavedTable(root, tables.mode_table, self._work),
            "offset": SavedTable(root, self.offsets.table.snapshot, self._work),
            "delay": SavedTable(root, tables.delay_table, self._work),
        }
        self._saving = asyncio.create_task(self._save_regularly(), name="saving of offsets")

    def _load(self, root: Path) -> Tables:
        tables = Tables(
            topics=TopicTable.load(root),
            groups=GroupTable.load(root),
            offsets=load_consumer_offsets(root),
            delays=DelayOffsets.load(root),
            modes=RequestModes.load(root),
            wall_ms=self._host.wall_ms,
        )
        tables.add_system(self._rules.all(), group_rules.PREDEFINED)
        return tables

    async def close(self) -> None:
        """Save what has changed, and end the waits of slaves and changes."""
        if self._saving is None:
            return
        self._saving.cancel()
        await asyncio.wait((self._saving,))
        self._saving = None
        self._changes_id = ""
        self._wake()
        try:
            await self._save("offset", "delay")
        except DiskError as error:
            self._host.log.error("the offsets are not saved: %s", error)
        self._work.stop()

    def take_role(self, role: Role) -> None:
        """Begin numbers of its own as the master of an epoch, end them otherwise."""
        epoch = max(role.epoch, 0) if role.name == "master" else None
        if epoch != self._led_epoch:
            self._led_epoch = epoch
            self._holders.forget()
            self._changes_id = ""
            if epoch is not None:
                self.tables.lead(epoch)
                self._changes_id = f"{epoch}-{self._host.wall_ms()}-{id(self):x}"
        # The sync-state set may be another one.
        self._wake()

    # -- reads

    def topic(self, name: str) -> TopicConfig | None:
        """Return a topic, None for an unknown one."""
        return self.tables.topics.get(name)

    def group(self, name: str) -> GroupConfig | None:
        """Return a group, None for an unknown one, which is not made."""
        return self.tables.groups.get(name)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic."""
        return self.tables.is_forbidden(group, topic)

    def system_topics(self) -> Collection[str]:
        """Return the names of the topics that this broker has from its start."""
        return self._rules.all().keys()

    # -- changes

    async def topic_for_send(
        self,
        name: str,
        *,
        default_topic: str = topic_rules.TEMPLATE_TOPIC,
        queues: int = 8,
        is_unit: bool = False,
    ) -> TopicConfig | None:
        """Return the topic that a message goes to, made where the rules allow; None otherwise."""
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
            creates_topics=self._host.config.create_topics,
        )
        if made is not None:
            self._host.log.info("topic %s is made by a message", name)
            await self.change_topic(made)
        return made

    async def retry_topic(self, group: str, *, order: bool = False) -> TopicConfig:
        """Return the retry topic of a group, made where it is missing, with *order* as given."""
        config = self.group(group)
        queues = 1 if config is None else max(config.retry_queue_count, 1)
        wanted = topic_rules.retry_topic(group, queues, order=order)
        known = self.topic(wanted.name)
        if known is not None and known.order == order:
            return known
        await self.change_topic(wanted)
        return wanted

    async def group_for(self, name: str) -> GroupConfig | None:
        """Return a group, made where the rules allow; None otherwise."""
        known = self.group(name)
        creates = self._host.config.create_groups
        if known is not None or not group_rules.may_be_made(name, creates_groups=creates):
            return known
        self._host.log.info("group %s is made by a consumer", name)
        made = GroupConfig(name)
        await self.change_group(made)
        return made

    async def change_topic(self, topic: TopicConfig) -> Spread:
        """Add or replace a topic."""
        self._refuse_slave()
        declare_queues(self._store, topic)
        number = self.tables.set_topic(topic)
        self._host.registration_due()
        return await self._keep(number, "topic")

    async def delete_topic(self, name: str) -> Spread:
        """Remove a topic, and the offsets of all groups on it."""
        self._refuse_slave()
        number = self.tables.remove_topic(name)
        self._host.registration_due()
        return await self._keep(number, "topic", "offset")

    async def change_group(self, group: GroupConfig) -> Spread:
        """Add or replace a group."""
        self._refuse_slave()
        return await self._keep(self.tables.set_group(group), "group")

    async def delete_group(self, name: str, *, with_offsets: bool) -> Spread:
        """Remove a group, and its offsets if *with_offsets*."""
        self._refuse_slave()
        number = self.tables.remove_group(name, with_offsets=with_offsets)
        return await self._keep(number, "group", "offset")

    async def set_mode(self, mode: RequestMode) -> Spread:
        """Add or replace the request mode of a group on a topic."""
        self._refuse_slave()
        return await self._keep(self.tables.set_mode(mode), "mode")

    def _refuse_slave(self) -> None:
        if self._host.role.name != "master":
            raise RequestRefused(
                "Can't modify topic or subscription group from slave broker, please execute it "
                "from master broker.",
                code=ResponseCode.SYSTEM_ERROR,
            )

    async def _keep(self, number: int, *names: str) -> Spread:
        """Save tables and wait for the slaves, at the same time."""
        changes_id = self._changes_id
        self._wake()
        spread, failure = await asyncio.gather(
            self._await_slaves(number, changes_id), self._failure_of(*names)
        )
        if failure is not None:
            raise RequestRefused(
                f"the change is in effect but not saved: {failure}; free space on the disk and "
                "send it again",
                code=ResponseCode.SYSTEM_ERROR,
            )
        if self._changes_id != changes_id:
            raise RequestRefused(
                "this broker ceased to be the master before its slaves reported the change; look "
                "at the new master whether it is there",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return spread

    async def _failure_of(self, *names: str) -> DiskError | None:
        try:
            await self._save(*names)
        except DiskError as error:
            self._host.log.error("the metadata is not saved: %s", error)
            return error
        return None

    async def _save(self, *names: str) -> None:
        for name in names:
            await self._files[name].save()

    async def _save_regularly(self) -> None:
        while True:
            await asyncio.sleep(_SAVE_OFFSETS_S)
            await self._failure_of("offset", "delay")

    # -- slaves

    async def _await_slaves(self, number: int, changes_id: str) -> Spread:
        deadline_ms = self._host.now_ms() + _SPREAD_MS
        while True:
            role = self._host.role
            spread = self._holders.spread(number, role.members - {role.broker_id})
            now_ms = self._host.now_ms()
            is_over = now_ms >= deadline_ms or self._changes_id != changes_id
            if is_over or not self._holders.is_awaited(spread, now_ms=now_ms):
                return spread
            await self._change_within(deadline_ms - now_ms)

    async def changes_for(self, poll: ChangesRequestHeader) -> tuple[ChangesResponseHeader, bytes]:
        """Return the changes that a slave lacks, held while there are none; no body where it must
        take the whole tables."""
        log = self.tables.log
        if not self._changes_id:
            raise RequestRefused(
                "this broker is not a master; send the change to the master, which the nameserver "
                "and the controller name",
                code=ResponseCode.SYSTEM_ERROR,
            )
        changes_id = self._changes_id
        if poll.changes_id != changes_id or not log.floor <= poll.since <= log.sequence:
            return self._whole()

        began_ms = self._host.now_ms()
        self._holders.report(poll.broker_id, poll.since, now_ms=began_ms)
        self._wake()
        end_ms = began_ms + min(max(poll.wait_ms, 0), _WAIT_MAX_MS)
        offsets_ms = min(end_ms, began_ms + _OFFSETS_EVERY_MS)
        while self._changes_id == changes_id and log.last_urgent <= poll.since:
            now_ms = self._host.now_ms()
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
        self._holders.report(poll.broker_id, poll.since, now_ms=self._host.now_ms())
        return ChangesResponseHeader(changes_id=changes_id, number=number), body

    def _whole(self) -> tuple[ChangesResponseHeader, bytes]:
        number = self.tables.log.sequence
        return ChangesResponseHeader(changes_id=self._changes_id, number=number), b""

    async def save_taken(self, names: Collection[str]) -> None:
        """Save tables that were taken from a master. Raises DiskError."""
        by_table = {"forbidden": "group"}
        for topic in self.tables.topics.values() if "topic" in names else ():
            declare_queues(self._store, topic)
        files = {by_table.get(name, name) for name in names}
        # Offsets may be as old as their last regular save on a master, too.
        await self._save(*sorted(files - {"offset", "delay"}))
        if "topic" in names:
            self._host.registration_due()

    async def save_timer(self, checkpoint: bytes, metrics: bytes) -> None:
        """Save the timer state of a master of RocketMQ. Raises OSError."""
        await self._work.run(lambda: self.timer_files.save(checkpoint, metrics))

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _change_within(self, limit_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), max(limit_ms, 1) / 1000)
