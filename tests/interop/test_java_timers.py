"""Timer messages that wait in a broker of ours, handed to a broker of Java and back."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata.timer_checkpoint import TimerCheckpoint
from tests.support.brokers import SMALL_FILES, broker_config
from tests.support.java_broker import java_side
from tests.support.java_cluster import CLUSTER, GROUP
from tests.support.loops import on_loop
from tests.support.releases import NEW
from tests.support.sends import send_request
from tests.support.waiting import until

TIMER_FILE_SIZE = 1 << 20
FILES = {
    "mappedFileSizeTimerLog": TIMER_FILE_SIZE,
    "maxHashSlotNum": SMALL_FILES["index_slot_count"],
    "maxIndexNum": SMALL_FILES["index_entry_count"],
    "timerWheelEnable": "true",
}
"""What is not the default of Java's brokers in tests."""
AHEAD_S = (1, 2, 14, 15, 16, 35, 36)
DELETED_S = 17


def settings(root: Path) -> BrokerConfig:
    """Return settings whose files Java opens."""
    return broker_config(root, name=GROUP, cluster_name=CLUSTER, timer_file_size=TIMER_FILE_SIZE)


async def send(client: RemotingClient, broker: Broker, due_ms: int, **more: str) -> None:
    properties = {"TIMER_DELIVER_MS": str(due_ms), **more}
    answer = await client.call(
        broker.address, send_request("T", b"x", properties=properties, queue_id=0), 10.0
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark


def read_ms(check: Path) -> int:
    """Return the next slot that a check point names."""
    found = TimerCheckpoint.decode(check.read_bytes())
    assert found is not None
    return found.read_ms


def delivered(broker: Broker) -> Counter[str]:
    """Return how often each message is in its topic, by unique key."""
    records = broker.store.store.scan_log()
    return Counter(each.unique_key or "" for each in records if each.topic == "T")


@on_loop
async def test_waiting_messages_are_delivered_once_by_java_and_by_us(
    java_release: str, tmp_path: Path
) -> None:
    root = tmp_path / "ours"
    began_ms = time.time_ns() // 1_000_000
    async with Broker(settings(root)) as broker, RemotingClient() as client:
        for ahead_s in AHEAD_S:
            await send(client, broker, began_ms + 1000 * ahead_s, UNIQ_KEY=f"K{ahead_s}")
        await send(client, broker, began_ms + 1000 * DELETED_S, UNIQ_KEY="D")
        # RocketMQ 5.5.0 takes the key alone.
        key = "D" if java_release == NEW else "T+D"
        deletion = {"UNIQ_KEY": "E", "TIMER_DEL_UNIQKEY": key}
        await send(client, broker, began_ms + 1000 * DELETED_S, **deletion)
        await until(lambda: len(delivered(broker)) == 2, "the first two are delivered")

    with java_side(java_release, tmp_path) as java:
        namesrv = await java.nameserver()
        folders = {"storePathRootDir": root, "storePathCommitLog": root / "commitlog"}
        address = await java.broker(
            namesrv, **FILES, **folders, brokerName=GROUP, brokerClusterName=CLUSTER, brokerId=0
        )
        async with RemotingClient() as client:

            async def end() -> int:
                fields = {"topic": "T", "queueId": "0"}
                request = Frame.request(RequestCode.GET_MAX_OFFSET, fields)
                answer = await client.call(address, request, 10.0)
                return int(answer.ext_fields.get("offset", "0"))

            async def are_delivered() -> bool:
                return await end() >= 5

            await until(are_delivered, "Java delivers what is due", timeout=30)
            # A broker of Java that is killed before its next check point delivers again.
            over_ms = began_ms + 1000 * (DELETED_S + 1)
            check = root / "config" / "timercheck"
            await until(lambda: read_ms(check) > over_ms, "the check point is past the messages")
            assert await end() == 5

    async with Broker(settings(root)) as broker:
        await until(lambda: len(delivered(broker)) == len(AHEAD_S), "all are delivered")
        assert delivered(broker) == {f"K{each}": 1 for each in AHEAD_S}
