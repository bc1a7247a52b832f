"""Timer messages of a broker."""

from __future__ import annotations

import base64
import shutil
import time
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rmqstore._native.core import Record
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.node import Broker
from rmqstore.broker.operations.deliveries import Deliverer
from rmqstore.broker.services.timers import TimerMessages
from rmqstore.config import BrokerConfig
from rmqstore.errors import DiskError, NotWritable, PutError
from rmqstore.message import Durability
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import DelayOffsets
from rmqstore.store.metadata.timer_checkpoint import TimerCheckpoint
from rmqstore.store.store import Store
from tests.service.broker_clients import call
from tests.service.remoting_peers import on_loop
from tests.support.broker_group import group_of
from tests.support.brokers import broker_config
from tests.support.sends import send_request
from tests.support.waiting import until

TIMER = "rmq_sys_wheel_timer"
_NOT_FOUND = 1 << 62
"""The end of a record that is not in the queues yet."""


def quick(root: Path, **changes: Any) -> BrokerConfig:
    """Return settings with slots of 50 ms."""
    return broker_config(root, timer_precision_ms=50, **changes)


def put_timed(store: Store, slot_ms: int, **properties: str) -> None:
    """Put a timer message of the topic T into the queue where it waits."""
    timed = {"TIMER_OUT_MS": str(slot_ms), "REAL_TOPIC": "T", "REAL_QID": "0"}
    store.put(TIMER, b"x", properties={**timed, **properties})


def waiting(broker: Broker) -> int:
    """Return the metric of waiting messages."""
    found = {each.name: each for each in broker.open.families()}
    [(_, count)] = found["rmqstore_timer_messages"].samples
    assert isinstance(count, int)
    return count


def now_ms() -> int:
    return time.time_ns() // 1_000_000


async def arrived(broker: Broker, topic: str, count: int = 1) -> list[Record]:
    """Return the messages of queue 0 of a topic, once there are *count*."""
    store = broker.store.store
    await until(lambda: len(store.queue(topic, 0)) >= count, f"{count} messages are in {topic}")
    return [store.get(topic, offset=at) for at in range(len(store.queue(topic, 0)))]


async def send(
    client: RemotingClient, broker: Broker, properties: dict[str, str], **changes: Any
) -> Frame:
    """Return the answer to a message of the topic T."""
    request = {"topic": "T", "body": b"x", "properties": properties, **changes}
    return await call(client, broker, send_request(**request))


async def sent(
    client: RemotingClient, broker: Broker, properties: dict[str, str], **changes: Any
) -> Frame:
    """Return the answer to a message of the topic T that is stored."""
    answer = await send(client, broker, properties, **changes)
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return answer


@on_loop
async def test_timer_message_arrives_at_its_time_as_it_was_sent(tmp_path: Path) -> None:
    async with Broker(broker_config(tmp_path)) as broker, RemotingClient() as client:
        due_ms = now_ms() + 1500
        properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "K", "TAGS": "eu", "n": "1"}
        answer = await sent(client, broker, properties, flag=9, queue_id=2)
        assert (answer.ext_fields["queueId"], answer.ext_fields["queueOffset"]) == ("2", "0")

        store = broker.store.store
        await until(lambda: len(store.queue("T", 2)), "it is delivered")
        [waited] = await arrived(broker, TIMER)
        record = store.get("T", queue=2, offset=0)
        assert due_ms <= record.store_timestamp
        assert (record.body, record.flag, record.tags) == (b"x", 9, "eu")
        assert record.born_host == waited.born_host
        out_ms = (due_ms - 1) // 1000 * 1000
        kept = {"TIMER_OUT_MS": str(out_ms), "REAL_TOPIC": "T", "REAL_QID": "2"}
        assert waited.properties.items() >= kept.items()
        added = {"TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ORIGIN"}
        assert record.properties.keys() == waited.properties.keys() | added


@pytest.mark.parametrize(("name", "value"), [("TIMER_DELAY_SEC", "1"), ("TIMER_DELAY_MS", "300")])
@on_loop
async def test_each_property_of_time_is_served(tmp_path: Path, name: str, value: str) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        began_ms = now_ms()
        await sent(client, broker, {name: value})
        [record] = await arrived(broker, "T")
        wanted_ms = int(value) * (1000 if name == "TIMER_DELAY_SEC" else 1)
        assert wanted_ms <= record.store_timestamp - began_ms


@on_loop
async def test_messages_of_many_slots_arrive_in_their_order(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        base_ms = now_ms() + 300
        for number in (3, 1, 2, 0):
            properties = {"TIMER_DELIVER_MS": str(base_ms + 200 * number)}
            await sent(client, broker, properties, body=b"%d" % number)
        records = await arrived(broker, "T", 4)
        assert [each.body for each in records] == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "properties",
    [
        {"TIMER_DELIVER_MS": "soon"},
        {"TIMER_DELAY_SEC": "259201"},
        {"TIMER_DELAY_SEC": "9" * 30},
        {"TIMER_DELAY_MS": "5 s"},
    ],
)
@on_loop
async def test_time_that_cannot_be_served_is_refused(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        answer = await send(client, broker, properties)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "should not be bigger than the max delay 259200000ms" in answer.remark
        assert broker.store.store.end_offset == 0


@pytest.mark.parametrize("value", ["1", "-5", "0"])
@on_loop
async def test_message_whose_time_is_over_is_an_ordinary_one(tmp_path: Path, value: str) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELIVER_MS": value})
        [record] = await arrived(broker, "T")
        assert record.physical_offset == 0


@on_loop
async def test_delay_level_counts_before_a_time(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"DELAY": "1", "TIMER_DELAY_SEC": "9999"})
        [record] = await arrived(broker, "T")
        assert record.properties["DELAY_ORIGIN"] == "1-0"
        assert "TIMER_DELAY_SEC" not in record.properties


@on_loop
async def test_broker_without_timers_refuses_their_messages(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path, timers=False)) as broker, RemotingClient() as client:
        answer = await send(client, broker, {"TIMER_DELAY_SEC": "1"})
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == "accurate timer message is not enabled, timerWheelEnable is false"


@on_loop
async def test_full_slot_takes_no_further_message(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path, timer_slot_messages_max=1)) as broker:
        async with RemotingClient() as client:
            properties = {"TIMER_DELIVER_MS": str(now_ms() + 60_000)}
            store = broker.store.store
            for _ in range(2):
                put_timed(store, (int(properties["TIMER_DELIVER_MS"]) - 1) // 50 * 50)
            await until(lambda: waiting(broker) == 2, "the messages are in the wheel")
            answer = await send(client, broker, properties)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark.startswith("timer message is under flow control")


@on_loop
async def test_message_beyond_the_window_is_entered_again(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path, timer_window_slots=6)) as broker, RemotingClient() as client:
        due_ms = now_ms() + 1000
        await sent(client, broker, {"TIMER_DELIVER_MS": str(due_ms)}, body=b"far")
        [record] = await arrived(broker, "T")
        assert record.body == b"far"
        assert due_ms <= record.store_timestamp
        rolled = await arrived(broker, TIMER, 3)
        times = [each.properties.get("TIMER_ROLL_TIMES") for each in rolled]
        assert times == [None, *map(str, range(1, len(rolled)))]
        assert {each.properties["TIMER_OUT_MS"] for each in rolled} == {
            record.properties["TIMER_OUT_MS"]
        }


@pytest.mark.parametrize("key", ["T+K", "K"])
@on_loop
async def test_deletion_in_the_slot_of_a_message_removes_it(tmp_path: Path, key: str) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        due = {"TIMER_DELIVER_MS": str(now_ms() + 500)}
        await sent(client, broker, {**due, "UNIQ_KEY": "K"}, body=b"deleted")
        await sent(client, broker, {**due, "UNIQ_KEY": "L"}, body=b"kept")
        await sent(client, broker, {**due, "UNIQ_KEY": "M", "TIMER_DEL_UNIQKEY": key})
        await sent(client, broker, {"TIMER_DELAY_MS": "1000"}, body=b"later")
        records = await arrived(broker, "T", 2)
        assert [each.body for each in records] == [b"kept", b"later"]


@on_loop
async def test_late_message_and_its_late_deletion_meet(tmp_path: Path) -> None:
    """RocketMQ delivers a message at once that it finds after its time, with no look at
    deletions."""
    config = quick(tmp_path)
    async with Broker(config) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "200"}, body=b"first")
        await arrived(broker, "T")
        store, over_ms = broker.store.store, now_ms() // 50 * 50 - 5000
        put_timed(store, over_ms, UNIQ_KEY="K", n="deleted")
        put_timed(store, over_ms, UNIQ_KEY="D", TIMER_DEL_UNIQKEY="T+K")
        put_timed(store, over_ms, UNIQ_KEY="L", n="kept")
        records = await arrived(broker, "T", 2)
        assert records[1].properties["n"] == "kept"
        await sent(client, broker, {"TIMER_DELAY_MS": "200", "n": "last"})
        records = await arrived(broker, "T", 3)
        assert records[2].properties["n"] == "last"


@on_loop
async def test_record_that_is_no_timer_message_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        answer = await call(client, broker, send_request(topic=TIMER, body=b"x", properties={}))
        assert answer.code == ResponseCode.NO_PERMISSION

        store = broker.store.store
        store.put(TIMER, b"plain")
        store.put(TIMER, b"odd", properties={"TIMER_OUT_MS": "-1", "REAL_TOPIC": "T"})
        store.put(TIMER, b"loop", properties={"TIMER_OUT_MS": "1", "REAL_TOPIC": TIMER})
        await sent(client, broker, {"TIMER_DELAY_MS": "200"}, body=b"timed")
        [record] = await arrived(broker, "T")
        assert record.body == b"timed"
        skipped = [each for each in caplog.messages if "is not a timer message" in each]
        assert len(skipped) == 3


@on_loop
async def test_delivery_that_fails_is_tried_until_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocketMQ gives a message up after three failures."""
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "300"})
        failures = [NotWritable("the disk is full", status="SERVICE_NOT_AVAILABLE")] * 5
        append = broker.store.append

        def fail(put: Any, durability: Any = None) -> Any:
            if failures:
                raise failures.pop()
            return append(put, durability)

        monkeypatch.setattr(broker.store, "append", fail)
        await arrived(broker, "T")
        assert not failures


@on_loop
async def test_delivery_that_is_in_the_log_is_not_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "300"}, body=b"first")
        append = broker.store.append

        def unconfirmed(put: Any, durability: Any = None) -> Any:
            receipt = append(put, durability)
            status = "FLUSH_SLAVE_TIMEOUT"
            raise PutError("no replica has it yet", status=status, receipt=receipt)

        monkeypatch.setattr(broker.store, "append", unconfirmed)
        await arrived(broker, "T")
        monkeypatch.undo()
        await sent(client, broker, {"TIMER_DELAY_MS": "300"}, body=b"second")
        records = await arrived(broker, "T", 2)
        assert [each.body for each in records] == [b"first", b"second"]


@on_loop
async def test_error_within_a_slot_delivers_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        due = {"TIMER_DELIVER_MS": str(now_ms() + 500)}
        for number in range(5):
            await sent(client, broker, due, body=b"%d" % number)
        deliver, failures = TimerMessages._deliver, [DiskError(5, "a read failed")] * 3

        async def fail(self: Any, timers: Any, deletions: Any, record: Any, **rest: Any) -> None:
            if record.body == b"3" and failures:
                raise failures.pop()
            await deliver(self, timers, deletions, record, **rest)

        monkeypatch.setattr(TimerMessages, "_deliver", fail)
        await sent(client, broker, {"TIMER_DELAY_MS": "1500"}, body=b"later")
        records = await arrived(broker, "T", 6)
        assert [each.body for each in records] == [b"0", b"1", b"2", b"3", b"4", b"later"]
        assert not failures


@on_loop
async def test_deletion_waits_for_a_message_that_is_entered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy for the wheel is in the log, and the members do not have it yet."""
    config = quick(tmp_path, timer_window_slots=40)
    held: list[Callable[[], Coroutine[Any, Any, int]]] = []
    deliver = Deliverer.deliver

    async def hold(deliverer: Deliverer, *arguments: Any, **origin: Any) -> int:
        copy = partial(deliver, deliverer, *arguments, **origin)
        if arguments[1] != TIMER:
            return await copy()
        held.append(copy)
        return _NOT_FOUND

    monkeypatch.setattr(Deliverer, "deliver", hold)
    async with Broker(config) as broker, RemotingClient() as client:
        due_ms = now_ms() + 2500
        await sent(client, broker, {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": "K"})
        await until(lambda: held, "it is entered again")
        deletion = {"TIMER_DELIVER_MS": str(due_ms), "TIMER_DEL_UNIQKEY": "T+K"}
        await sent(client, broker, {**deletion, "UNIQ_KEY": "D"})
        await until(lambda: now_ms() > due_ms + 200, "the time of both is over")
        broker.open._timers._rolled_end = await held[0]()
        await sent(client, broker, {"TIMER_DELAY_MS": "100"}, body=b"last")
        [record] = await arrived(broker, "T")
        assert record.body == b"last"


@on_loop
async def test_message_whose_properties_are_full_is_delivered(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path, timer_window_slots=10)) as broker:
        async with RemotingClient() as client:
            await sent(client, broker, {"TIMER_DELAY_MS": "800"})
            [waiting_record] = await arrived(broker, TIMER)
            room = 32_767 - len(waiting_record.properties_text) - len("p\x01\x02")
            await sent(client, broker, {"TIMER_DELAY_MS": "800", "p": "x" * room})
            first, second = await arrived(broker, "T", 2)
            assert "TIMER_ORIGIN" in first.properties
            assert len(second.properties["p"]) == room


@pytest.mark.parametrize("keeps_files", [True, False])
@on_loop
async def test_nothing_is_lost_or_delivered_again_after_a_kill(
    tmp_path: Path, *, keeps_files: bool
) -> None:
    """A new master has neither wheel nor timer log of its own, and the same messages come."""
    killed = tmp_path / "killed"
    async with Broker(quick(tmp_path / "a")) as broker, RemotingClient() as client:
        for number in range(6):
            properties = {"TIMER_DELAY_MS": str(300 + 300 * number)}
            await sent(client, broker, properties, body=b"%d" % number)
        await arrived(broker, "T", 2)
        shutil.copytree(tmp_path / "a", killed)
        await arrived(broker, "T", 6)
    if not keeps_files:
        shutil.rmtree(killed / "timerlog")
        (killed / "timerwheel").unlink()

    async with Broker(quick(killed)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "2500"}, body=b"after")
        records = await arrived(broker, "T", 7)
        bodies = [each.body for each in records]
        assert bodies == [b"0", b"1", b"2", b"3", b"4", b"5", b"after"]


@on_loop
async def test_nothing_is_delivered_again_after_a_restart(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "200"})
        await sent(client, broker, {"TIMER_DELAY_MS": "1500"}, body=b"second")
        await arrived(broker, "T")
    progress = DelayOffsets.load(tmp_path).timer
    assert progress is not None
    assert progress.queue_offset == 2
    checkpoint = TimerCheckpoint.decode((tmp_path / "config" / "timercheck").read_bytes())
    assert checkpoint is not None
    assert (checkpoint.read_ms, checkpoint.queue_offset) == progress[:2]
    assert (checkpoint.log_position, checkpoint.master_queue_offset) == (104, 2)

    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "1700"}, body=b"third")
        records = await arrived(broker, "T", 3)
        assert [each.body for each in records] == [b"x", b"second", b"third"]


@on_loop
async def test_forwarded_message_that_names_an_origin_does_not_stand_for_a_delivery(
    tmp_path: Path,
) -> None:
    killed = tmp_path / "killed"
    async with Broker(quick(tmp_path / "a")) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "2000", "UNIQ_KEY": "K"}, body=b"waits")
        broker.store.store.put("T", b"forged", properties={"TIMER_ORIGIN": "0", "UNIQ_KEY": "L"})
        await sent(client, broker, {"TIMER_ORIGIN": "0", "UNIQ_KEY": "K"}, body=b"forwarded")
        await arrived(broker, "T", 2)
        shutil.copytree(tmp_path / "a", killed)
    async with Broker(quick(killed)) as broker:
        records = await arrived(broker, "T", 3)
        assert [each.body for each in records] == [b"forged", b"forwarded", b"waits"]


# -- recalls


def recall_request(handle: str, *, topic: str = "T", **fields: str) -> Frame:
    """Return what a producer sends to recall a message."""
    needed = {"topic": topic, "recallHandle": handle, "producerGroup": "pg"}
    return Frame.request(RequestCode.RECALL_MESSAGE, {**needed, **fields})


@on_loop
async def test_recalled_message_is_not_delivered(tmp_path: Path) -> None:
    """testBuildMessage and testProcessRequest_success of upstream's RecallMessageProcessorTest."""
    async with Broker(quick(tmp_path, recalls=True)) as broker, RemotingClient() as client:
        due_ms = now_ms() + 2000
        timed = {"TIMER_DELIVER_MS": str(due_ms)}
        answer = await sent(client, broker, {**timed, "UNIQ_KEY": "K"}, body=b"recalled")
        await sent(client, broker, {**timed, "UNIQ_KEY": "L"}, body=b"kept")
        handle = answer.ext_fields["recallHandle"]
        slot_ms = (due_ms - 1) // 50 * 50
        text = f"v1 T {broker.config.name} {slot_ms + 1} K"
        assert base64.urlsafe_b64decode(handle).decode() == text

        recalled = await call(client, broker, recall_request(handle))
        assert (recalled.code, recalled.ext_fields["msgId"]) == (ResponseCode.SUCCESS, "K")
        assert recalled.ext_fields["MSG_REGION"] == "DefaultRegion"
        [_, _, deletion] = await arrived(broker, TIMER, 3)
        assert deletion.body == b"0"
        wanted = {
            "TAGS": "_RECALL_TAG_",
            "UNIQ_KEY": "K",
            "TIMER_DEL_UNIQKEY": "T+K",
            "TIMER_OUT_MS": str(slot_ms),
            "PGROUP": "pg",
        }
        assert deletion.properties.items() >= wanted.items()

        await sent(client, broker, {"TIMER_DELAY_MS": "2500"}, body=b"later")
        records = await arrived(broker, "T", 2)
        assert [each.body for each in records] == [b"kept", b"later"]


@on_loop
async def test_recall_is_refused_where_it_would_do_nothing(tmp_path: Path) -> None:
    """RocketMQ answers success, and delivers the message, if the slot of the handle is another.

    testProcessRequest_topicNotFound_or_notMatch, _brokerNameNotMatch and _timestampInvalid of
    upstream's RecallMessageProcessorTest."""
    async with Broker(quick(tmp_path, recalls=True)) as broker, RemotingClient() as client:
        name, base_ms = broker.config.name, now_ms() + 60_000
        await sent(client, broker, {"TIMER_DELIVER_MS": str(base_ms), "UNIQ_KEY": "K"})
        for handle, topic, remark in (
            ("x", "T", "recall handle is invalid"),
            ("v2 T b 1 K", "T", "recall handle is invalid"),
            (f"v1 T {name} x K", "T", "recall handle is invalid"),
            (f"v1 T {name} {base_ms} K", "BenchmarkTest", "recall failed, topic not match"),
            (f"v1 T other {base_ms} K", "T", "recall failed, broker service not available"),
            (f"v1 T {name} 1 K", "T", "recall failed, timestamp invalid"),
            (f"v1 T {name} {'9' * 40} K", "T", "recall failed, timestamp invalid"),
        ):
            text = base64.urlsafe_b64encode(handle.encode()).decode() if handle != "x" else "x"
            answer = await call(client, broker, recall_request(text, topic=topic))
            assert answer.code == ResponseCode.ILLEGAL_OPERATION
            assert answer.remark.startswith(remark)
        answer = await call(client, broker, recall_request("x", topic="none"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert len(await arrived(broker, TIMER)) == 1


@on_loop
async def test_recall_is_forbidden_by_default(tmp_path: Path) -> None:
    """testProcessRequest_notEnable of upstream's RecallMessageProcessorTest."""
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        answer = await call(client, broker, recall_request("x"))
        assert answer.code == ResponseCode.NO_PERMISSION
        assert answer.remark == "recall failed, operation is forbidden"


@pytest.mark.parametrize(
    ("role", "permission", "code"),
    [
        (Role(name="slave", broker_id=1), 6, ResponseCode.SLAVE_NOT_AVAILABLE),
        (
            Role(name="slave", broker_id=0, waits_for="power was lost"),
            6,
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ),
        (Role(name="master", broker_id=0), 4, ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
@on_loop
async def test_recall_is_refused_by_a_broker_that_takes_no_messages(
    tmp_path: Path, role: Role, permission: int, code: ResponseCode
) -> None:
    """testProcessRequest_invalidStatus and _notWriteable of upstream's
    RecallMessageProcessorTest."""
    config = quick(tmp_path, recalls=True, permission=permission)
    async with Broker(config) as broker, RemotingClient() as client:
        broker.open.set_role(role)
        answer = await call(client, broker, recall_request("x"))
        assert answer.code == code
        assert answer.remark == "recall failed, broker service not available"


@on_loop
async def test_recall_that_a_fail_over_may_lose_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """testHandlePutMessageResult of upstream's RecallMessageProcessorTest: RocketMQ answers success
    for what is stored, however it is."""
    async with Broker(quick(tmp_path, recalls=True)) as broker, RemotingClient() as client:
        answer = await sent(client, broker, {"TIMER_DELAY_MS": "60000", "UNIQ_KEY": "K"})
        handle = answer.ext_fields["recallHandle"]
        append = broker.store.append

        def slow(put: Callable[[], Any], durability: Any = None) -> Any:
            receipt = append(put, Durability.MEMORY)
            raise PutError("no copy", status="FLUSH_SLAVE_TIMEOUT", receipt=receipt)

        monkeypatch.setattr(broker.store, "append", slow)
        recalled = await call(client, broker, recall_request(handle))
        assert recalled.code == ResponseCode.SYSTEM_ERROR
        assert recalled.remark.startswith("recall failed, a fail-over may lose it")


@on_loop
async def test_deletion_of_another_time_gets_the_slot_of_its_message(tmp_path: Path) -> None:
    """In RocketMQ it does nothing, and nobody learns of it."""
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "1000", "UNIQ_KEY": "K"}, body=b"deleted")
        deletion = {"TIMER_DEL_UNIQKEY": "T+K", "UNIQ_KEY": "D", "TIMER_DELAY_SEC": "60"}
        await sent(client, broker, deletion)
        waiting_record, deleting = await arrived(broker, TIMER, 2)
        slot = waiting_record.properties["TIMER_OUT_MS"]
        assert deleting.properties["TIMER_OUT_MS"] == slot
        await sent(client, broker, {"TIMER_DELAY_MS": "1500"}, body=b"later")
        [record] = await arrived(broker, "T")
        assert record.body == b"later"

        # The message is delivered or deleted.
        answer = await send(client, broker, deletion)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL


@on_loop
async def test_recall_of_a_message_that_is_not_there_is_stored(tmp_path: Path) -> None:
    """Another topic's message of the same key is delivered."""
    async with Broker(quick(tmp_path, recalls=True)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "1500", "UNIQ_KEY": "K"})
        [waiting_record] = await arrived(broker, TIMER)
        due_ms = int(waiting_record.properties["TIMER_OUT_MS"]) + 1
        text = f"v1 BenchmarkTest {broker.config.name} {due_ms} K"
        handle = base64.urlsafe_b64encode(text.encode()).decode()
        answer = await call(client, broker, recall_request(handle, topic="BenchmarkTest"))
        assert answer.code == ResponseCode.SUCCESS
        await arrived(broker, "T")


@on_loop
async def test_recall_that_comes_with_the_delivery_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(quick(tmp_path, recalls=True)) as broker, RemotingClient() as client:
        answer = await sent(client, broker, {"TIMER_DELAY_MS": "5000"})
        monkeypatch.setattr(TimerMessages, "is_open", lambda _, slot_ms: False)
        recalled = await call(client, broker, recall_request(answer.ext_fields["recallHandle"]))
        assert recalled.code == ResponseCode.ILLEGAL_OPERATION
        assert "came too late" in recalled.remark


# -- fail-over


@on_loop
async def test_each_message_is_delivered_once_through_two_fail_overs(tmp_path: Path) -> None:
    quorum = {"in_sync_replicas": 2, "all_ack_in_sync_state_set": True, "min_in_sync_replicas": 2}
    options = {**quorum, "timer_precision_ms": 50, "timer_window_slots": 20}
    wanted = [b"%d" % number for number in range(60)]
    async with group_of(tmp_path, "a", "b", "c", **options) as group, RemotingClient() as client:
        leader = await group.master()
        broker, began_ms = group.brokers[leader], now_ms()
        for number, body in enumerate(wanted):
            due_ms = began_ms + 200 + 150 * number
            properties = {"TIMER_DELIVER_MS": str(due_ms), "UNIQ_KEY": body.decode()}
            await sent(client, broker, properties, body=body, queue_id=0)

        for count in (10, 25):
            await arrived(broker, "T", count)
            epoch = broker.role.epoch
            await group.kill(leader)
            killed, leader = leader, await group.master(after=epoch)
            broker = group.brokers[leader]
            await group.start(killed)
            await group.master(after=epoch)

        records = await arrived(broker, "T", len(wanted))
        assert sorted(each.unique_key or "" for each in records) == sorted(
            each.decode() for each in wanted
        )
        for each in records:
            due_ms = int(each.properties["TIMER_DELIVER_MS"])
            assert due_ms <= each.store_timestamp
        await broker.store.put("T", b"end", queue=0)
        records = await arrived(broker, "T", len(wanted) + 1)
        assert records[-1].body == b"end"


# -- damaged files, and clocks


def damage_log(root: Path) -> None:
    (root / "timerlog" / ("0" * 20)).write_bytes(b"\xff" * 100)


def cut_wheel(root: Path) -> None:
    (root / "timerwheel").write_bytes(b"\xff" * 100)


def fill_log(root: Path) -> None:
    path = root / "timerlog" / ("0" * 20)
    path.write_bytes(b"\xff" * path.stat().st_size)


def damage_checkpoint(root: Path) -> None:
    (root / "config" / "timercheck").write_bytes(b"\x7f" * 4096)


def lose_progress(root: Path) -> None:
    damage_checkpoint(root)
    DelayOffsets().save(root)


@pytest.mark.parametrize(
    "damage", [damage_log, cut_wheel, fill_log, damage_checkpoint, lose_progress]
)
@on_loop
async def test_damaged_files_of_the_timer_are_made_again(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "200"}, body=b"first")
        await sent(client, broker, {"TIMER_DELAY_MS": "1500"}, body=b"second")
        await arrived(broker, "T")
    damage(tmp_path)
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "1700"}, body=b"third")
        records = await arrived(broker, "T", 3)
        assert [each.body for each in records] == [b"first", b"second", b"third"]


@on_loop
async def test_files_of_another_size_are_made_again(tmp_path: Path) -> None:
    async with Broker(quick(tmp_path, timer_file_size=8192)) as broker:
        async with RemotingClient() as client:
            await sent(client, broker, {"TIMER_DELAY_MS": "1500"})
            await until(lambda: waiting(broker) == 1, "the message is in the wheel")
    async with Broker(quick(tmp_path, timer_file_size=16384)) as broker:
        await arrived(broker, "T")
    assert (tmp_path / "timerlog" / ("0" * 20)).stat().st_size == 16384


@pytest.mark.parametrize("hours", [24, -24])
@on_loop
async def test_clock_that_is_set_a_day_loses_no_message_and_doubles_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    async with Broker(quick(tmp_path)) as broker, RemotingClient() as client:
        await sent(client, broker, {"TIMER_DELAY_MS": "200", "UNIQ_KEY": "1"})
        await sent(client, broker, {"TIMER_DELAY_MS": "2000", "UNIQ_KEY": "2"})
        await arrived(broker, "T")
        monkeypatch.setattr(broker.runtime, "wall_ms", lambda: now_ms() + 3_600_000 * hours)
        if hours > 0:
            await arrived(broker, "T", 2)
            monkeypatch.undo()
        await sent(client, broker, {"TIMER_DELAY_MS": "300", "UNIQ_KEY": "3"})
        records = await arrived(broker, "T", 2 + (hours > 0))
        keys = [each.unique_key for each in records]
        assert keys == (["1", "2", "3"] if hours > 0 else ["1", "3"])
        monkeypatch.undo()
        await sent(client, broker, {"TIMER_DELAY_MS": "2200", "UNIQ_KEY": "4"})
        records = await arrived(broker, "T", 4)
        assert sorted(each.unique_key or "" for each in records) == ["1", "2", "3", "4"]
