"""The operations of a broker, called without frames: what they store, read, refuse and count."""

from __future__ import annotations

import struct
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import rmqstore
from rmqstore.broker.operations.send import ClientMessage, SendOperation, Sent
from rmqstore.broker.roles import Role
from rmqstore.broker.traffic import Traffic
from rmqstore.config import BrokerConfig
from rmqstore.errors import PutError, RequestRefused
from rmqstore.message import Durability, PutStatus
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.agreement import FILES
from tests.support.sends import properties_text

RETRY = "%RETRY%G"


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
        self.config = BrokerConfig().replace(name="broker-a", host="10.0.0.1")
        self.role = Role(name="master", broker_id=0)
        self.is_leading = True
        self.is_shown_as_master = False
        self.traffic = Traffic()
        self.topics = {"T": TopicConfig("T", 4, 4), RETRY: TopicConfig(RETRY, 1, 1)}
        self.groups = {"G": GroupConfig("G", retries_max=3)}
        self.makes_topics = self.makes_groups = True
        self.wait: object = None
        self.kept = PutStatus.PUT_OK, ""
        self.metadata: Any = SimpleNamespace(
            topic=self.topics.get,
            group=self.groups.get,
            topic_for_send=self._topic_for_send,
            group_for=self._group_for,
            wait_of=lambda topic, queue: self.wait,
            kept=self._kept,
        )
        self.durabilities: list[Durability | None] = []
        self.refusal: PutError | None = None
        """Raised in place of a put."""
        self.failure: PutError | None = None
        """Raised once a message is stored, with its receipt."""
        self.store: Any = SimpleNamespace(store=store, append=self._append)

    def _topic_for_send(self, name: str, **_: object) -> TopicConfig | None:
        return self.topics.setdefault(name, TopicConfig(name, 4, 4)) if self.makes_topics else None

    async def _group_for(self, name: str) -> GroupConfig | None:
        return self.groups.setdefault(name, GroupConfig(name)) if self.makes_groups else None

    async def _kept(self, wait: object, *, with_members: bool) -> tuple[PutStatus, str]:
        assert wait is self.wait
        return self.kept if with_members else (PutStatus.PUT_OK, "")

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
    with rmqstore.open(tmp_path / "store", **FILES) as store:
        yield Core(store)


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
        ({"sys_flag": 0x4}, ResponseCode.MESSAGE_ILLEGAL, "transactional"),
        ({"sys_flag": 0x80}, ResponseCode.MESSAGE_ILLEGAL, "inner batch"),
        ({"properties": {"DELAY": "3"}}, ResponseCode.MESSAGE_ILLEGAL, "delayed"),
        ({"properties": {"a": "\0"}}, ResponseCode.MESSAGE_ILLEGAL, "0 byte"),
        ({"topic": "SELF_TEST_TOPIC"}, ResponseCode.NO_PERMISSION, "forbidden"),
        ({"topic": "T/x"}, ResponseCode.INVALID_PARAMETER, "illegal characters"),
        ({"is_batch": True, "body": b""}, ResponseCode.MESSAGE_ILLEGAL, "empty"),
        ({"is_batch": True, "body": b"\0"}, ResponseCode.MESSAGE_ILLEGAL, "at least"),
        ({"topic": RETRY, "reconsume_times": 4}, ResponseCode.MESSAGE_ILLEGAL, "limit is 3"),
        (
            {"topic": RETRY, "reconsume_times": 2, "retries_max": 1},
            ResponseCode.MESSAGE_ILLEGAL,
            "limit is 1",
        ),
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
