"""A broker as operations see it: a store in a folder of the test, and tables in memory."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqstore
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.changes import ChangeLog
from rmqstore.broker.metadata.offsets import Offsets
from rmqstore.broker.metadata.shared_table import Versions
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.traffic import Traffic
from rmqstore.config import BrokerConfig
from rmqstore.errors import PutError, RequestRefused
from rmqstore.message import Durability, PutStatus
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import LoopRuntime
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import (
    GroupConfig,
    RequestMode,
    TopicConfig,
)
from tests.support.agreement import FILES

__all__ = ["DEAD", "RETRY", "SLAVE", "Core", "core", "finished"]

DEAD, RETRY = "%DLQ%G", "%RETRY%G"
SLAVE = Role(name="slave", broker_id=1, master_address=("10.0.0.2", 1))


def finished(found: Any) -> Any:
    """Return the result of an operation, which waits for nothing here."""
    if not isinstance(found, Coroutine):
        return found
    with pytest.raises(StopIteration) as end:
        found.send(None)
    return end.value.value


class Core:
    """A master with a store in a folder of the test, the topic T of 4 queues and the group G."""

    def __init__(self, store: rmqstore.Store) -> None:
        self.config = BrokerConfig(name="broker-a", host="10.0.0.1", slave_reads=True)
        self.log = IdentityLog("test")
        self.role = Role(name="master", broker_id=0)
        self.is_leading = True
        self.is_shown_as_master = False
        self.traffic = Traffic(0.0)
        self.runtime = LoopRuntime("broker", log=self.log, client=SimpleNamespace())
        self.topics = {"T": TopicConfig("T", 4, 4), RETRY: TopicConfig(RETRY, 1, 1)}
        self.groups = {"G": GroupConfig("G", retries_max=3)}
        self.makes_topics = self.makes_groups = True
        self.wait: object = None
        self.kept = PutStatus.PUT_OK, ""
        self.forbidden: set[tuple[str, str]] = set()
        self.offsets = Offsets()
        self.offsets.attach(ChangeLog(frozenset()), Versions(lambda: 0))
        self.metadata: Any = SimpleNamespace(
            topic=self.topics.get,
            group=self.groups.get,
            topic_for_send=self._topic_for_send,
            group_for=self._group_for,
            dead_letter_topic=self._dead_letter_topic,
            wait_of=lambda topic, queue: self.wait,
            kept=self._kept,
            is_forbidden=lambda group, topic: (group, topic) in self.forbidden,
            offsets=self.offsets,
            system_topics=lambda: {"SELF_TEST_TOPIC", "BenchmarkTest"},
            change_topic=self._change_topic,
            confirm_topics=self._confirm_topics,
            delete_topic=self._delete_topic,
            change_group=self._change_group,
            delete_group=self._delete_group,
            set_mode=self._set_mode,
            forbid=self._forbid,
        )
        self.time_ms = 1000
        self.modes: list[RequestMode] = []
        self.spread = Spread()
        """How far each change gets."""
        self.changes: list[str] = []
        """The changes of tables, and the registrations that operations waited for."""
        self.durabilities: list[Durability | None] = []
        self.refusal: PutError | None = None
        """Raised in place of a put."""
        self.failure: PutError | None = None
        """Raised once a message is stored, with its receipt."""
        self.store: Any = SimpleNamespace(store=store, append=self._append)

    def _topic_for_send(self, name: str, **_: object) -> TopicConfig | None:
        return self.topics.setdefault(name, TopicConfig(name, 4, 4)) if self.makes_topics else None

    async def _dead_letter_topic(self, group: str) -> TopicConfig:
        return TopicConfig(DEAD, 1, 1)

    async def _group_for(self, name: str) -> GroupConfig | None:
        return self.groups.setdefault(name, GroupConfig(name)) if self.makes_groups else None

    async def _kept(self, wait: object, *, with_members: bool) -> tuple[PutStatus, str]:
        assert wait is self.wait
        return self.kept if with_members else (PutStatus.PUT_OK, "")

    def _keep(self, change: str) -> Spread:
        if self.role.name != "master":
            raise RequestRefused("a slave changes nothing", code=ResponseCode.SYSTEM_ERROR)
        self.changes.append(change)
        return self.spread

    async def _change_topic(self, topic: TopicConfig) -> Spread:
        spread = self._keep(f"topic {topic.name}")
        self.topics[topic.name] = topic
        return spread

    async def _confirm_topics(self) -> Spread:
        return self._keep("confirm")

    async def _delete_topic(self, name: str) -> Spread:
        spread = self._keep(f"delete topic {name}")
        self.topics.pop(name, None)
        return spread

    async def _change_group(self, group: GroupConfig) -> Spread:
        spread = self._keep(f"group {group.name}")
        self.groups[group.name] = group
        return spread

    async def _delete_group(self, name: str, *, with_offsets: bool) -> Spread:
        spread = self._keep(f"delete group {name}{' with offsets' if with_offsets else ''}")
        self.groups.pop(name, None)
        return spread

    async def _set_mode(self, mode: RequestMode) -> Spread:
        spread = self._keep(f"mode {mode.mode}")
        self.modes.append(mode)
        return spread

    async def _forbid(self, group: str, topic: str, *, is_forbidden: bool) -> Spread:
        spread = self._keep(f"forbid {is_forbidden}")
        (self.forbidden.add if is_forbidden else self.forbidden.discard)((group, topic))
        return spread

    async def registered(self) -> None:
        """Note that an operation waited for the nameservers."""
        self.changes.append("registered")

    def now_ms(self) -> int:
        """Return the time that the test has set."""
        return self.time_ms

    def _append(self, put: Callable[[], Any], durability: Durability | None) -> Any:
        self.durabilities.append(durability)
        if self.refusal is not None:
            raise self.refusal
        receipts = put()
        return receipts if self.failure is None else self._fail(self.failure, receipts)

    async def _fail(self, error: PutError, receipts: Any) -> Any:
        error.receipt = receipts
        raise error

    def counted(self, name: str) -> object:
        return self.traffic.report(1.0)[name]

    def record(self, offset: int = 0, *, topic: str = "T", queue: int = 0) -> Any:
        record = self.store.store.get(topic, queue=queue, offset=offset)
        assert record is not None
        return record


@pytest.fixture
def core(tmp_path: Path) -> Iterator[Core]:
    """A master with a store of its own."""
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        yield Core(store)
