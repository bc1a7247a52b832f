"""Messages to topics whose last change a fail-over could undo: whom their answers wait for."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.queue_starts import QueueStart
from rmqstore.broker.metadata.shared import SharedTables, Wait
from rmqstore.broker.metadata.tables import Tables
from rmqstore.broker.metadata.unkept import Unkept
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError
from rmqstore.message import PutStatus
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.headers.metadata import ChangesRequestHeader
from rmqstore.sim import coroutines
from rmqstore.store.metadata import (
    TopicConfig,
)

NO_ANSWER = None


def test_new_topic_is_not_kept_before_the_file_and_the_members_have_it() -> None:
    unkept = Unkept()
    assert not unkept
    unkept.changed(TopicConfig("T", 4, 4), None, 7)
    unkept.settle(lambda number: True)
    assert unkept.of("T", 0) is not None
    unkept.saved(6)
    unkept.settle(lambda number: True)
    assert unkept.of("T", 0) is not None
    unkept.saved(7)
    unkept.settle(lambda number: number < 7)
    assert unkept.of("T", 0) is not None
    unkept.settle(lambda number: number <= 7)
    assert not unkept


def test_more_queues_concern_messages_to_the_new_ones_and_other_changes_none() -> None:
    unkept = Unkept()
    unkept.changed(TopicConfig("T", 4, 4, order=True), TopicConfig("T", 4, 4), 3)
    unkept.changed(TopicConfig("T", 2, 2), TopicConfig("T", 4, 4), 4)
    assert not unkept
    unkept.changed(TopicConfig("T", 8, 8), TopicConfig("T", 4, 4), 5)
    unkept.changed(TopicConfig("T", 9, 9), TopicConfig("T", 8, 8), 6)
    assert unkept.of("T", 3) is None
    for queue in (4, 8, -1):
        change = unkept.of("T", queue)
        assert change is not None
        assert change.number == 6


def test_queues_that_were_taken_away_and_given_back_are_not_safe() -> None:
    unkept = Unkept()
    unkept.changed(TopicConfig("T", 4, 4), None, 1)
    unkept.changed(TopicConfig("T", 8, 8), TopicConfig("T", 4, 4), 2)
    assert unkept.of("T", 0) is not None


def test_deleted_topic_holds_no_message_back() -> None:
    unkept = Unkept()
    unkept.changed(TopicConfig("T"), None, 1)
    unkept.deleted("T")
    assert not unkept


class Group:
    """The broker 1, master of a group; time passes in `pass_ms`."""

    def __init__(self) -> None:
        self.config = BrokerConfig(name="b", host="10.0.0.1")
        self.log = IdentityLog("tests", "broker b")
        self.role = Role(name="master", broker_id=1, epoch=4)
        self.time_ms = 1000
        self.membership: Any = self
        self.possible_members = frozenset({1, 2})
        self.is_leading = True
        self.members_without_reports: frozenset[int] = frozenset()
        self.puts_need_members = True
        self.tables = ModelTables(self)
        self.tables.take_role(self.role)

    def wall_ms(self) -> int:
        return self.time_ms

    def now_ms(self) -> int:
        return self.time_ms

    def registration_due(self) -> None:
        pass

    def admit(self, broker_ids: Collection[int]) -> None:
        pass

    # ---- what happens

    def send(self, topic: str = "T", *, queue: int = 0, with_members: bool = True) -> Answer:
        """A message that is stored at once."""
        assert self.tables.topic_for_send(topic) is not None
        return Answer(self, self.tables.wait_of(topic, queue), with_members=with_members)

    def reports(self, broker_id: int, number: int | None = None) -> None:
        """A slave reports the changes up to *number*, by default all, in its next request."""
        since = self.tables.tables.log.sequence if number is None else number
        poll = ChangesRequestHeader(
            topic_number=0,
            topics_max=1,
            data_version="",
            changes_id=self.tables.changes_id,
            since=since,
            broker_id=broker_id,
            wait_ms=0,
        )
        run(self.tables.changes_for(poll), lambda _: None)

    def pass_ms(self, ms: int) -> None:
        self.time_ms += ms
        self.tables.tick()

    def becomes(self, role: Role) -> None:
        self.role = role
        self.tables.take_role(role)


class Answer:
    """The status that a message is answered with, None before the answer."""

    def __init__(self, group: Group, wait: Wait | None, *, with_members: bool) -> None:
        self.status: PutStatus | None = PutStatus.PUT_OK
        self.reason = ""
        if wait is not None:
            self.status = None
            run(group.tables.kept(wait, with_members=with_members), self._end)

    def _end(self, result: tuple[PutStatus, str]) -> None:
        self.status, self.reason = result


def run(coroutine: Any, done: Callable[[Any], None]) -> None:
    coroutines.run(coroutine, is_alive=lambda: True, done=done, failed=print)


class ModelTables(SharedTables):
    """Tables without files; saves wait while *is_slow*, and fail while *is_full*."""

    def __init__(self, group: Group) -> None:
        super().__init__(group, process="1")
        self._group = group
        self._waiting: list[tuple[int, coroutines.Resume]] = []
        self._saving: list[coroutines.Resume] = []
        self.is_full = self.is_slow = False
        self.tables = Tables(
            wall_ms=group.wall_ms,
        )
        self.tables.add_system(self._rules.all(), {})

    @property
    def changes_id(self) -> str:
        return self._changes_id

    @property
    def log_cuts(self) -> int:
        return 0

    def empty_queues(self) -> Mapping[str, Sequence[int]]:
        return {}

    def begin_queues(self, starts: Sequence[QueueStart]) -> None:
        assert not starts

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for _, resume in waiting:
            resume(None)

    def tick(self) -> None:
        waiting, self._waiting = self._waiting, []
        for until_ms, resume in waiting:
            if until_ms <= self._group.time_ms:
                resume(None)
            else:
                self._waiting.append((until_ms, resume))

    async def _change_within(self, limit_ms: int) -> None:
        until_ms = self._group.time_ms + limit_ms
        await coroutines.Pause(lambda resume: self._waiting.append((until_ms, resume)))

    def _begin_saving(self, *names: str) -> Awaitable[DiskError | None]:
        work = coroutines.Work()
        run(self.failure_of(*names), work.end)
        return work

    async def _save(self, *names: str) -> None:
        if self.is_slow:
            await coroutines.Pause(self._saving.append)
        if self.is_full:
            raise DiskError(errno.ENOSPC, "no room")

    def save_now(self) -> None:
        saving, self._saving = self._saving, []
        for resume in saving:
            resume(None)

    async def save_timer(self, checkpoint: bytes, metrics: bytes) -> None:
        pass

    def _declare_queues(self, topic: TopicConfig) -> None:
        pass

    def _log_end(self) -> int:
        return 0

    def dispatched_offset(self) -> int:
        return 0

    async def remove_queues(self, topics: Collection[str], log_offset: int) -> None:
        pass


def test_every_message_to_a_new_topic_waits_for_the_members() -> None:
    group = Group()
    first, second = group.send(), group.send()
    assert (first.status, second.status) == (NO_ANSWER, NO_ANSWER)
    group.reports(2)
    assert (first.status, second.status) == (PutStatus.PUT_OK, PutStatus.PUT_OK)
    assert not group.tables.unkept
    assert group.send().status is PutStatus.PUT_OK


def test_report_of_an_earlier_change_answers_nothing() -> None:
    group = Group()
    sent = group.send()
    group.reports(2, group.tables.tables.log.sequence - 1)
    assert sent.status is NO_ANSWER


def test_message_whose_topic_no_member_gets_is_answered_after_a_bounded_time() -> None:
    group = Group()
    sent = group.send()
    group.pass_ms(2000)
    assert sent.status is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert "broker ids 2" in sent.reason
    later = group.send()
    assert later.status is NO_ANSWER
    group.reports(2)
    assert later.status is PutStatus.PUT_OK


def test_member_that_has_gone_silent_is_not_waited_for_and_not_passed_over() -> None:
    group = Group()
    group.reports(2)
    group.pass_ms(10_001)
    assert group.send().status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_topic_that_is_not_on_the_disk_is_not_kept() -> None:
    group = Group()
    group.possible_members = frozenset({1})
    group.tables.is_slow = True
    sent = group.send(with_members=False)
    assert sent.status is NO_ANSWER
    group.tables.save_now()
    assert sent.status is PutStatus.PUT_OK

    group.tables.is_full = True
    sent = group.send("U")
    group.tables.save_now()
    assert sent.status is PutStatus.FLUSH_DISK_TIMEOUT
    assert "no room" in sent.reason
    assert group.send("U").status is PutStatus.FLUSH_DISK_TIMEOUT
    group.tables.is_full = group.tables.is_slow = False
    assert group.send("V").status is PutStatus.PUT_OK
    assert group.send("U").status is PutStatus.PUT_OK, "the save of V holds U as well"


def test_a_topic_that_a_master_took_as_a_slave_and_has_not_saved_is_not_kept() -> None:
    group = Group()
    master = group.role
    group.becomes(Role(name="slave", broker_id=1, epoch=master.epoch))
    group.tables.tables.set_topic(TopicConfig("T", 4, 4))
    group.tables.is_slow = True
    run(group.tables.save_taken(("topic",), ("T",)), lambda _: None)

    group.possible_members = frozenset({1})
    group.becomes(replace(master, epoch=master.epoch + 1))
    sent = group.send(with_members=False)
    assert sent.status is NO_ANSWER
    group.tables.save_now()
    assert sent.status is PutStatus.PUT_OK


def test_slow_disk_ends_the_wait_with_its_own_status() -> None:
    group = Group()
    group.tables.is_slow = True
    sent = group.send()
    group.reports(2)
    group.pass_ms(2000)
    assert sent.status is PutStatus.FLUSH_DISK_TIMEOUT


@pytest.mark.parametrize("with_members", [True, False])
def test_puts_that_need_no_members_wait_for_none(with_members: bool) -> None:
    group = Group()
    group.puts_need_members = False
    assert group.send(with_members=with_members).status is PutStatus.PUT_OK
    assert not group.tables.unkept, "the next sends look at nothing"


def test_message_that_is_to_be_answered_from_memory_waits_for_no_member() -> None:
    group = Group()
    assert group.send(with_members=False).status is PutStatus.PUT_OK
    assert group.send().status is NO_ANSWER


def test_java_slave_reports_nothing_and_is_not_waited_for() -> None:
    group = Group()
    group.possible_members = frozenset({1, 2, 3})
    group.members_without_reports = frozenset({3})
    sent = group.send()
    assert sent.status is NO_ANSWER
    group.reports(2)
    assert sent.status is PutStatus.PUT_OK


def test_member_that_joins_or_leaves_while_a_message_waits_counts_as_it_then_is() -> None:
    group = Group()
    sent = group.send()
    group.possible_members = frozenset({1, 2, 3})
    group.becomes(Role(name="master", broker_id=1, epoch=4, members=frozenset({1, 2}), set_epoch=2))
    group.reports(2)
    assert sent.status is NO_ANSWER
    group.possible_members = frozenset({1, 2})
    group.becomes(Role(name="master", broker_id=1, epoch=4, members=frozenset({1, 2}), set_epoch=3))
    assert sent.status is PutStatus.PUT_OK


def test_message_that_waits_when_its_master_is_replaced_is_no_success() -> None:
    group = Group()
    sent = group.send()
    group.becomes(Role(name="slave", broker_id=1, epoch=5))
    assert sent.status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_role_that_has_ended_leaves_a_set_without_members_which_holds_nothing() -> None:
    group = Group()
    sent = group.send()
    group.possible_members = frozenset()
    group.pass_ms(1999)
    group.tables._wake()
    assert sent.status is NO_ANSWER
    assert group.tables.unkept
    group.pass_ms(1)
    assert sent.status is PutStatus.FLUSH_SLAVE_TIMEOUT


def test_role_that_begins_again_in_its_epoch_keeps_what_is_not_kept() -> None:
    group = Group()
    role = group.role
    group.send()
    group.becomes(Role(broker_id=1))
    group.becomes(role)
    sent = group.send()
    assert sent.status is NO_ANSWER
    group.reports(2)
    assert sent.status is PutStatus.PUT_OK


def test_new_epoch_begins_with_members_that_hold_all_topics() -> None:
    group = Group()
    group.send()
    group.becomes(Role(name="master", broker_id=1, epoch=5))
    assert not group.tables.unkept


def test_message_to_a_topic_that_is_deleted_meanwhile_is_answered() -> None:
    group = Group()
    sent = group.send()
    run(group.tables.delete_topic("T"), lambda _: None)
    assert sent.status is PutStatus.PUT_OK
    again = group.send()
    assert again.status is NO_ANSWER
    group.reports(2)
    assert again.status is PutStatus.PUT_OK


def test_thousand_messages_at_once_wait_for_one_change() -> None:
    group = Group()
    sent = [group.send() for _ in range(1000)]
    assert group.tables.tables.log.sequence == group.tables.tables.log.last_urgent
    assert len(group.tables.unkept) == 1
    group.reports(2)
    assert {each.status for each in sent} == {PutStatus.PUT_OK}


def test_administrator_s_change_ends_with_the_role_and_names_no_empty_set() -> None:
    group = Group()
    group.reports(2)
    answers: list[object] = []
    coroutines.run(
        group.tables.change_topic(TopicConfig("T")),
        is_alive=lambda: True,
        done=answers.append,
        failed=answers.append,
    )
    group.possible_members = frozenset()
    group.tables._wake()
    assert [str(each) for each in answers] == [
        "this broker ceased to be the master before its slaves reported the change; look at the "
        "new master whether it is there"
    ]


def test_queues_that_an_administrator_adds_are_waited_for_by_their_messages_alone() -> None:
    group = Group()
    group.send()
    group.reports(2)
    known = group.tables.topic("T")
    assert known is not None
    count = known.read_queue_count
    more = TopicConfig("T", count + 2, count + 2)
    run(group.tables.change_topic(more), lambda _: None)
    assert group.send(queue=count - 1).status is PutStatus.PUT_OK
    sent = group.send(queue=count + 1)
    assert sent.status is NO_ANSWER
    group.reports(2)
    assert sent.status is PutStatus.PUT_OK
