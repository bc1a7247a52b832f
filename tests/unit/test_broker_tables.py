"""The metadata tables of a broker and RocketMQ's rules for them (spec/broker.md 3, 4, 5, 34)."""

from __future__ import annotations

import pytest

from rmqstore.broker.metadata import groups, topics
from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.changes import REMOVED_MAX, ChangeLog, Entry
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.metadata.spreading import Holders, Spread
from rmqstore.broker.metadata.tables import Tables
from rmqstore.errors import RemotingFrameError, RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import (
    DataVersion,
    DelayOffsets,
    GroupConfig,
    GroupTable,
    RequestMode,
    TimerProgress,
    TopicConfig,
    TopicTable,
)

TEMPLATE = TopicConfig("TBW102", 8, 8, 7)


def tables(*topics: TopicConfig, progress: DelayProgress | None = None) -> Tables:
    made = Tables(
        wall_ms=lambda: 77, of_services=[progress or DelayProgress(flushed_offset=lambda: 100)]
    )
    made["topic"].take_whole(TopicTable({each.name: each for each in topics}))
    return made


# -- topics


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        (" ", "blank"),
        ("a b", "illegal characters"),
        ("a/../b", "illegal characters"),
        ("a@b", "illegal characters"),
        ("x" * 128, "longer than"),
        ("%RETRY%" + "x" * 249, "longer than"),
    ],
)
def test_names_that_no_topic_may_have_are_refused(name: str, remark: str) -> None:
    with pytest.raises(RequestRefused, match=remark) as caught:
        topics.check_name(name)
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


def test_names_of_retry_topics_may_be_longer() -> None:
    topics.check_name("%RETRY%" + "x" * 248)
    topics.check_name("x" * 127)


@pytest.mark.parametrize("name", ["rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX"])
def test_sending_to_topics_of_the_system_is_refused(name: str) -> None:
    with pytest.raises(RequestRefused, match="forbidden") as caught:
        topics.refuse_sending(name)
    assert caught.value.code == ResponseCode.NO_PERMISSION


def made(name: str, **options: object) -> TopicConfig | None:
    given: dict[str, object] = {
        "template": "TBW102",
        "queue_count": 4,
        "is_unit": False,
        "creates_topics": True,
    }
    return topics.made_by_sending(name, {"TBW102": TEMPLATE}.get, **(given | options))  # type: ignore[arg-type]


def test_topic_made_by_sending_inherits_from_its_template() -> None:
    assert made("T") == TopicConfig("T", 4, 4, 6)
    assert made("T", queue_count=20) == TopicConfig("T", 8, 8, 6)
    assert made("T", queue_count=-3) == TopicConfig("T", 0, 0, 6)
    assert made("T", is_unit=True) == TopicConfig("T", 4, 4, 6, sys_flag=1)


def test_no_topic_is_made_without_a_template_that_hands_on() -> None:
    assert made("T", creates_topics=False) is None
    assert made("T", template="unknown") is None


def test_retry_topic_is_made_by_sending_even_without_a_template() -> None:
    assert made("%RETRY%g", creates_topics=False) == TopicConfig("%RETRY%g", 1, 1)


@pytest.mark.parametrize(
    ("text", "current", "is_new", "remark"),
    [
        ("-message.type", {}, True, "only add attribute is supported"),
        ("+unknown=1", {}, True, "unsupported key: unknown"),
        ("+queue.type=BatchCQ", {}, False, "unchangeable attribute. key: queue.type"),
        ("-message.type", {}, False, "nonexistent key: message.type"),
        ("+message.type=MIXED", {}, True, "MIXED"),
        ("+message.type=none", {}, True, "not one of"),
        ("+reserve.time=soon", {}, True, "not an integer"),
        ("message.type=FIFO", {}, False, "kv string format wrong"),
        ("+a+b=1", {}, True, "kv string format wrong"),
    ],
)
def test_wrong_changes_of_attributes_are_refused(
    text: str, current: dict[str, str], is_new: bool, remark: str
) -> None:
    with pytest.raises(RequestRefused, match=remark):
        topics.alter_attributes(current, topics.parse_attributes(text), is_new=is_new)


def test_attributes_are_added_changed_and_deleted() -> None:
    changes = topics.parse_attributes("+message.type=FIFO,-reserve.time")
    current = {"reserve.time": "3", "queue.type": "SimpleCQ"}
    altered = topics.alter_attributes(current, changes, is_new=False)
    assert altered == {"queue.type": "SimpleCQ", "message.type": "FIFO"}


def test_groups_are_made_by_rule() -> None:
    assert groups.may_be_made("g", creates_groups=True)
    assert not groups.may_be_made("g", creates_groups=False)
    assert groups.may_be_made("CID_RMQ_SYS_X", creates_groups=False)
    assert not groups.may_be_made("g@h", creates_groups=True)
    assert not groups.may_be_made("g" * 256, creates_groups=True)
    with pytest.raises(RequestRefused, match="the limit is 120"):
        groups.check_name("g" * 121)


# -- tables


def test_each_change_of_topics_and_groups_steps_their_version() -> None:
    here = tables()
    here.lead(5)
    here.set_topic(TopicConfig("T"))
    assert here.topic_table().data_version == DataVersion(
        state_version=5, timestamp_ms=77, counter=2
    )
    here.set_group(GroupConfig("g"))
    here.remove_group("g", with_offsets=False)
    assert here.group_table() == GroupTable(
        data_version=DataVersion(state_version=5, timestamp_ms=77, counter=3)
    )


def test_clearing_one_forbidden_topic_leaves_the_others_forbidden() -> None:
    here = tables()
    here.forbid("g", "T", 4)
    here.forbid("g", "U", 4)
    here.forbid("g", "T", 0)
    assert not here.is_forbidden("g", "T")
    assert here.is_forbidden("g", "U")
    assert here.group_table().data_version.counter == 3


def test_deleted_topic_takes_its_offsets_along() -> None:
    here = tables(TopicConfig("T"))
    here.offsets.commit("T", "g", 0, 5)
    here.offsets.commit("U", "g", 0, 6)
    here.offsets.pulled("T", "g", 0, 7)
    here.remove_topic("T")
    assert here.offsets.query("T", "g", 0) is None
    assert here.offsets.last_pulled("T", "g", 0) is None
    assert here.offsets.topics_of("g") == ["U"]


def test_delay_offsets_step_their_version_every_200_steps() -> None:
    progress = DelayProgress(flushed_offset=lambda: 1000)
    here = tables(progress=progress)
    for number in range(200):
        assert here.versions()["delays"].counter == 0
        progress.step({1: number + 1}, number)
    version = DataVersion(timestamp_ms=77, counter=1)
    assert progress.saved() == DelayOffsets({1: 200}, version, log_offset=199)


# -- changes


def test_log_names_each_entry_once_at_its_last_change() -> None:
    log = ChangeLog(frozenset({"topic"}))
    log.note("topic", "a")
    log.note("topic", "b")
    log.note("offset", "c")
    log.note("topic", "a")
    assert list(log.after(0)) == [Entry("topic", "a"), Entry("offset", "c"), Entry("topic", "b")]
    assert list(log.after(3)) == [Entry("topic", "a")]
    assert list(log.after(4)) == []
    assert log.last_urgent == 4


def test_log_forgets_old_removals_and_says_so() -> None:
    log = ChangeLog(frozenset())
    for number in range(REMOVED_MAX + 1):
        log.note("topic", str(number), is_removed=True)
    assert log.floor == 1
    assert len(list(log.after(1))) == REMOVED_MAX


def filled() -> Tables:
    progress = DelayProgress(flushed_offset=lambda: 100)
    here = tables(progress=progress)
    here.lead(3)
    here.set_topic(TopicConfig("T", 2, 2, attributes={"message.type": "FIFO"}))
    here.set_topic(TopicConfig("gone"))
    here.remove_topic("gone")
    here.set_group(GroupConfig("g", retries_max=3))
    here.forbid("g", "T", 4)
    here.set_mode(RequestMode("T", "g", "POP", 2))
    here.offsets.commit("T", "g", 1, 9)
    progress.step({3: 8}, 90)
    progress.step_timer(TimerProgress(5000, 7, 95))
    return here


def test_slave_that_takes_the_changes_equals_its_master() -> None:
    master, slave = filled(), tables(TopicConfig("gone"))
    body = ChangeBody.of(master, master.log.after(0)).encode()
    changed = ChangeBody.decode(body).apply(slave)
    assert changed == {"topic", "group", "mode", "offset", "delay"}
    assert slave.topic_table() == master.topic_table()
    assert slave.group_table() == master.group_table()
    assert slave.mode_table() == master.mode_table()
    assert slave["delay"].saved() == master["delay"].saved()
    assert slave.offsets.table.snapshot() == master.offsets.table.snapshot()


@pytest.mark.parametrize(
    "entry",
    [
        ("topic", "U", {"perm": "x"}),
        ("none", "U", {}),
        ("delay", "x", 1),
        ("offset", "k", {"a": 1}),
    ],
)
def test_changes_with_one_wrong_entry_change_nothing(entry: tuple[str, str, object]) -> None:
    master, slave = filled(), tables()
    body = ChangeBody(
        ((Entry("topic", "T"), {}), (Entry(entry[0], entry[1]), entry[2])), master.versions()
    )
    with pytest.raises(RemotingFrameError, match="cannot be read"):
        ChangeBody.decode(body.encode()).apply(slave)
    assert slave.topics == {}
    assert slave.versions() == tables().versions()


# -- members


def test_spread_names_the_members_that_lack_a_change() -> None:
    holders = Holders()
    holders.report(2, 10, now_ms=0)
    holders.report(3, 9, now_ms=0)
    spread = holders.spread(10, {2, 3})
    assert spread == Spread(2, 3, (3,))
    assert spread.remark is not None
    assert spread.remark.startswith("stored on 2 of 3 members")
    assert holders.spread(9, {2, 3}).remark is None
    assert Spread().remark is None


def test_only_slaves_that_ask_regularly_are_waited_for() -> None:
    holders = Holders()
    assert not holders.is_awaited(holders.spread(1, {2}), now_ms=0)
    holders.report(2, 0, now_ms=0)
    assert holders.is_awaited(holders.spread(1, {2}), now_ms=10_000)
    assert not holders.is_awaited(holders.spread(1, {2}), now_ms=10_001)
    holders.forget()
    assert not holders.is_awaited(holders.spread(1, {2}), now_ms=0)
