"""Metadata of a broker: an offset commit, and the way of one changed topic to a slave and to the
disk, with few and with many entries in the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.conftest import Measure
from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.tables import Tables
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    GroupTable,
    RequestModes,
    TopicConfig,
    TopicTable,
)

COUNTS = [10, 10_000]


def _tables() -> Tables:
    return Tables(
        topics=TopicTable(),
        groups=GroupTable(),
        offsets=ConsumerOffsets(),
        delays=DelayOffsets(),
        modes=RequestModes(),
        wall_ms=lambda: 1,
    )


def _topics(count: int) -> Tables:
    tables = _tables()
    for number in range(count):
        tables.set_topic(TopicConfig(f"topic-{number}", 4, 4))
    return tables


@pytest.mark.parametrize("groups", COUNTS)
def bench_commit_offset(bounded: Measure, groups: int) -> None:
    offsets = _tables().offsets
    names = [f"group-{number}" for number in range(groups)]
    for each in names:
        offsets.commit("orders", each, 0, 0)
    at = 0

    def commit() -> None:
        nonlocal at
        at += 1
        offsets.commit("orders", names[at % groups], 0, at)

    bounded(commit, rounds=20, iterations=5000)
    assert offsets.query("orders", names[at % groups], 0) == at


@pytest.mark.parametrize("topics", COUNTS)
def bench_one_topic_to_a_slave(bounded: Measure, topics: int) -> None:
    """The change at the master, its body, and the change at the slave."""
    master, slave = _topics(topics), _topics(topics)
    queues = 0

    def change() -> None:
        nonlocal queues
        queues += 1
        before = master.log.sequence
        master.set_topic(TopicConfig("orders", queues, queues))
        body = ChangeBody.of(master, master.log.after(before)).encode()
        ChangeBody.decode(body).apply(slave)

    bounded(change, rounds=20, iterations=100)
    assert slave.topics["orders"].read_queue_count == queues


@pytest.mark.parametrize("topics", COUNTS)
def bench_one_topic_to_the_disk(bounded: Measure, tmp_path: Path, topics: int) -> None:
    """The whole file, as RocketMQ reads it, and the one before it as its copy."""
    tables = _topics(topics)
    tables.topic_table().save(tmp_path)
    queues = 0

    def change() -> None:
        nonlocal queues
        queues += 1
        tables.set_topic(TopicConfig("orders", queues, queues))
        tables.topic_table().save(tmp_path, is_file_whole=True)

    bounded(change, rounds=20)
    assert TopicTable.load(tmp_path).topics["orders"].read_queue_count == queues
