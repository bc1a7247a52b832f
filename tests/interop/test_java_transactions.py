"""A transactional producer of RocketMQ, through SIGKILL of the master of a group of ours; and a
directory of ours with transactions under way, taken over by a broker of RocketMQ."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from tests.interop.clients import java_program, play_in_group
from tests.support.brokers import broker_config
from tests.support.java_broker import java_side
from tests.support.java_cluster import CLUSTER, GROUP
from tests.support.loops import on_loop
from tests.support.our_group import OurGroup
from tests.support.releases import BEFORE, NEW
from tests.support.transactions import (
    ASKING,
    ROLLBACK,
    Producer,
    beat,
    commit,
    ended,
    half,
)
from tests.support.waiting import until

PROGRAM = "peer.clients.Transactions"
TRANSACTIONS = 80
SETTINGS = {
    "inSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
    # Questions come sooner than notes: RocketMQ would ask about committed messages.
    "transactionTimeOut": 1000,
    "transactionCheckInterval": 500,
    "transactionOpBatchInterval": 3000,
}
"""Nothing that is acknowledged is lost with the master."""

pytestmark = pytest.mark.java


@pytest.mark.parametrize("release", [NEW, BEFORE])
def test_each_transaction_ends_once_as_its_producer_says_though_the_master_is_killed(
    tmp_path: Path, release: str
) -> None:
    program = java_program(release, name=PROGRAM)
    group = OurGroup(tmp_path, SETTINGS)
    try:
        group.wait_whole()
        found = play_in_group(program, group, TRANSACTIONS, after="sent")
        assert found == {
            "sent": TRANSACTIONS // 2,
            "committed": TRANSACTIONS // 2,
            "rolled back": 0,
            "twice": 0,
        }
        assert len(group.masters) > 1, "another broker leads"
    finally:
        group.close()


@on_loop
async def test_broker_of_rocketmq_goes_on_with_the_transactions_of_a_directory(
    java_release: str, tmp_path: Path
) -> None:
    root = tmp_path / "ours"
    settings = {**ASKING, "transaction_check_interval_ms": 1000, "transaction_checks_max": 15}
    config = broker_config(root, name=GROUP, cluster_name=CLUSTER, **settings)
    # RocketMQ gives old messages up unasked.
    born = {"born_timestamp_ms": time.time_ns() // 1_000_000}
    first = Producer()
    async with Broker(config) as broker, first.client as client:
        places = {
            name: await half(client, broker, properties={"UNIQ_KEY": name}, **born)
            for name in ("committed", "rolled back", "asked about")
        }
        await commit(client, broker, places["committed"])
        assert (await ended(client, broker, places["rolled back"], ROLLBACK))[0] == 0
        await beat(client, broker.address)
        await until(lambda: first.questions, "the third is asked about")
        await half(client, broker, properties={"UNIQ_KEY": "new"}, **born)

    second = Producer()
    with java_side(java_release, tmp_path) as peer:
        paths = {"storePathRootDir": root, "storePathCommitLog": root / "commitlog"}
        intervals = {"transactionTimeOut": 1000, "transactionCheckInterval": 1000}
        address = await peer.broker(await peer.nameserver(), **paths, **intervals)
        async with second.client as client:
            await beat(client, address)

            def asked() -> set[str | None]:
                return {message.unique_key for _, message in second.questions}

            await until(lambda: asked() >= {"asked about", "new"}, "RocketMQ asks")
            rounds = len(second.questions) + 4
            await until(lambda: len(second.questions) >= rounds, "it asks again and again")
            assert asked() == {"asked about", "new"}
