"""Transactions of a broker: half messages, their ends, notes, and questions to producers."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from rmqstore._native.core import Record
from rmqstore.broker.node import Broker
from rmqstore.broker.services.transaction_log import TransactionLog
from rmqstore.config import BrokerRole
from rmqstore.errors import NotWritable, PutError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.transactions import (
    ResumeCheckHalfMessageRequestHeader,
)
from tests.service.broker_clients import batch_body, call, heartbeat
from tests.service.remoting_peers import on_loop
from tests.service.test_broker_delays import arrived
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.transactions import (
    ASKING,
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Producer,
    commit,
    end,
    ended,
    half,
    until_rounds,
)
from tests.support.waiting import WAIT_S, until

HALF, NOTES = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
ENDED_BEFORE = (ResponseCode.ILLEGAL_OPERATION, "the first end counts")


def count(broker: Broker, topic: str) -> int:
    return len(broker.store.store.queue(topic, 0))


# -- half messages and their ends


@on_loop
async def test_half_message_is_delivered_once_it_is_committed(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        properties = {"UNIQ_KEY": "K", "TAGS": "eu", "KEYS": "k"}
        place = await half(client, broker, properties=properties, queue_id=2, flag=9)
        [waiting] = await arrived(broker, HALF)
        assert (waiting.queue_offset, waiting.physical_offset, waiting.sys_flag) == (*place, 0)
        names = {
            "TRAN_MSG": "true",
            "PGROUP": "pg",
            "REAL_TOPIC": "T",
            "REAL_QID": "2",
            "__transactionId__": "K",
        }
        assert waiting.properties.items() >= (properties | names).items()

        await commit(client, broker, place)
        store = broker.store.store
        await until(lambda: len(store.queue("T", 2)), "it is delivered")
        record = store.get("T", queue=2, offset=0)
        assert (record.body, record.flag, record.tags, record.keys) == (b"x", 9, "eu", ["k"])
        assert (record.sys_flag, record.prepared_transaction_offset) == (8, place[1])
        assert record.properties == waiting.properties
        assert (record.born_host, record.born_timestamp) == (
            waiting.born_host,
            waiting.born_timestamp,
        )


@on_loop
async def test_half_message_is_one_by_its_property_or_by_its_flag(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        for sys_flag, properties in ((0, {"TRAN_MSG": "TRUE"}), (4, {})):
            request = send_request("T", b"x", properties, sys_flag=sys_flag)
            assert (await call(client, broker, request)).code == ResponseCode.SUCCESS
        for record in await arrived(broker, HALF, 2):
            assert (record.properties["TRAN_MSG"], record.properties["PGROUP"]) == ("true", "pg")
        assert count(broker, "T") == 0


@on_loop
async def test_half_message_that_is_rolled_back_is_never_delivered(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)
        assert (await ended(client, broker, place, ROLLBACK))[0] == ResponseCode.SUCCESS
        [note] = await arrived(broker, NOTES)
        assert (note.body, note.tags) == (b"0,", "d")
        assert await ended(client, broker, place, COMMIT) != (ResponseCode.SUCCESS, "")
        assert count(broker, "T") == 0


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@on_loop
async def test_first_end_of_a_transaction_counts(tmp_path: Path, first: int, second: int) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        open_one, place = [await half(client, broker) for _ in range(2)]
        assert (await ended(client, broker, place, first))[0] == ResponseCode.SUCCESS
        code, remark = await ended(client, broker, place, second)
        assert (code, ENDED_BEFORE[1] in remark) == (ENDED_BEFORE[0], True)
        await commit(client, broker, open_one)
        await arrived(broker, "T", 1 + (first == COMMIT))
        assert count(broker, "T") == 1 + (first == COMMIT)


@on_loop
async def test_unknown_end_leaves_the_message_undecided(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)
        assert (await ended(client, broker, place, UNKNOWN))[0] == ResponseCode.SUCCESS
        await commit(client, broker, place)


@on_loop
async def test_delay_of_a_half_message_counts_from_its_commit(tmp_path: Path) -> None:
    """RocketMQ puts it into the schedule topic at once, and loses it."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker, properties={"DELAY": "1"}, queue_id=3)
        await arrived(broker, HALF)
        await commit(client, broker, place)
        [waiting] = await arrived(broker, "SCHEDULE_TOPIC_XXXX")
        store = broker.store.store
        await until(lambda: len(store.queue("T", 3)), "it is delivered")
        record = store.get("T", queue=3, offset=0)
        assert record.store_timestamp - waiting.store_timestamp >= 1000
        assert record.sys_flag == 0


@on_loop
async def test_time_of_a_half_message_applies_at_its_commit(tmp_path: Path) -> None:
    """RocketMQ puts it into the timer wheel at once, and loses it."""
    config = broker_config(tmp_path, timer_precision_ms=100)
    async with Broker(config) as broker, RemotingClient() as client:
        place = await half(client, broker, properties={"TIMER_DELAY_MS": "300"}, queue_id=3)
        await arrived(broker, HALF)
        assert count(broker, "rmq_sys_wheel_timer") == 0
        await commit(client, broker, place)
        [waiting] = await arrived(broker, "rmq_sys_wheel_timer")
        store = broker.store.store
        await until(lambda: len(store.queue("T", 3)), "it is delivered")
        record = store.get("T", queue=3, offset=0)
        assert record.store_timestamp - waiting.store_timestamp >= 300
        assert record.sys_flag == 0


@on_loop
async def test_half_message_for_light_queues_is_refused(tmp_path: Path) -> None:
    """RocketMQ has it in the light queues before its commit."""
    config = broker_config(tmp_path, enable_multi_dispatch=True)
    async with Broker(config) as broker, RemotingClient() as client:
        properties = {"TRAN_MSG": "true", "INNER_MULTI_DISPATCH": "%LMQ%a"}
        answer = await call(client, broker, send_request("T", b"x", properties))
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "before its commit" in (answer.remark or "")
        assert broker.store.store.end_offset == 0


@on_loop
async def test_notes_name_the_ended_ones_in_the_order_of_their_ends(tmp_path: Path) -> None:
    config = broker_config(tmp_path, transaction_note_interval_ms=50)
    async with Broker(config) as broker, RemotingClient() as client:
        places = [await half(client, broker) for _ in range(4)]
        for number in (0, 2, 1):
            await commit(client, broker, places[number])
        notes = broker.store.store.queue(NOTES, 0)
        await until(lambda: b"".join(each.body for each in notes.records()) == b"0,2,1,", "noted")
        offsets = broker.metadata.offsets
        await until(lambda: offsets.query(HALF, "CID_RMQ_SYS_TRANS", 0) == 3, "it is counted")
        assert offsets.query(NOTES, "CID_RMQ_SYS_TRANS", 0) == len(notes)
        assert all(each.properties["WAIT"] == "true" for each in notes.records())


@on_loop
async def test_notes_are_split_at_their_largest_size(tmp_path: Path) -> None:
    config = broker_config(tmp_path, transaction_note_bytes_max=32)
    async with Broker(config) as broker, RemotingClient() as client:
        for _ in range(40):
            await commit(client, broker, await half(client, broker))
    async with Broker(config) as broker:
        notes = list(broker.store.store.queue(NOTES, 0).records())
        assert max(len(each.body) for each in notes) <= 32
        assert b"".join(each.body for each in notes) == b"".join(b"%d," % n for n in range(40))


# -- what survives


@on_loop
async def test_committed_message_is_neither_delivered_nor_asked_about_after_a_kill(
    tmp_path: Path,
) -> None:
    """RocketMQ forgets the ends of the last 3 s, asks, and delivers again."""
    killed = tmp_path / "killed"
    slow = {"transaction_note_interval_ms": 3_600_000}
    async with Broker(broker_config(tmp_path / "a", **slow)) as broker, RemotingClient() as client:
        places = [await half(client, broker, body=b"%d" % number) for number in range(3)]
        await commit(client, broker, places[1])
        await arrived(broker, "T")
        assert count(broker, NOTES) == 0
        shutil.copytree(tmp_path / "a", killed)

    producer = Producer(COMMIT, COMMIT)
    async with Broker(broker_config(killed, **ASKING)) as broker, producer.client:
        code, _ = await ended(producer.client, broker, places[1], COMMIT)
        assert code == ResponseCode.ILLEGAL_OPERATION
        await call(producer.client, broker, heartbeat("c1"))
        records = await arrived(broker, "T", 3)
        assert sorted(each.body for each in records) == [b"0", b"1", b"2"]
        assert sorted(each.stored_body for _, each in producer.questions) == [b"0", b"2"]


@on_loop
async def test_rolled_back_message_is_not_asked_about_after_a_kill(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    slow = {"transaction_note_interval_ms": 3_600_000}
    async with Broker(broker_config(tmp_path / "a", **slow)) as broker, RemotingClient() as client:
        places = [await half(client, broker, body=b"%d" % number) for number in range(2)]
        assert (await ended(client, broker, places[0], ROLLBACK))[0] == ResponseCode.SUCCESS
        shutil.copytree(tmp_path / "a", killed)

    producer = Producer(COMMIT)
    async with Broker(broker_config(killed, **ASKING)) as broker, producer.client:
        await call(producer.client, broker, heartbeat("c1"))
        [record] = await arrived(broker, "T")
        assert record.body == b"1"
        code, _ = await ended(producer.client, broker, places[0], COMMIT)
        assert code == ResponseCode.ILLEGAL_OPERATION


@on_loop
async def test_progress_of_tables_that_the_log_does_not_prove_is_not_counted(
    tmp_path: Path,
) -> None:
    """A slave has the offsets of its master before it has the log."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)
        broker.metadata.offsets.commit(HALF, "CID_RMQ_SYS_TRANS", 0, 1)
        broker.metadata.offsets.commit(NOTES, "CID_RMQ_SYS_TRANS", 0, 0)
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await commit(client, broker, place)


@on_loop
async def test_commit_that_fails_leaves_the_message_undecided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)

        def fail(put: Any, durability: Any = None) -> Any:
            raise NotWritable("the disk is full", status="SERVICE_NOT_AVAILABLE")

        monkeypatch.setattr(broker.store, "append", fail)
        code, _ = await ended(client, broker, place, COMMIT)
        assert code == ResponseCode.SERVICE_NOT_AVAILABLE
        monkeypatch.undo()
        await commit(client, broker, place)
        await arrived(broker, "T")


@on_loop
async def test_commit_that_is_in_the_log_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)
        append = broker.store.append

        def unconfirmed(put: Any, durability: Any = None) -> Any:
            receipt = append(put, durability)
            raise PutError("no replica yet", status="FLUSH_SLAVE_TIMEOUT", receipt=receipt)

        monkeypatch.setattr(broker.store, "append", unconfirmed)
        await commit(client, broker, place)
        monkeypatch.undo()
        code, _ = await ended(client, broker, place, COMMIT)
        assert code == ResponseCode.ILLEGAL_OPERATION
        assert len(await arrived(broker, "T")) == 1


# -- questions


@on_loop
async def test_producer_is_asked_about_a_message_until_it_decides(tmp_path: Path) -> None:
    producer = Producer(UNKNOWN, COMMIT)
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        await call(client, broker, heartbeat("c1"))
        await half(client, broker, properties={"UNIQ_KEY": "K"}, queue_id=1)
        store = broker.store.store
        await until(lambda: len(store.queue("T", 1)), "it is committed")
        record = store.get("T", queue=1, offset=0)
        assert (record.body, record.properties["TRANSACTION_CHECK_TIMES"]) == (b"x", "2")
        assert "HALF_ORIGIN" not in record.properties

        assert [header.queue_offset for header, _ in producer.questions] == [1, 2]
        header, message = producer.questions[0]
        assert (header.message_id, header.transaction_id, header.topic) == ("K", "K", "T")
        assert header.broker_name == "broker-a"
        assert (message.topic, message.queue_id, message.stored_body) == ("T", 1, b"x")
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        assert header.offset_id == message.offset_id
        assert header.physical_offset == message.physical_offset


@on_loop
async def test_late_end_for_an_earlier_record_of_a_message_counts(tmp_path: Path) -> None:
    """RocketMQ delivers it, and asks about the later record nevertheless."""
    producer = Producer()
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        place = await half(client, broker)
        await call(client, broker, heartbeat("c1"))
        await until(lambda: producer.questions, "it is asked about")
        await commit(client, broker, place)
        header, _ = producer.questions[0]
        asked = header.queue_offset, header.physical_offset
        code, _ = await ended(client, broker, asked, COMMIT)
        assert code == ResponseCode.ILLEGAL_OPERATION
        [record] = await arrived(broker, "T")
        assert record.prepared_transaction_offset > place[1]
    async with Broker(config) as broker, RemotingClient() as client:
        code, _ = await ended(client, broker, place, COMMIT)
        assert code == ResponseCode.ILLEGAL_OPERATION


@on_loop
async def test_record_that_the_members_do_not_have_yet_is_not_taken_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in no queue before they have it."""
    producer = Producer()
    config = broker_config(tmp_path, **ASKING)
    monkeypatch.setattr(TransactionLog, "halves", property(lambda _: (0, 1)))
    first = TransactionLog.half_message
    monkeypatch.setattr(
        TransactionLog, "half_message", lambda log, at: None if at else first(log, at)
    )
    async with Broker(config) as broker, producer.client as client:
        place = await half(client, broker)
        await call(client, broker, heartbeat("c1"))
        await until(lambda: producer.questions, "it is asked about")
        await until_rounds(broker, 10)
        await commit(client, broker, place)
        await arrived(broker, "T")


@on_loop
async def test_message_is_given_up_after_its_questions(tmp_path: Path) -> None:
    producer = Producer()
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        await call(client, broker, heartbeat("c1"))
        await half(client, broker, properties={"UNIQ_KEY": "K"})
        [record] = await arrived(broker, GIVEN_UP)
        assert len(producer.questions) == 3
        assert record.unique_key == "K"
        assert record.properties["REAL_TOPIC"] == "T"
        header, _ = producer.questions[-1]
        asked = header.queue_offset, header.physical_offset
        assert (await ended(client, broker, asked, COMMIT))[0] == ResponseCode.ILLEGAL_OPERATION

        resume = ResumeCheckHalfMessageRequestHeader(message_id=record.message_id)
        frame = Frame.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, resume.to_fields())
        assert (await call(client, broker, frame)).code == ResponseCode.SUCCESS
        await until(lambda: len(producer.questions) > 3, "it is asked about again")
        header, message = producer.questions[-1]
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        await commit(client, broker, (header.queue_offset, header.physical_offset))
        await arrived(broker, "T")


@on_loop
async def test_message_is_given_up_only_once_it_is_stored_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer()
    config = broker_config(tmp_path, **{**ASKING, "transaction_checks_max": 1})
    async with Broker(config) as broker, producer.client as client:
        append, failures = broker.store.append, [0]

        def fail(put: Any, durability: Any = None) -> Any:
            if put.args[0] == GIVEN_UP and failures[0] < 3:
                failures[0] += 1
                raise NotWritable("the disk is full", status="SERVICE_NOT_AVAILABLE")
            return append(put, durability)

        monkeypatch.setattr(broker.store, "append", fail)
        await call(client, broker, heartbeat("c1"))
        await half(client, broker)
        await arrived(broker, GIVEN_UP)
        assert (failures, len(producer.questions)) == ([3], 1)


@on_loop
async def test_message_of_a_producer_that_is_away_is_not_given_up(tmp_path: Path) -> None:
    """RocketMQ counts the rounds in which it asks nobody."""
    producer = Producer(COMMIT)
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        away = await half(client, broker, body=b"away")
        immune = {"CHECK_IMMUNITY_TIME_IN_SECONDS": "3600"}
        born_ms = broker.runtime.wall_ms()
        await half(client, broker, body=b"immune", properties=immune, born_timestamp_ms=born_ms)
        await until_rounds(broker, 10)
        assert count(broker, HALF) == 2
        assert count(broker, GIVEN_UP) == 0
        await call(client, broker, heartbeat("c1"))
        [record] = await arrived(broker, "T")
        assert (record.body, record.prepared_transaction_offset > away[1]) == (b"away", True)
        await until_rounds(broker, 5)
        assert [each.stored_body for _, each in producer.questions] == [b"away"]


@on_loop
async def test_message_without_room_for_the_count_of_questions_is_asked_about(
    tmp_path: Path,
) -> None:
    producer = Producer()
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        await half(client, broker)
        [waiting] = await arrived(broker, HALF)
        room = 32_767 - len(waiting.properties_text) - len("p\x01\x02") - 5
        await half(client, broker, properties={"p": "x" * room}, body=b"large")
        await call(client, broker, heartbeat("c1"))
        records = await arrived(broker, GIVEN_UP, 2)
        assert sorted(each.body for each in records) == [b"large", b"x"]
        asked = [each.stored_body for _, each in producer.questions]
        assert (asked.count(b"large"), asked.count(b"x")) == (3, 3)


@on_loop
async def test_half_message_whose_topic_is_lost_is_given_up_and_holds_up_no_other(
    tmp_path: Path,
) -> None:
    """RocketMQ writes over the topic of a half message with a delay level."""
    producer = Producer(COMMIT)
    config = broker_config(tmp_path, **ASKING)
    async with Broker(config) as broker, producer.client as client:
        properties = {"TRAN_MSG": "true", "PGROUP": "pg", "REAL_TOPIC": HALF, "REAL_QID": "0"}
        lost = broker.store.store.put(HALF, b"lost", properties=properties)
        await half(client, broker)
        code, remark = await ended(client, broker, (0, lost.physical_offset), COMMIT)
        assert (code, "which topic" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        await call(client, broker, heartbeat("c1"))
        await arrived(broker, "T")
        [record] = await arrived(broker, GIVEN_UP)
        assert record.body == b"lost"


@on_loop
async def test_committed_message_is_not_asked_about_whatever_the_intervals(tmp_path: Path) -> None:
    """RocketMQ asks about what it has not noted yet."""
    producer = Producer(COMMIT)
    config = broker_config(tmp_path, **ASKING, transaction_note_interval_ms=3_600_000)
    async with Broker(config) as broker, producer.client as client:
        await call(client, broker, heartbeat("c1"))
        for number in range(5):
            await commit(client, broker, await half(client, broker, body=b"%d" % number))
        await until_rounds(broker, 10)
        asked = [each.stored_body for _, each in producer.questions]
        records: list[Record] = await arrived(broker, "T", 5)
        assert len(records) == 5
        assert asked == []


@on_loop
async def test_message_that_is_ended_while_it_is_read_is_not_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer()
    config = broker_config(tmp_path, **ASKING)
    is_read, may_go_on = threading.Event(), threading.Event()
    read = TransactionLog.half_message

    def slow(log: TransactionLog, offset: int) -> Any:
        found = read(log, offset)
        is_read.set()
        assert may_go_on.wait(WAIT_S)
        return found

    async with Broker(config) as broker, producer.client as client:
        await call(client, broker, heartbeat("c1"))
        place = await half(client, broker)
        await until(lambda: producer.questions, "it is asked about")
        monkeypatch.setattr(TransactionLog, "half_message", slow)
        await until(is_read.is_set, "it is read for the next question")
        asked = len(producer.questions)
        await commit(client, broker, place)
        may_go_on.set()
        await until_rounds(broker, 5)
        assert len(producer.questions) == asked


# -- bad input


@on_loop
async def test_half_messages_are_refused_where_the_broker_is_configured_so(tmp_path: Path) -> None:
    config = broker_config(tmp_path, rejects_transactions=True)
    async with Broker(config) as broker, RemotingClient() as client:
        request = send_request("T", b"x", {"TRAN_MSG": "true", "PGROUP": "pg"})
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "transaction message is forbidden" in (answer.remark or "")
        assert (await call(client, broker, send_request("T", b"x"))).code == ResponseCode.SUCCESS


@on_loop
async def test_batch_with_a_half_message_is_refused(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        body = batch_body((b"x", {}))
        request = send_request("T", body, code=RequestCode.SEND_BATCH_MESSAGE, sys_flag=4)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert broker.store.store.end_offset == 0


@on_loop
async def test_forwarded_message_is_a_new_half_message(tmp_path: Path) -> None:
    """It has the properties of the one that was received."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        forwarded = {
            "HALF_ORIGIN": "0",
            "TRANSACTION_CHECK_TIMES": "9",
            "TRAN_PREPARED_QUEUE_OFFSET": "0",
            "REAL_TOPIC": "U",
        }
        first = await half(client, broker)
        second = await half(client, broker, properties=forwarded)
        record = (await arrived(broker, HALF, 2))[1]
        assert record.properties.keys().isdisjoint(forwarded.keys() - {"REAL_TOPIC"})
        assert record.properties["REAL_TOPIC"] == "T"
        await commit(client, broker, second)
        await commit(client, broker, first)


FAILED = "Find prepared transaction message failed"
BAD_ENDS = [
    ({"physical_offset": 1}, ResponseCode.SYSTEM_ERROR, FAILED),
    ({"physical_offset": -1}, ResponseCode.SYSTEM_ERROR, FAILED),
    ({"physical_offset": 2**62}, ResponseCode.SYSTEM_ERROR, FAILED),
    ({"queue_offset": 1}, ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
    ({"queue_offset": -1}, ResponseCode.SYSTEM_ERROR, "The transaction state table offset wrong"),
    ({"producer_group": "other"}, ResponseCode.SYSTEM_ERROR, "The producer group wrong"),
    ({"decision": 4}, ResponseCode.INVALID_PARAMETER, "send 8 to commit"),
    ({"decision": -8}, ResponseCode.INVALID_PARAMETER, "send 8 to commit"),
]


@pytest.mark.parametrize(("changes", "code", "remark"), BAD_ENDS)
@on_loop
async def test_end_of_another_message_is_refused(
    tmp_path: Path, changes: dict[str, Any], code: int, remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        place = await half(client, broker)
        values = {"queue_offset": place[0], "physical_offset": place[1], "decision": COMMIT}
        answer = await call(client, broker, end(**(values | changes)))
        assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark
        await commit(client, broker, place)


@on_loop
async def test_end_of_a_message_that_is_no_half_message_is_refused(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await call(client, broker, send_request("T", b"x", {"PGROUP": "pg"}))
        code, remark = await ended(client, broker, (0, 0), COMMIT)
        assert (code, "no half message" in remark) == (ResponseCode.SYSTEM_ERROR, True)
        assert broker.store.store.end_offset == broker.store.store.record_at(0).size


@on_loop
async def test_slave_ends_no_transaction(tmp_path: Path) -> None:
    config = broker_config(tmp_path, broker_role=BrokerRole.SLAVE, broker_id=1)
    async with Broker(config) as broker, RemotingClient() as client:
        code, remark = await ended(client, broker, (0, 0), COMMIT)
        assert (code, "reject it" in remark) == (ResponseCode.SLAVE_NOT_AVAILABLE, True)


@pytest.mark.parametrize("text", ["", "x", "00" * 16, "ff" * 16, "7f" * 28])
@on_loop
async def test_only_a_message_that_was_given_up_is_asked_about_again(
    tmp_path: Path, text: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await half(client, broker)
        header = ResumeCheckHalfMessageRequestHeader(message_id=text)
        frame = Frame.request(RequestCode.RESUME_CHECK_HALF_MESSAGE, header.to_fields())
        assert (await call(client, broker, frame)).code == ResponseCode.SYSTEM_ERROR
        assert count(broker, HALF) <= 1


@pytest.mark.parametrize("field", ["producerGroup", "tranStateTableOffset", "commitLogOffset"])
@on_loop
async def test_end_without_a_field_is_refused(tmp_path: Path, field: str) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        request = end(0, 0, COMMIT)
        del request.ext_fields[field]
        answer = await call(client, broker, request)
        assert (answer.code, field in (answer.remark or "")) == (
            ResponseCode.INVALID_PARAMETER,
            True,
        )
