"""Operations on topics and groups, called without frames: what they change, show and refuse."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metadata.spreading import Spread
from rmqstore.broker.operations.groups import GroupOperations
from rmqstore.broker.operations.topics import TopicChange, TopicOperations
from rmqstore.errors import ArgumentError, RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import QueueProgress, QueueStats
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, RequestMode, TopicConfig
from tests.support.broker_core import RETRY, SLAVE, Core

FIFO = {"+message.type": "FIFO"}
WAITING = Role(name="slave", broker_id=0, waits_for="an operator's word")


def change(name: str = "new", attributes: dict[str, str] | None = None, **more: Any) -> TopicChange:
    return TopicChange(TopicConfig(name, **more), attributes or {})


def changed(core: Core, *changes: TopicChange) -> Spread:
    return asyncio.run(TopicOperations(core).change(changes))


# -- topics


def test_changed_topics_are_kept_in_order_and_then_registered(core: Core) -> None:
    core.spread = Spread(2, 3, (4,))
    assert changed(core, change("a", FIFO), change("b", perm=4)) is core.spread
    assert core.changes == ["topic a", "topic b", "registered"]
    assert core.topics["a"].attributes == {"message.type": "FIFO"}
    assert core.topics["b"].perm == 4


def test_known_topic_keeps_what_a_change_does_not_name(core: Core) -> None:
    core.topics["a"] = TopicConfig("a", attributes={"reserve.time": "1"}, others={"future": 1})
    changed(core, change("a", FIFO))
    assert core.topics["a"].attributes == {"reserve.time": "1", "message.type": "FIFO"}
    assert core.topics["a"].others == {"future": 1}


@pytest.mark.parametrize("count", [0, 2])
def test_change_without_an_effect_confirms_the_last_one(core: Core, count: int) -> None:
    core.topics["new"] = TopicConfig("new")
    changed(core, *[change()] * count)
    assert core.changes == ["confirm", "registered"]


@pytest.mark.parametrize(
    ("refused", "code"),
    [
        (change(""), ResponseCode.INVALID_PARAMETER),
        (change(" "), ResponseCode.INVALID_PARAMETER),
        (change("a/b"), ResponseCode.INVALID_PARAMETER),
        (change("a" * 128), ResponseCode.INVALID_PARAMETER),
        (change("SELF_TEST_TOPIC"), ResponseCode.INVALID_PARAMETER),
        (change(read_queue_count=-1), ResponseCode.INVALID_PARAMETER),
        (change(write_queue_count=65_537), ResponseCode.INVALID_PARAMETER),
        (change(read_queue_count=2**31 - 1), ResponseCode.INVALID_PARAMETER),
        (change(perm=8), ResponseCode.INVALID_PARAMETER),
        (change(perm=-1), ResponseCode.INVALID_PARAMETER),
        (change(attributes={"message.type": "FIFO"}), ResponseCode.SYSTEM_ERROR),
        (change(attributes={"+message.type": "x" * 100_000}), ResponseCode.SYSTEM_ERROR),
        (change(attributes={"-message.type": ""}), ResponseCode.SYSTEM_ERROR),
    ],
)
def test_refused_topic_changes_none_of_its_list(
    core: Core, refused: TopicChange, code: int
) -> None:
    with pytest.raises(RequestRefused) as caught:
        changed(core, change("good"), refused)
    assert caught.value.code == code
    assert core.changes == []


@pytest.mark.parametrize(
    "wrong", [{"name": 5}, {"read_queue_count": "4"}, {"perm": None}, {"order": "true"}]
)
def test_topic_of_wrong_types_reaches_no_operation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        TopicConfig(**{"name": "new"} | wrong)


@pytest.mark.parametrize("role", [SLAVE, WAITING, Role()])
def test_only_a_master_changes_topics_and_groups(core: Core, role: Role) -> None:
    core.role = role
    groups = GroupOperations(core)
    for refused in (
        TopicOperations(core).change([change()]),
        TopicOperations(core).change([]),
        groups.change(GroupConfig("new")),
        groups.delete("G", with_offsets=True),
        groups.set_mode(RequestMode("T", "G")),
        groups.allow("G", "T", is_readable=False),
    ):
        with pytest.raises(RequestRefused):
            asyncio.run(refused)
    assert core.changes == []
    assert core.topics.keys() == {"T", RETRY}


def test_deleted_topic_is_gone_from_the_nameservers_too(core: Core) -> None:
    assert asyncio.run(TopicOperations(core).delete("T")) is core.spread
    assert core.changes == ["delete topic T", "registered"]


@pytest.mark.parametrize("retry_topic", ["%RETRY%G_T", "%RETRY%G+T"])
def test_deleted_topic_goes_with_its_messages_that_are_popped_again(
    core: Core, retry_topic: str
) -> None:
    core.topics[retry_topic] = TopicConfig(retry_topic)
    core.offsets.commit("T", "G", 0, 1)
    asyncio.run(TopicOperations(core).delete("T"))
    assert core.changes == ["delete topic T", f"delete topic {retry_topic}", "registered"]


def test_retry_topic_that_may_be_of_another_topic_stays_at_a_deletion(core: Core) -> None:
    # Of group pay and topic eu_T, or of group pay_eu and topic T.
    shared = "%RETRY%pay_eu_T"
    core.topics |= {name: TopicConfig(name) for name in ("eu_T", shared)}
    core.groups |= {name: GroupConfig(name) for name in ("pay", "pay_eu")}
    core.offsets.commit("T", "pay_eu", 0, 1)
    asyncio.run(TopicOperations(core).delete("T"))
    assert core.changes == ["delete topic T", "registered"]

    core.topics["T"] = TopicConfig("T")
    del core.groups["pay"]
    asyncio.run(TopicOperations(core).delete("T"))
    assert f"delete topic {shared}" in core.changes


def test_retry_topic_stays_at_a_deletion_where_the_broker_is_told_so(core: Core) -> None:
    core.config = core.config.replace(clears_pop_retries=False)
    core.topics["%RETRY%G_T"] = TopicConfig("%RETRY%G_T")
    core.offsets.commit("T", "G", 0, 1)
    asyncio.run(TopicOperations(core).delete("T"))
    assert core.changes == ["delete topic T", "registered"]


def test_deletion_is_left_to_the_master_by_a_slave_that_has_one(core: Core) -> None:
    core.role = SLAVE
    assert asyncio.run(TopicOperations(core).delete("T")) is None
    core.role = WAITING
    with pytest.raises(RequestRefused):
        asyncio.run(TopicOperations(core).delete("T"))
    assert core.changes == []


@pytest.mark.parametrize("name", ["", " \t", "SELF_TEST_TOPIC", "rmq_sys_x"])
def test_topic_that_nobody_may_delete(core: Core, name: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(TopicOperations(core).delete(name))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert core.changes == []


def test_stats_of_a_topic_are_the_bounds_of_all_its_queues(core: Core) -> None:
    core.topics["T"] = TopicConfig("T", 1, 2)
    core.store.store.put("T", b"x", queue=1)
    record = core.record(queue=1)
    stats = asyncio.run(TopicOperations(core).stats("T"))
    assert stats.queues == {
        QueueName("T", "broker-a", 0): QueueStats(),
        QueueName("T", "broker-a", 1): QueueStats(0, 1, record.store_timestamp),
    }
    assert stats.put_rate == 0.0


def test_queue_whose_messages_are_all_deleted_has_no_last_time(core: Core) -> None:
    core.store.store = SimpleNamespace(queue=lambda *_: SimpleNamespace(start=3, end=3))
    stats = asyncio.run(TopicOperations(core).stats("T"))
    assert set(stats.queues.values()) == {QueueStats(3, 3, 0)}


def test_unknown_topic_has_neither_configuration_nor_stats(core: Core) -> None:
    operations = TopicOperations(core)
    assert operations.config("T") is core.topics["T"]
    for name in ("", "U", "x" * 100_000):
        with pytest.raises(RequestRefused) as caught:
            operations.config(name)
        assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
        with pytest.raises(RequestRefused) as caught:
            asyncio.run(operations.stats(name))
        assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST
        assert list(operations.groups_of(name)) == []


def test_groups_with_offsets_on_a_topic_and_topics_of_the_system(core: Core) -> None:
    core.offsets.commit("T", "G", 0, 1)
    assert list(TopicOperations(core).groups_of("T")) == ["G"]
    assert TopicOperations(core).system_topics() == ["BenchmarkTest", "SELF_TEST_TOPIC"]


# -- groups


def test_group_is_changed_and_deleted_with_or_without_its_offsets(core: Core) -> None:
    operations = GroupOperations(core)
    core.spread = Spread(2, 3, (4,))
    assert asyncio.run(operations.change(GroupConfig("new", retries_max=2))) is core.spread
    assert operations.config("new").retries_max == 2
    for with_offsets in (True, False):
        asyncio.run(operations.delete("new", with_offsets=with_offsets))
    assert core.changes == ["group new", "delete group new with offsets", "delete group new"]
    with pytest.raises(RequestRefused) as caught:
        operations.config("new")
    assert caught.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


@pytest.mark.parametrize("name", ["", " ", "a b", "g" * 121])
def test_group_with_such_a_name_is_not_made(core: Core, name: str) -> None:
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(GroupOperations(core).change(GroupConfig(name)))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert core.changes == []


@pytest.mark.parametrize("wrong", [{"name": 5}, {"retries_max": "2"}, {"consume_enabled": None}])
def test_group_of_wrong_types_reaches_no_operation(wrong: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        GroupConfig(**{"name": "new"} | wrong)


@pytest.mark.parametrize(
    ("mode", "code"),
    [
        (RequestMode(RETRY, "G"), ResponseCode.NO_PERMISSION),
        (RequestMode("", "G"), ResponseCode.INVALID_PARAMETER),
        (RequestMode("T", ""), ResponseCode.INVALID_PARAMETER),
        (RequestMode("T", "G", "PUSH"), ResponseCode.INVALID_PARAMETER),
        (RequestMode("T", "G", ""), ResponseCode.INVALID_PARAMETER),
        (RequestMode("absent", "G"), ResponseCode.TOPIC_NOT_EXIST),
        (RequestMode("T", "absent"), ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
    ],
)
def test_refused_mode_is_not_set(core: Core, mode: RequestMode, code: int) -> None:
    core.makes_groups = False
    with pytest.raises(RequestRefused) as caught:
        asyncio.run(GroupOperations(core).set_mode(mode))
    assert caught.value.code == code
    assert core.modes == []


def test_mode_of_a_group_on_a_topic_is_set(core: Core) -> None:
    mode = RequestMode("T", "G", "POP", 4)
    assert asyncio.run(GroupOperations(core).set_mode(mode)) is core.spread
    assert core.modes == [mode]


def test_mode_of_an_unknown_group_makes_the_group_as_a_consumer_does(core: Core) -> None:
    asyncio.run(GroupOperations(core).set_mode(RequestMode("T", "new", "POP")))
    assert "new" in core.groups
    assert len(core.modes) == 1


def test_forbidden_group_may_read_the_topic_once_it_is_allowed_again(core: Core) -> None:
    operations = GroupOperations(core)
    assert operations.may_read("G", "T")
    for is_readable in (False, True):
        asyncio.run(operations.allow("G", "T", is_readable=is_readable))
        assert operations.may_read("G", "T") is is_readable


def test_progress_of_a_group_in_each_queue_that_it_reads(core: Core) -> None:
    core.topics["T"] = TopicConfig("T", 3, 4)
    for queue in (0, 1):
        core.store.store.put("T", b"x", queue=queue)
        core.record(queue=queue)
    core.offsets.commit("T", "G", 0, 1)
    core.offsets.pulled("T", "G", 0, 1)
    core.offsets.commit("T", "G", 1, 2**63 - 1)
    queues = asyncio.run(GroupOperations(core).stats("G")).queues
    assert queues == {
        QueueName("T", "broker-a", 0): QueueProgress(1, 1, 1, core.record().store_timestamp),
        QueueName("T", "broker-a", 1): QueueProgress(1, 2**63 - 1, 2**63 - 1, 0),
        QueueName("T", "broker-a", 2): QueueProgress(),
    }


def test_progress_is_that_of_the_given_topics_or_of_all_with_offsets(core: Core) -> None:
    operations = GroupOperations(core)
    assert asyncio.run(operations.stats("G")).queues == {}
    assert {each.topic for each in asyncio.run(operations.stats("G", ["T", "U", ""])).queues} == {
        "T"
    }
    core.offsets.commit("T", "G", 0, 0)
    assert len(asyncio.run(operations.stats("G")).queues) == 4
    assert asyncio.run(operations.stats("g" * 100_000, ["T"])).get_rate == 0.0
