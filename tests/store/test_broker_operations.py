"""The operations of a broker, called without frames: what they store, read, refuse and count."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from rmqstore.broker.broadcast_offsets import Reader
from rmqstore.broker.clients import BROADCASTING
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.operations import queue_reads
from rmqstore.broker.operations.filters import ALL, Filter, filter_of
from rmqstore.broker.operations.offsets import GroupQueue, OffsetOperations, Reset
from rmqstore.broker.operations.pull import (
    CheckedPull,
    Forbidding,
    Outcome,
    Pull,
    PullForbidden,
    PullOperation,
    PullResult,
)
from rmqstore.broker.operations.send import ClientMessage, SendOperation, Sent
from rmqstore.errors import PutError, RequestRefused
from rmqstore.message import Durability, PutStatus
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.broker_core import DEAD, RETRY, SLAVE, Core, finished
from tests.support.sends import properties_text

# -- send


def message(more: dict[str, str] | None = None, **changes: Any) -> ClientMessage:
    values: dict[str, Any] = {
        "topic": "T",
        "body": b"paid",
        "properties": {"UNIQ_KEY": "K", **(more or {})},
        "queue": 0,
        "flag": 9,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_000,
        "born_host": ("10.0.1.1", 4000),
        "default_topic": "TBW102",
        "default_topic_queues": 4,
    }
    return ClientMessage(**values | changes)


def batch(*texts: dict[str, str]) -> bytes:
    pieces = []
    for each in texts:
        text = properties_text(each).encode()
        pieces.append(struct.pack(">iiiiich", 23 + len(text), 0, 0, 7, 1, b"x", len(text)) + text)
    return b"".join(pieces)


def test_message_is_stored_with_the_properties_of_the_broker_and_counted(core: Core) -> None:
    sent = SendOperation(core).send(message({"TAGS": "eu"}))
    assert isinstance(sent, Sent)
    assert (sent.key, sent.is_inner, sent.status) == ("K", False, PutStatus.PUT_OK)
    record = core.record()
    assert (record.body, record.flag, record.born_timestamp) == (b"paid", 9, 1_700_000_000_000)
    assert (record.born_host, record.reconsume_times) == (("10.0.1.1", 4000), 0)
    own = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster"}
    assert record.properties == {"UNIQ_KEY": "K", "TAGS": "eu"} | own
    assert core.counted("putMessageTimesTotal") == 1


def test_operation_leaves_its_argument_as_it_was(core: Core) -> None:
    properties = {"__CRC32#": "1", "POP_CK": "2", "_SYS_MSG_PRIORITY_": "1", "__SHARDINGKEY": "s"}
    asked = message(properties)
    SendOperation(core).send(asked)
    assert asked == message(properties)
    assert not {"__CRC32#", "POP_CK", "_SYS_MSG_PRIORITY_"} & core.record().properties.keys()


def test_message_that_waits_for_nothing_asks_for_memory(core: Core) -> None:
    for wait in ("false", "FALSE", "true"):
        SendOperation(core).send(message({"WAIT": wait}))
    assert core.durabilities == [Durability.MEMORY, Durability.MEMORY, None]


@pytest.mark.parametrize(("priority", "queue"), [("0", 0), ("3", 3), ("9", 3)])
def test_priority_chooses_the_queue(core: Core, priority: str, queue: int) -> None:
    asked = message({"_SYS_MSG_PRIORITY_": priority}, queue=1)
    assert finished(SendOperation(core).send(asked)).receipts.queue == queue


def test_message_without_queue_and_key_gets_both(core: Core) -> None:
    sent = SendOperation(core).send(message(queue=-1, properties={}))
    assert isinstance(sent, Sent)
    assert sent.key is not None
    assert len(sent.key) == 32


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"queue": 4}, ResponseCode.INVALID_PARAMETER, "queueId"),
        ({"sys_flag": 0x8}, ResponseCode.MESSAGE_ILLEGAL, "ends a transaction"),
        ({"sys_flag": 0x80}, ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
        ({"properties": {"DELAY": "x"}}, ResponseCode.MESSAGE_ILLEGAL, "delay level"),
        ({"properties": {"a": "\0"}}, ResponseCode.MESSAGE_ILLEGAL, "0 byte"),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "T/x"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"is_batch": True, "body": b""}, ResponseCode.MESSAGE_ILLEGAL, "empty"),
        ({"is_batch": True, "body": b"\0"}, ResponseCode.MESSAGE_ILLEGAL, "at least"),
    ],
)
def test_refused_message_stores_nothing(
    core: Core, changes: dict[str, Any], code: int, remark: str
) -> None:
    with pytest.raises(RequestRefused, match=remark) as caught:
        finished(SendOperation(core).send(message(**changes)))
    assert caught.value.code == code
    assert core.store.store.end_offset == 0


@pytest.mark.parametrize(
    ("changes", "is_dead"),
    [
        ({"reconsume_times": 3}, False),
        ({"reconsume_times": 4}, True),
        ({"reconsume_times": 2, "retries_max": 1}, True),
        ({"reconsume_times": 4, "retries_max": 4}, False),
        ({"reconsume_times": 4, "properties": {"DELAY": "3"}}, True),
    ],
)
def test_retry_over_its_limit_is_a_dead_letter(
    core: Core, changes: dict[str, Any], is_dead: bool
) -> None:
    finished(SendOperation(core).send(message(topic=RETRY, **changes)))
    assert core.store.store.record_at(0).topic == (DEAD if is_dead else RETRY)


@pytest.mark.parametrize(
    ("role", "remark"),
    [
        (Role(name="slave", broker_id=1, master_address=("10.0.0.2", 1)), "is a slave"),
        (Role(name="slave", broker_id=0, waits_for="it waits"), "it waits"),
        (Role(), "is a None"),
    ],
)
@pytest.mark.parametrize("topic", ["T", "new", RETRY])
def test_broker_that_is_not_master_takes_no_message(
    core: Core, role: Role, remark: str, topic: str
) -> None:
    core.role = role
    with pytest.raises(RequestRefused, match=remark):
        finished(SendOperation(core).send(message(topic=topic)))


def test_message_makes_its_topic_unless_the_broker_makes_none(core: Core) -> None:
    assert finished(SendOperation(core).send(message(topic="new"))).receipts.topic == "new"
    core.makes_topics = False
    with pytest.raises(RequestRefused, match="not exist") as caught:
        finished(SendOperation(core).send(message(topic="newer")))
    assert caught.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_retry_of_an_unknown_group_is_refused(core: Core) -> None:
    core.makes_groups = False
    with pytest.raises(RequestRefused, match="subscription group not exist"):
        finished(SendOperation(core).send(message(topic=RETRY)))


def test_batch_is_one_record_for_each_message(core: Core) -> None:
    body = batch({"TAGS": "a"}, {"TAGS": "b"})
    sent = finished(SendOperation(core).send(message(body=body, is_batch=True)))
    assert [each.queue_offset for each in sent.receipts] == [0, 1]
    assert (sent.key, sent.is_inner) == ("K", False)
    assert core.record(1).properties["TAGS"] == "b"
    assert core.record(1).properties["MSG_REGION"] == "DefaultRegion"
    assert core.counted("putMessageTimesTotal") == 2


@pytest.mark.parametrize("status", ["FLUSH_DISK_TIMEOUT", "FLUSH_SLAVE_TIMEOUT"])
def test_stored_message_that_is_not_acknowledged_is_a_result_with_its_receipt(
    core: Core, status: str
) -> None:
    core.failure = PutError("no copy", status=status)
    sent = finished(SendOperation(core).send(message()))
    assert (sent.status, sent.reason, sent.key) == (status, "no copy", "K")
    assert sent.receipts.queue_offset == 0
    assert core.counted("putMessageTimesTotal") == 1
    assert core.counted("putMessageFailedTimes") == 0


@pytest.mark.parametrize("is_stored", [False, True])
def test_put_that_the_store_refuses_raises_its_error_and_is_counted(
    core: Core, is_stored: bool
) -> None:
    error = PutError("too few", status="IN_SYNC_REPLICAS_NOT_ENOUGH")
    if is_stored:
        core.failure = error
    else:
        core.refusal = error
    with pytest.raises(PutError, match="too few"):
        finished(SendOperation(core).send(message()))
    assert core.counted("putMessageFailedTimes") == 1
    assert core.counted("putMessageTimesTotal") == 0


def test_result_is_a_success_only_once_the_topic_of_the_message_is_kept(core: Core) -> None:
    core.wait = SimpleNamespace(topic="T")
    core.kept = PutStatus.FLUSH_SLAVE_TIMEOUT, "broker ids 2 have not reported it"
    sent = finished(SendOperation(core).send(message()))
    assert sent.status is PutStatus.FLUSH_SLAVE_TIMEOUT
    assert sent.receipts.queue_offset == 0
    assert "lose its topic T" in sent.reason
    assert finished(SendOperation(core).send(message({"WAIT": "false"}))).reason == ""


def test_failure_of_a_stored_message_is_reported_before_its_topic(core: Core) -> None:
    core.wait = SimpleNamespace(topic="T")
    core.kept = PutStatus.FLUSH_SLAVE_TIMEOUT, "broker ids 2 have not reported it"
    core.failure = PutError("no flush", status="FLUSH_DISK_TIMEOUT")
    sent = finished(SendOperation(core).send(message()))
    assert (sent.status, sent.reason) == (PutStatus.FLUSH_DISK_TIMEOUT, "no flush")


def test_broker_without_permission_to_write_refuses_messages_of_ordered_topics(core: Core) -> None:
    core.config = core.config.replace(permission=4)
    finished(SendOperation(core).send(message()))
    core.topics["T"] = TopicConfig("T", 4, 4, order=True)
    with pytest.raises(RequestRefused, match="the broker"):
        SendOperation(core).send(message())


def test_flags_of_a_record_are_those_of_the_message_and_of_its_topic(core: Core) -> None:
    core.topics["T"] = TopicConfig("T", 4, 4, filter_type="MULTI_TAG")
    finished(SendOperation(core).send(message(sys_flag=0x1 | 0x10 | 0x20)))
    assert core.store.store.record_at(0).sys_flag == 0x1 | 0x2

    body = batch({"TAGS": "a"}, {"TAGS": "b"})
    finished(SendOperation(core).send(message(body=body, is_batch=True, sys_flag=0x80)))
    assert core.record(2).sys_flag == 0x2


# -- pull


def pull(offset: int = 0, **changes: Any) -> Pull:
    values = {"group": "G", "topic": "T", "queue": 0, "messages_max": 32, "has_subscription": True}
    return Pull(offset=offset, **values | changes)


def clients(**changes: Any) -> Any:
    """Return a table of clients in which the group G subscribes to the tag eu of T, version 5."""
    subscription = {"expression_type": "TAG", "expression": "eu", "version": 5} | changes
    known = SimpleNamespace(
        subscriptions={"T": SimpleNamespace(**subscription)}, message_model=BROADCASTING
    )
    return SimpleNamespace(consumer_group={"G": known}.get)


def pulled(core: Core, asked: Pull, known: Any = None) -> PullResult:
    operation = PullOperation(core, known or clients())
    result = finished(operation.first(finished(operation.check(asked))))
    assert isinstance(result, PullResult)
    return result


def put(core: Core, *tags: str) -> None:
    for each in tags:
        core.store.store.put("T", b"x", tags=each)
    core.record(len(tags) - 1)  # Waits until the queue holds the messages.


def test_pull_returns_the_records_from_its_offset_and_the_bounds(core: Core) -> None:
    put(core, "eu", "us", "eu")
    result = pulled(core, pull(1, messages_max=1))
    assert (result.outcome, result.next_offset, result.message_count) == (Outcome.FOUND, 2, 1)
    assert (result.min_offset, result.max_offset, result.is_slow) == (0, 3, False)
    record = core.record(1)
    assert len(result.records) == record.size


def test_broadcasting_consumer_goes_on_where_it_was_when_it_comes_through_a_proxy(
    core: Core,
) -> None:
    put(core, "eu", "us", "eu")
    operation = PullOperation(core, clients())

    def read(offset: int, **changes: Any) -> tuple[Outcome, int]:
        reader = Reader("T", "G", changes.pop("client_id", "c"), is_proxied=changes.pop("proxied"))
        checked = finished(operation.check(pull(offset, reader=reader, expression="*")))
        result = finished(operation.first(checked))
        return result.outcome, result.next_offset

    assert read(2, proxied=False) == (Outcome.FOUND, 3)
    assert read(-1, proxied=True) == (Outcome.RESET, 2)
    assert read(2, proxied=True) == (Outcome.FOUND, 3)
    assert read(-1, proxied=True, client_id="new") == (Outcome.RESET, 0)
    core.offsets.commit("T", "G@broadcast", 0, 1)
    assert read(-1, proxied=True, client_id="newer") == (Outcome.RESET, 1)


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"expression": "us || ap"}, 1),
        ({"expression": "*"}, 3),
        ({"expression": None}, 3),
        ({"has_subscription": False}, 2),
        ({"has_subscription": False, "subscription_version": 6}, 3),
        ({"messages_max": 0}, 1),
        ({"bytes_max": 0}, 1),
    ],
)
def test_filter_and_limits_choose_the_messages(
    core: Core, changes: dict[str, Any], count: int
) -> None:
    put(core, "eu", "us", "eu")
    assert pulled(core, pull(**changes)).message_count == count


@pytest.mark.parametrize(
    ("offset", "is_leading", "outcome", "next_offset"),
    [
        (2, True, Outcome.NONE, 2),
        (7, True, Outcome.MOVED, 2),
        (7, False, Outcome.RETRY, 2),
    ],
)
def test_offset_outside_of_the_queue(
    core: Core, offset: int, is_leading: bool, outcome: Outcome, next_offset: int
) -> None:
    put(core, "eu", "eu")
    core.is_leading = is_leading
    result = pulled(core, pull(offset))
    assert (result.outcome, result.next_offset, result.records) == (outcome, next_offset, b"")


@pytest.mark.parametrize(("offset", "outcome"), [(0, Outcome.NONE), (3, Outcome.MOVED)])
def test_empty_queue_moves_only_a_consumer_that_is_past_its_start(
    core: Core, offset: int, outcome: Outcome
) -> None:
    core.is_leading = False
    assert pulled(core, pull(offset)).outcome is outcome


def test_messages_of_other_tags_are_passed_over(core: Core) -> None:
    put(core, "us", "us")
    result = pulled(core, pull(expression="eu"))
    assert (result.outcome, result.next_offset) == (Outcome.RETRY, 2)


@pytest.mark.parametrize(
    ("changes", "code", "remark"),
    [
        ({"topic": "U"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        ({"queue": 4}, ResponseCode.INVALID_PARAMETER, "queueId"),
        ({"queue": -1}, ResponseCode.INVALID_PARAMETER, "queueId"),
        ({"expression": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "0 tags"),
        ({"expression_type": "SQL92"}, ResponseCode.SYSTEM_ERROR, "SQL92"),
        ({"topic": "U", "expression": "||"}, ResponseCode.TOPIC_NOT_EXIST, "not exist"),
        (
            {"group": "new", "has_subscription": False},
            ResponseCode.SUBSCRIPTION_NOT_EXIST,
            "heartbeat",
        ),
    ],
)
def test_refused_pull_names_its_reason(
    core: Core, changes: dict[str, Any], code: int, remark: str
) -> None:
    with pytest.raises(RequestRefused, match=remark) as caught:
        pulled(core, pull(**changes))
    assert caught.value.code == code


def test_unknown_group_is_refused_by_a_broker_that_makes_none(core: Core) -> None:
    core.makes_groups = False
    with pytest.raises(RequestRefused, match="does not exist"):
        pulled(core, pull(group="new"))


@pytest.mark.parametrize("by", Forbidding)
def test_pull_without_a_permission_names_what_forbids_it(core: Core, by: Forbidding) -> None:
    match by:
        case Forbidding.BROKER:
            core.config = core.config.replace(permission=2)
        case Forbidding.GROUP:
            core.groups["G"] = GroupConfig("G", consume_enabled=False)
        case Forbidding.TOPIC:
            core.topics["T"] = TopicConfig("T", 4, 4, perm=2)
        case Forbidding.BROADCAST:
            core.groups["G"] = GroupConfig("G", broadcast_enabled=False)
        case Forbidding.SUBSCRIPTION:
            core.forbidden.add(("G", "T"))
    with pytest.raises(PullForbidden) as caught:
        pulled(core, pull(has_subscription=False))
    assert (caught.value.by, caught.value.code) == (by, ResponseCode.NO_PERMISSION)


@pytest.mark.parametrize(
    ("of_heartbeat", "of_pull"),
    [("SQL92", {}), ("TAG", {"expression_type": "SQL92"}), ("SQL92", {"subscription_version": 4})],
)
def test_expression_that_is_none_of_tags_is_refused_whichever_subscription_counts(
    core: Core, of_heartbeat: str, of_pull: dict[str, Any]
) -> None:
    asked = pull(has_subscription=False, **{"subscription_version": 6} | of_pull)
    with pytest.raises(RequestRefused, match="SQL92"):
        pulled(core, asked, clients(expression_type=of_heartbeat))


def test_message_that_is_not_in_memory_is_read_on_a_thread(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(core, "eu", "eu")
    monkeypatch.setattr(queue_reads, "bytes_in_memory", lambda: 10)
    operation = PullOperation(core, clients())
    found = operation.first(finished(operation.check(pull())))
    assert isinstance(found, Coroutine)

    async def read() -> PullResult:
        return await found

    result = asyncio.run(read())
    assert (result.outcome, result.message_count, result.is_slow) == (Outcome.FOUND, 2, True)


def test_slave_serves_pulls_where_it_is_configured_to_or_shown_as_master(core: Core) -> None:
    put(core, "eu")
    core.role, core.is_leading = SLAVE, False
    assert pulled(core, pull()).outcome is Outcome.FOUND
    core.config = core.config.replace(slave_reads=False)
    with pytest.raises(RequestRefused, match="slaveReadEnable"):
        pulled(core, pull())
    core.is_shown_as_master = True
    assert pulled(core, pull()).outcome is Outcome.FOUND


def test_only_a_master_commits_the_offset_of_a_pull(core: Core) -> None:
    pulled(core, pull(commit_offset=7))
    assert core.offsets.query("T", "G", 0) == 7
    core.role = SLAVE
    pulled(core, pull(commit_offset=8))
    assert core.offsets.query("T", "G", 0) == 7


def test_reset_moves_the_consumer_once_and_is_not_counted(core: Core) -> None:
    put(core, "eu", "eu")
    core.offsets.reset("T", "G", 0, 1)
    operation = PullOperation(core, clients())
    checked = finished(operation.check(pull()))
    result = finished(operation.first(checked))
    assert (result.outcome, str(result.status)) == (Outcome.RESET, "OFFSET_RESET")
    assert (result.next_offset, result.min_offset, result.max_offset) == (1, 0, 2)
    operation.delivered(checked, result)
    assert core.offsets.last_pulled("T", "G", 0) is None
    assert operation.next_broker(checked, result) == 0
    assert pulled(core, pull()).outcome is Outcome.FOUND


def test_delivered_result_is_counted_and_suggests_the_next_broker(core: Core) -> None:
    put(core, "eu", "eu")
    core.groups["G"] = GroupConfig("G", broker_id=3, slow_consumer_broker_id=4)
    operation = PullOperation(core, clients())
    checked = finished(operation.check(pull()))
    result = operation.read(checked, 0)
    assert core.offsets.last_pulled("T", "G", 0) is None
    operation.delivered(checked, result)
    assert core.offsets.last_pulled("T", "G", 0) == 2
    assert operation.next_broker(checked, result) == 3
    assert operation.next_broker(checked, result._replace(is_slow=True)) == 4
    core.config = core.config.replace(slave_reads=False)
    assert operation.next_broker(checked, result) == 0


@pytest.mark.parametrize("role", [Role(), SLAVE])
def test_pull_that_waited_is_refused_in_a_role_that_serves_none(core: Core, role: Role) -> None:
    put(core, "eu")
    operation = PullOperation(core, clients())
    checked = finished(operation.check(pull()))
    assert isinstance(checked, CheckedPull)
    assert operation.read_again(checked, 0).outcome is Outcome.FOUND
    core.role = role
    core.config = core.config.replace(slave_reads=False)
    with pytest.raises(RequestRefused, match="role of this broker has changed"):
        operation.read_again(checked, 0)
    assert operation.read(checked, 0).outcome is Outcome.FOUND


def test_filters_of_tags() -> None:
    assert filter_of("TAG", " a || b||a|| ", allows_sql=False) == Filter(("a", "b"))
    for everything in (None, "", "*"):
        assert filter_of("TAG", everything, allows_sql=False) is ALL
    with pytest.raises(RequestRefused, match="65 tags"):
        filter_of("TAG", "||".join(map(str, range(65))), allows_sql=False)


# -- offsets


def of_group(queue: int = 0, *, topic: str = "T", group: str = "G") -> GroupQueue:
    return GroupQueue(group=group, topic=topic, queue=queue)


def test_group_without_an_offset_begins_at_0_of_a_queue_that_is_whole_and_recent(
    core: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(core, "eu", "eu")
    assert OffsetOperations(core).query(of_group()) == 0
    assert OffsetOperations(core).query(of_group(3)) == 0
    with pytest.raises(RequestRefused, match="do not set to zero") as caught:
        OffsetOperations(core).query(of_group(), begins_at_zero=False)
    assert caught.value.code == ResponseCode.QUERY_NOT_FOUND
    monkeypatch.setattr(queue_reads, "bytes_in_memory", lambda: 10)
    with pytest.raises(RequestRefused, match="boot first"):
        OffsetOperations(core).query(of_group())
    assert OffsetOperations(core).query(of_group(3)) == 0


def test_group_without_an_offset_decides_where_it_begins_in_a_queue_that_lost_messages(
    core: Core,
) -> None:
    core.store.store = SimpleNamespace(queue=lambda *_: SimpleNamespace(start=1, end=1))
    with pytest.raises(RequestRefused, match="boot first"):
        OffsetOperations(core).query(of_group())


def test_committed_offset_is_returned_until_a_reset_that_the_consumer_must_receive_first(
    core: Core,
) -> None:
    operations = OffsetOperations(core)
    assert operations.commit(of_group(), 7)
    assert operations.query(of_group(), begins_at_zero=False) == 7
    assert asyncio.run(operations.reset(Reset(group="G", topic="T"))) == dict.fromkeys(range(4), 0)
    assert not operations.commit(of_group(), 8)
    assert operations.query(of_group()) == 0


@pytest.mark.parametrize(
    ("queue", "offset", "code"),
    [
        (of_group(group="g"), 0, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        (of_group(topic="U"), 0, ResponseCode.TOPIC_NOT_EXIST),
        (of_group(4), 0, ResponseCode.INVALID_PARAMETER),
        (of_group(-1), 0, ResponseCode.INVALID_PARAMETER),
        (of_group(), -1, ResponseCode.INVALID_PARAMETER),
    ],
)
def test_commit_that_names_nothing_is_refused(
    core: Core, queue: GroupQueue, offset: int, code: int
) -> None:
    with pytest.raises(RequestRefused) as caught:
        OffsetOperations(core).commit(queue, offset)
    assert caught.value.code == code


def test_offset_past_the_end_of_its_queue_is_taken_and_reported_once(
    core: Core, caplog: pytest.LogCaptureFixture
) -> None:
    operations = OffsetOperations(core)
    assert operations.commit(of_group(), 0)
    assert not caplog.records
    for _ in range(2):
        assert operations.commit(of_group(), 5)
    assert [each.getMessage() for each in caplog.records] == [
        "the group G commits offset 5 of queue 0 of topic T, whose next message has offset 0: it "
        "skips 5 messages; reset the group if that is not wanted"
    ]
    assert operations.query(of_group()) == 5


def test_negative_queue_has_no_offset(core: Core) -> None:
    with pytest.raises(RequestRefused, match="numbered from 0"):
        OffsetOperations(core).query(of_group(-1))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"queue": 0, "offset": 1}, {0: 1}),
        ({"queue": 0}, {0: 2}),
        ({"queue": 0, "time_ms": 0}, {0: 0}),
        ({}, {0: 2, 1: 0, 2: 0, 3: 0}),
        ({"offset": 1}, {0: 2, 1: 0, 2: 0, 3: 0}),
        ({"time_ms": 0}, {0: 0, 1: 0, 2: 0, 3: 0}),
    ],
)
def test_reset_sets_the_offset_of_a_queue_or_those_of_a_time(
    core: Core, changes: dict[str, Any], expected: dict[int, int]
) -> None:
    put(core, "eu", "eu")
    found = asyncio.run(OffsetOperations(core).reset(Reset(group="G", topic="T", **changes)))
    assert found == expected
    assert {each: core.offsets.query("T", "G", each) for each in found} == expected


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": "U"}, "Topic U"),
        ({"group": "g"}, "Group g"),
        ({"queue": 4}, "no queue 4"),
        ({"queue": 0, "offset": 3}, "range"),
    ],
)
def test_refused_reset_sets_nothing(core: Core, changes: dict[str, Any], remark: str) -> None:
    put(core, "eu", "eu")
    reset = Reset(**{"group": "G", "topic": "T"} | changes)
    with pytest.raises(RequestRefused, match=remark):
        asyncio.run(OffsetOperations(core).reset(reset))
    assert core.offsets.query("T", "G", 0) is None


def test_slave_resets_nothing(core: Core) -> None:
    core.role = SLAVE
    with pytest.raises(RequestRefused, match="slave"):
        asyncio.run(OffsetOperations(core).reset(Reset(group="G", topic="T")))
