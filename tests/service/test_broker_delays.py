"""Delayed messages, retries and dead letters of a broker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqstore._native.core import Record
from rmqstore.broker.node import Broker
from rmqstore.config import FlushDiskType
from rmqstore.errors import NotWritable, PutError
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import DelayOffsets, GroupConfig, TopicConfig
from tests.service.broker_clients import call
from tests.service.remoting_peers import on_loop
from tests.support.brokers import broker_config
from tests.support.sends import CALL_S, send_request
from tests.support.waiting import until

SCHEDULE = "SCHEDULE_TOPIC_XXXX"


async def arrived(broker: Broker, topic: str, count: int = 1) -> list[Record]:
    """Return the messages of queue 0 of a topic, once there are *count*."""
    store = broker.store.store
    await until(lambda: len(store.queue(topic, 0)) >= count, f"{count} messages are in {topic}")
    return [store.get(topic, offset=at) for at in range(len(store.queue(topic, 0)))]


async def send(client: RemotingClient, broker: Broker, **changes: Any) -> Frame:
    """Return the answer to a message of the topic T in delay level 1."""
    request = {"topic": "T", "body": b"x", "properties": {"DELAY": "1"}, **changes}
    answer = await call(client, broker, send_request(**request))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


def back_request(offset: int, *, group: str = "cg", level: int = 0, **fields: str) -> Frame:
    """Return what a consumer sends that failed on a message."""
    needed = {"offset": str(offset), "group": group, "delayLevel": str(level)}
    return Frame.request(RequestCode.CONSUMER_SEND_MSG_BACK, {**needed, **fields})


async def first_of(client: RemotingClient, broker: Broker, **changes: Any) -> Record:
    """Return a message of the topic T, and have the group cg."""
    await broker.metadata.change_group(GroupConfig("cg"))
    await send(client, broker, **{"properties": {"UNIQ_KEY": "K", "TAGS": "eu"}, **changes})
    return (await arrived(broker, "T"))[0]


# -- delays


@on_loop
async def test_delayed_message_arrives_after_its_time_as_it_was_sent(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        properties = {"DELAY": "1", "UNIQ_KEY": "K", "TAGS": "eu", "n": "1"}
        answer = await send(client, broker, properties=properties, flag=9, queue_id=2)
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("2", "0")
        assert answer.ext_fields["transactionId"] == "K"

        store = broker.store.store
        await until(lambda: len(store.queue("T", 2)), "it is delivered")
        [waited] = await arrived(broker, SCHEDULE)
        record = store.get("T", queue=2, offset=0)
        assert 1000 <= record.store_timestamp - waited.store_timestamp < 60_000
        assert (record.body, record.flag, record.tags) == (b"x", 9, "eu")
        assert (record.born_host, record.born_timestamp) == (
            waited.born_host,
            waited.born_timestamp,
        )
        kept = {"REAL_TOPIC": "T", "REAL_QID": "2", "DELAY_ORIGIN": "1-0"}
        assert record.properties == waited.properties | kept
        assert record.properties.items() >= properties.items()


@pytest.mark.parametrize("level", ["0", "-1"])
@on_loop
async def test_message_without_a_level_is_not_delayed(tmp_path: Path, level: str) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await send(client, broker, properties={"DELAY": level})
        [record] = await arrived(broker, "T")
        assert record.physical_offset == 0


@on_loop
async def test_level_above_the_largest_means_the_largest(tmp_path: Path) -> None:
    config = broker_config(tmp_path, delay_levels_ms=(1000, 2000))
    async with Broker(config) as broker, RemotingClient() as client:
        assert broker.metadata.topic(SCHEDULE) == TopicConfig(SCHEDULE, 2, 2)
        await send(client, broker, properties={"DELAY": "7"})
        [record] = await arrived(broker, "T")
        assert record.properties["DELAY"] == "2"


@on_loop
async def test_clients_cannot_name_an_origin(tmp_path: Path) -> None:
    """A consumer that forwards a delivered message sends its properties, too."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await send(client, broker, properties={"DELAY_ORIGIN": "1-0"})
        [record] = await arrived(broker, "T")
        assert "DELAY_ORIGIN" not in record.properties


@on_loop
async def test_message_whose_properties_leave_no_room_for_the_origin_is_delivered(
    tmp_path: Path,
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await send(client, broker, properties={"DELAY": "1"})
        [waiting] = await arrived(broker, SCHEDULE)
        room = 32_767 - len(waiting.properties_text) - len("p\x01\x02")
        await send(client, broker, properties={"DELAY": "1", "p": "x" * room})
        first, second = await arrived(broker, "T", 2)
        assert "DELAY_ORIGIN" in first.properties
        assert "DELAY_ORIGIN" not in second.properties


@on_loop
async def test_delivery_that_fails_is_tried_again_in_its_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        for number in range(3):
            await send(client, broker, body=b"%d" % number)
        failures = [NotWritable("the disk is full", status="SERVICE_NOT_AVAILABLE")] * 3
        append = broker.store.append

        def fail(put: Any, durability: Any = None) -> Any:
            if failures:
                raise failures.pop()
            return append(put, durability)

        monkeypatch.setattr(broker.store, "append", fail)
        records = await arrived(broker, "T", 3)
        assert [each.body for each in records] == [b"0", b"1", b"2"]
        assert not failures


@on_loop
async def test_delivery_that_is_in_the_log_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fail-over may lose it, but a second one would stand beside it otherwise."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await send(client, broker, body=b"first")
        append = broker.store.append

        def unconfirmed(put: Any, durability: Any = None) -> Any:
            receipt = append(put, durability)
            status = "FLUSH_SLAVE_TIMEOUT"
            raise PutError("no replica has it yet", status=status, receipt=receipt)

        monkeypatch.setattr(broker.store, "append", unconfirmed)
        await arrived(broker, "T")
        monkeypatch.undo()
        await send(client, broker, body=b"second")
        records = await arrived(broker, "T", 2)
        assert [each.body for each in records] == [b"first", b"second"]


@on_loop
async def test_delayed_half_message_of_a_java_directory_is_not_dropped(tmp_path: Path) -> None:
    half = "RMQ_SYS_TRANS_HALF_TOPIC"
    async with Broker(broker_config(tmp_path)) as broker:
        properties = {"DELAY": "1", "REAL_TOPIC": half, "REAL_QID": "0", "TRAN_MSG": "true"}
        broker.store.store.put(SCHEDULE, b"half", properties=properties)
        [record] = await arrived(broker, half)
        assert (record.body, record.properties["TRAN_MSG"]) == (b"half", "true")


@on_loop
async def test_progress_is_in_the_file_of_a_closed_broker(tmp_path: Path) -> None:
    """RocketMQ, which may take the directory over, looks at nothing else."""
    config = broker_config(tmp_path)
    async with Broker(config) as broker, RemotingClient() as client:
        await send(client, broker)
        await arrived(broker, "T")
    assert DelayOffsets.load(tmp_path).offsets == {1: 1}
    async with Broker(config) as broker, RemotingClient() as client:
        await send(client, broker)
        assert len(await arrived(broker, "T", 2)) == 2


@on_loop
async def test_nothing_is_delivered_again_after_a_kill(tmp_path: Path) -> None:
    """RocketMQ delivers again what it delivered since it last saved its progress."""
    killed = tmp_path / "killed"
    async with Broker(broker_config(tmp_path / "a")) as broker, RemotingClient() as client:
        for _ in range(3):
            await send(client, broker)
        await arrived(broker, "T", 3)
        assert broker.metadata.tables["delay"].whole().offsets == {}
        shutil.copytree(tmp_path / "a", killed)

    async with Broker(broker_config(killed)) as broker, RemotingClient() as client:
        await send(client, broker, body=b"after")
        records = await arrived(broker, "T", 4)
        assert [each.body for each in records] == [b"x", b"x", b"x", b"after"]


@on_loop
async def test_messages_that_are_due_after_a_kill_are_delivered(tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    async with Broker(broker_config(tmp_path / "a")) as broker, RemotingClient() as client:
        await send(client, broker, properties={"DELAY": "2"})
        await arrived(broker, SCHEDULE, 0)
        shutil.copytree(tmp_path / "a", killed)
    async with Broker(broker_config(killed)) as broker:
        await arrived(broker, "T")


@on_loop
async def test_forwarded_message_that_names_an_origin_does_not_stand_for_a_delivery(
    tmp_path: Path,
) -> None:
    """A batch keeps the properties that its client sent."""
    killed = tmp_path / "killed"
    async with Broker(broker_config(tmp_path / "a")) as broker, RemotingClient() as client:
        await send(client, broker)
        store = broker.store.store
        store.put("T", b"forwarded", properties={"DELAY_ORIGIN": "1-0"})
        store.wait_dispatched()
        shutil.copytree(tmp_path / "a", killed)
    async with Broker(broker_config(killed)) as broker:
        assert len(await arrived(broker, "T", 2)) == 2


@on_loop
async def test_log_that_lost_its_end_gets_the_deliveries_again(tmp_path: Path) -> None:
    """A directory that is put together from two copies: the log is older than the progress."""
    copied = tmp_path / "copied"
    async with Broker(broker_config(tmp_path / "a")) as broker, RemotingClient() as client:
        await send(client, broker)
        await arrived(broker, SCHEDULE)
        shutil.copytree(tmp_path / "a", copied)
        await arrived(broker, "T")
    shutil.copytree(tmp_path / "a" / "config", copied / "config", dirs_exist_ok=True)
    assert DelayOffsets.load(copied).offsets == {1: 1}
    async with Broker(broker_config(copied)) as broker:
        await arrived(broker, "T")


@on_loop
async def test_progress_past_its_queue_is_saved_as_the_queue_is(tmp_path: Path) -> None:
    """Messages get the offsets again that the file calls delivered."""
    DelayOffsets({1: 12, 40: 3}, log_offset=0).save(tmp_path)
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await until(
            lambda: DelayOffsets.load(tmp_path).offsets == {1: 0, 40: 0}, "the file is corrected"
        )
        await send(client, broker)
        await arrived(broker, "T")


# -- retries


@on_loop
async def test_message_that_is_sent_back_comes_again_to_its_group(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        record = await first_of(client, broker)
        request = back_request(record.physical_offset, level=1)
        answer = await call(client, broker, request)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")

        [retry] = await arrived(broker, "%RETRY%cg")
        assert (retry.body, retry.tags, retry.unique_key) == (b"x", "eu", "K")
        assert retry.reconsume_times == 1
        assert retry.born_host == record.born_host
        assert (
            retry.properties.items()
            >= {
                "RETRY_TOPIC": "T",
                "ORIGIN_MESSAGE_ID": record.message_id,
                "DELAY": "1",
                "REAL_TOPIC": "%RETRY%cg",
            }.items()
        )

        # The next failure: topic and id of the first message stay, the level grows by itself.
        await call(client, broker, back_request(retry.physical_offset))
        store = broker.store.store
        await until(lambda: len(store.queue(SCHEDULE, 3)), "the second retry waits")
        again = store.get(SCHEDULE, queue=3, offset=0)
        assert (again.reconsume_times, again.properties["DELAY"]) == (2, "4")
        assert again.properties["RETRY_TOPIC"] == "T"
        assert again.properties["ORIGIN_MESSAGE_ID"] == record.message_id
        assert "DELAY_ORIGIN" not in again.properties


@pytest.mark.parametrize(
    ("reconsume_times", "level", "fields", "is_dead"),
    [
        (0, -1, {}, True),
        (15, 0, {}, False),
        (16, 0, {}, True),
        (3, 0, {"maxReconsumeTimes": "3"}, True),
        (2, 0, {"maxReconsumeTimes": "3"}, False),
        (16, 0, {"maxReconsumeTimes": "17"}, False),
    ],
)
@on_loop
async def test_message_that_a_group_gives_up_is_a_dead_letter(
    tmp_path: Path, reconsume_times: int, level: int, fields: dict[str, str], is_dead: bool
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        record = await first_of(client, broker, reconsume_times=reconsume_times)
        request = back_request(record.physical_offset, level=level, **fields)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert (broker.metadata.topic("%DLQ%cg") == TopicConfig("%DLQ%cg", 1, 1)) is is_dead
        if not is_dead:
            return
        [letter] = await arrived(broker, "%DLQ%cg")
        assert (letter.reconsume_times, letter.properties["DELAY"]) == (reconsume_times + 1, "0")
        assert "REAL_TOPIC" not in letter.properties


@on_loop
async def test_retry_that_a_client_sends_over_its_limit_is_a_dead_letter(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        await broker.metadata.change_group(GroupConfig("cg", retries_max=2))
        properties = {"RETRY_TOPIC": "T", "DELAY": "3"}
        request = {"topic": "%RETRY%cg", "properties": properties, "queue_id": 0}
        await send(client, broker, **request, reconsume_times=3)
        [letter] = await arrived(broker, "%DLQ%cg")
        assert (letter.body, letter.properties["DELAY"]) == (b"x", "-1")
        await send(client, broker, **request, reconsume_times=2)
        assert len(await arrived(broker, "%DLQ%cg")) == 1


@on_loop
async def test_message_that_is_sent_back_is_answered_when_it_is_as_durable_as_a_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = broker_config(tmp_path, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    async with Broker(config) as broker, RemotingClient() as client:
        record = await first_of(client, broker)
        answer = await call(client, broker, back_request(record.physical_offset, level=-1))
        assert answer.code == ResponseCode.SUCCESS
        assert broker.store.store.flushed_offset == broker.store.store.end_offset

        async def late(put: Any) -> Any:
            raise PutError("no sync in time", status="FLUSH_DISK_TIMEOUT", receipt=put())

        monkeypatch.setattr(broker.store, "append", late)
        answer = await call(client, broker, back_request(record.physical_offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith("FLUSH_DISK_TIMEOUT")


@on_loop
async def test_group_without_retry_queues_drops_what_it_sends_back(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        record = await first_of(client, broker)
        await broker.metadata.change_group(GroupConfig("cg", retry_queue_count=0))
        end = broker.store.store.end_offset
        answer = await call(client, broker, back_request(record.physical_offset))
        assert (answer.code, broker.store.store.end_offset) == (ResponseCode.SUCCESS, end)


FAILURES = [
    ({"group": "unknown"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "unknown"),
    ({"offset": "1"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, 1"),
    ({"offset": "-1"}, ResponseCode.SYSTEM_ERROR, "look message by offset failed, -1"),
    ({"offset": str(2**62)}, ResponseCode.SYSTEM_ERROR, "look message by offset failed"),
]


@pytest.mark.parametrize(("fields", "code", "remark"), FAILURES)
@on_loop
async def test_message_that_cannot_be_sent_back_is_refused(
    tmp_path: Path, fields: dict[str, str], code: int, remark: str
) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        record = await first_of(client, broker)
        request = back_request(record.physical_offset)
        request.ext_fields.update(fields)
        answer = await call(client, broker, request)
        assert (answer.code, remark in (answer.remark or "")) == (code, True), answer.remark


@on_loop
async def test_go_client_gets_no_answer_to_a_message_that_is_not_stored(tmp_path: Path) -> None:
    """It takes any answer for a success."""
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        record = await first_of(client, broker)
        refused, taken = (back_request(record.physical_offset, group=g) for g in ("no", "cg"))
        refused.language = taken.language = LanguageCode.GO
        tasks = broker.runtime.tasks("test")
        waiting = tasks.start(client.call(broker.address, refused, timeout=CALL_S), name="refused")
        # Answers leave in the order of the requests of a connection.
        for _ in range(2):
            assert (await call(client, broker, taken)).code == ResponseCode.SUCCESS
        assert not waiting.done()
        await tasks.close()
