"""Metadata of a broker: an offset commit, and the way of one changed topic to a slave and to the
disk, with few and with many entries in the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.conftest import Measure
from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.tables import Tables
from rmqstore.store.metadata import ConsumerOffsets, OffsetTable, TopicConfig, TopicTable
from rmqstore.store.metadata.journal import Change
from rmqstore.store.metadata.journaled import JournaledFile

COUNTS = [10, 100_000]
GROUPS, QUEUES = 125_000, 8
"""A million offsets."""


def _tables() -> Tables:
    return Tables(wall_ms=lambda: 1)


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
    """A change that the journal has, durably."""
    tables = _topics(topics)
    tables.topic_table().save(tmp_path)
    file = JournaledFile(tmp_path, TopicTable)
    file.load()
    queues = 0

    def change() -> None:
        nonlocal queues
        queues += 1
        tables.set_topic(TopicConfig("orders", queues, queues))
        value = tables.topics["orders"].members()
        file.append(Change([("topic", "orders", value)], tables.topics_version))

    bounded(change, rounds=20, iterations=10)
    assert TopicTable.load(tmp_path).topics["orders"].read_queue_count == queues


@pytest.mark.parametrize("topics", COUNTS)
def bench_topics_file(bounded: Measure, tmp_path: Path, topics: int) -> None:
    """The whole file with one changed topic, as RocketMQ reads it, and the one before it as its
    copy."""
    tables = _topics(topics)
    tables.topic_table().save(tmp_path)
    queues = 0

    def change() -> None:
        nonlocal queues
        queues += 1
        tables.set_topic(TopicConfig("orders", queues, queues))
        tables.topic_table().save(tmp_path, is_file_whole=True)

    bounded(change, rounds=5)
    assert TopicTable.load(tmp_path).topics["orders"].read_queue_count == queues


def _offsets() -> OffsetTable:
    each = {
        f"topic-{number % 10_000}@group-{number // 10_000}": dict.fromkeys(range(QUEUES), number)
        for number in range(GROUPS)
    }
    return OffsetTable(ConsumerOffsets(each))


def bench_million_offsets_file(bounded: Measure, tmp_path: Path) -> None:
    """The file of a million offsets after one commit."""
    table = _offsets()
    table.snapshot().save(tmp_path)
    at = 0

    def commit() -> None:
        nonlocal at
        at += 1
        table.commit("topic-7@group-0", 3, at, now_ms=1)
        table.snapshot().save(tmp_path, is_file_whole=True)

    bounded(commit, rounds=5)
    assert ConsumerOffsets.load(tmp_path).of("topic-7", "group-0")[3] == at


def bench_start_over_large_tables(bounded: Measure, tmp_path: Path) -> None:
    """Reading 10,000 topics and a million offsets."""
    _topics(10_000).topic_table().save(tmp_path)
    _offsets().snapshot().save(tmp_path)
    found: list[int] = []

    def load() -> None:
        topics, offsets = TopicTable.load(tmp_path), ConsumerOffsets.load(tmp_path)
        found[:] = [len(topics.topics), len(offsets.offsets)]

    bounded(load, rounds=3)
    assert found == [10_000, GROUPS]
