"""A group of three brokers under load of all kinds of messages, whose masters fail one after
another.

In the end each acknowledged message is in its topic once, none of them before its time, no
committed half message is missing, no rolled-back one is there, and messages that were sent back are
retries or dead letters. `make test` runs ten rounds, `make soak` two hundred.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path

import pytest

import rmqstore
from rmqstore.net.loop_thread import LoopThread
from tests.crash.group_faults import FAULTS
from tests.support.effort import rounds
from tests.support.kinds_client import DEAD, RETRY, TOPIC, Acknowledged, KindsClient
from tests.support.our_group import LIMIT_S, OurGroup
from tests.support.waiting import spin_until

SEED = int(os.environ.get("RMQ_SEED", "20240229"))
ROUNDS = rounds(10, 200)
FEW = 20
SETTINGS = {
    "inSyncReplicas": 2,
    "allAckInSyncStateSet": "true",
    "timerPrecisionMs": 100,
    "transactionTimeOut": 500,
    "transactionCheckInterval": 300,
}
OF_MASTERS = ("master killed", "master paused")


class Found:
    """The messages of a store, as its queues hold them."""

    def __init__(self, path: Path) -> None:
        self.keys: dict[str, Counter[str]] = {}
        self.stored_ms: dict[str, int] = {}
        with rmqstore.open(path, read_only=True) as store:
            for topic in (TOPIC, RETRY, DEAD):
                keys = self.keys[topic] = Counter()
                for queue in store.queues(topic):
                    for record in queue:
                        keys[record.unique_key or ""] += 1
                        if topic == TOPIC:
                            self.stored_ms[record.unique_key or ""] = record.store_timestamp

    def missing(self, wanted: Acknowledged) -> set[str]:
        """Return the keys of messages that are not where they belong."""
        return (
            (wanted.delivered - self.keys[TOPIC].keys())
            | (wanted.retried - self.keys[RETRY].keys())
            | (wanted.dead - self.keys[DEAD].keys())
        )


def test_messages_of_all_kinds_arrive_once_through_any_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = OurGroup(tmp_path, SETTINGS)
    thread = LoopThread("client", what="the thread of the client")
    client = thread.call(lambda: KindsClient(lambda: address_of(group), seed=SEED))
    try:
        group.wait_whole()
        thread.call(client.start)
        for number in range(ROUNDS):
            with FAULTS[OF_MASTERS[number % 2]].begin(group):
                wait_few(client, number)
            group.wait_whole()
            wait_few(client, number)
        thread.run(client.stop_sending)

        wanted = client.acknowledged
        found = wait_for_all(group, wanted)
        group.wait_equal_logs()
    finally:
        thread.run(client.close)
        thread.stop()
        group.close()

    assert [key for key, count in found.keys[TOPIC].items() if count > 1] == []
    assert not wanted.rolled_back & found.keys[TOPIC].keys()
    early = {key for key, due_ms in wanted.not_before_ms.items() if found.stored_ms[key] < due_ms}
    assert not early, "delivered before their time"
    with capsys.disabled():
        print(
            f"\nRMQ_SEED={SEED}: {ROUNDS} rounds, {len(group.masters)} masters, "
            f"{len(wanted.delivered)} messages delivered, {len(wanted.rolled_back)} rolled back, "
            f"{len(wanted.retried)} retried, {len(wanted.dead)} dead letters",
            file=sys.stderr,
        )


def address_of(group: OurGroup) -> str | None:
    state = group.state()
    return None if state is None or state.master_id is None else state.master_address


def wait_few(client: KindsClient, number: int) -> None:
    wanted = len(client.acknowledged.delivered) + FEW
    spin_until(
        lambda: len(client.acknowledged.delivered) >= wanted,
        f"round {number}: {wanted} acknowledged messages",
        timeout=LIMIT_S,
    )


def wait_for_all(group: OurGroup, wanted: Acknowledged) -> Found:
    """Return what the master has once nothing is missing."""
    found: list[Found] = []

    def is_complete() -> bool:
        found[:] = [Found(group.master().store)]
        return not found[0].missing(wanted)

    try:
        spin_until(is_complete, "all messages", timeout=LIMIT_S, pause=0.2)
    except AssertionError:
        raise AssertionError(f"lost: {sorted(found[0].missing(wanted))[:20]}") from None
    return found[0]
