"""A store with every kind of message, as both sides are told of it.

`Case` holds the settings by RocketMQ's names: rmqstore is opened with them, and the Java store
finds them in `spec.json` beside the store.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore import CompressionType, Message, SysFlag, TransactionType
from rmqstore.check import manifest
from tests.golden.rewriting import config_of
from tests.reference import batch, properties
from tests.support.java_store import JavaStore, Report

BATCH_TOPIC = "Bundles"
LONG_TOPIC = "long-topic-" + "x" * 140
LIGHT_QUEUES = ("%LMQ%one", "%LMQ%two", "%LMQ%three")
HOSTS = (("10.0.0.7", 40001), ("2001:db8::17", 40002))

SETTINGS: Mapping[str, Any] = {
    "mappedFileSizeCommitLog": 65536,
    "mappedFileSizeConsumeQueue": 1000,
    "mapperFileSizeBatchConsumeQueue": 4600,
    "maxHashSlotNum": 101,
    "maxIndexNum": 400,
    "enableMultiDispatch": True,
    "enableLmq": True,
}


SPEC: dict[str, Any] = {
    "seed": 77,
    "store": dict(SETTINGS),
    "topics": [
        {"name": "TopicA", "queues": 3},
        {"name": "Long", "padTo": 200, "queues": 2},
        {"name": "Bundles", "queues": 2, "queueType": "BatchCQ"},
    ],
    "steps": [
        {
            "kind": "normal",
            "count": 120,
            "topics": ["TopicA", "Long"],
            "body": [0, 900],
            "tags": ["A", "B"],
            "keys": [0, 2],
            "bornHost": "mixed",
            "storeHost": "mixed",
            "compression": ["none", "zlib", "lz4", "zstd"],
        },
        {"kind": "batch", "count": 20, "topics": ["TopicA"], "size": [1, 6], "body": [0, 300]},
        {
            "kind": "innerBatch",
            "count": 20,
            "topics": ["Bundles"],
            "size": [2, 8],
            "body": [0, 200],
        },
        {"kind": "transaction", "count": 20, "topics": ["TopicA"], "style": ["flags", "broker"]},
        {"kind": "delay", "count": 20, "topics": ["TopicA"], "levels": [1, 18]},
        {
            "kind": "lmq",
            "count": 30,
            "topics": ["TopicA"],
            "lmq": ["x", "y", "z"],
            "fanout": [1, 3],
        },
        {"kind": "exact", "count": 1, "topics": ["TopicA"], "target": "fileEnd", "slack": 0},
        {"kind": "normal", "count": 60, "topics": ["TopicA"], "body": [0, 900], "keys": [1, 1]},
    ],
}
"""What the Java store is asked to write."""


@dataclass(frozen=True, slots=True)
class Case:
    """A directory with `store/`, and the settings of that store."""

    directory: Path
    settings: Mapping[str, Any]

    @property
    def root(self) -> Path:
        return self.directory / "store"

    @property
    def manifest(self) -> Path:
        return self.directory / "manifest.jsonl"

    def write_spec(self) -> None:
        """Write what the Java store has to know to open the directory."""
        self.directory.mkdir(parents=True, exist_ok=True)
        topics = [{"name": BATCH_TOPIC, "queues": 2, "queueType": "BatchCQ"}]
        spec = {"store": dict(self.settings), "topics": topics}
        (self.directory / "spec.json").write_text(json.dumps(spec), encoding="utf-8")

    def open(self, *, compatibility: str = "auto") -> rmqstore.Store:
        """Open the store, its topic for inner batches declared."""
        self.write_spec()
        store = rmqstore.open(
            self.root, config_of(self.settings, self.root, compatibility=compatibility)
        )
        store.create_topic(
            BATCH_TOPIC,
            read_queue_count=2,
            write_queue_count=2,
            attributes={"queue.type": "BatchCQ"},
        )
        return store

    def write_manifest(self, store: rmqstore.Store) -> int:
        """Write down every record of *store* for the Java store to compare; return their number."""
        lines = list(manifest.dump(store))
        text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
        self.manifest.write_text(text, encoding="utf-8")
        return len(lines)


def put_every_kind(store: rmqstore.Store, *, first: int = 0, rounds: int = 12) -> None:
    """Put *rounds* rounds, counted from *first*, of 30 records of every kind there is."""
    for number in range(first, first + rounds):
        for message in _singles(number):
            store.put(message)
        store.put_many(
            Message(f"Topic-{number % 3}", f"many {number}/{i}".encode() * 20, queue=i % 4)
            for i in range(8)
        )
        store.put_batch(_members("Together", number))
        store.put_batch(_members(LONG_TOPIC, number))
        for level in (1, 7, 18):
            store.put(
                Message(
                    "Later", b"wait", delay_level=level, tags="d", unique_key=f"D{number}{level}"
                )
            )
        _put_transactions(store, number)
        _put_inner_batch(store, number)


def _singles(number: int) -> Iterator[Message]:
    yield Message("Bare", b"")
    yield Message(
        "Grüße",
        "Größe und 大小".encode() * 9,
        queue=number % 2,
        tags="ümlaut-标签",
        keys=[f"schlüssel-{number}", f"键{number % 5}", "same"],
        properties={"größe": "très 大", "a": "x=y z"},
        unique_key=f"U{number:08}",
        flag=-number,
        reconsume_times=number,
    )
    yield Message(LONG_TOPIC, bytes(range(256)), tags="long", keys=[f"L{number}"])

    for at, (born, stored) in enumerate((a, b) for a in HOSTS for b in HOSTS):
        yield Message(
            "Hosts",
            bytes(300 + at),
            queue=at,
            born_host=born,
            store_host=stored,
            born_timestamp=1_700_000_000_000 + number,
        )

    for kind in CompressionType:
        body = rmqstore.compress(b"compressible " * 150, kind)
        yield Message("Packed", body, sys_flag=int(kind.sys_flag), tags=kind.name)

    yield Message(
        "Light",
        b"for light queues",
        tags="l",
        keys=[f"M{number}"],
        properties={"INNER_MULTI_DISPATCH": ",".join(LIGHT_QUEUES[number % 2 :])},
    )


def _members(topic: str, number: int) -> list[Message]:
    return [
        Message(
            topic,
            f"member {i} of {number}".encode() * 7,
            tags="B",
            keys=[f"B{number}-{i}"] if i % 2 else [],
            properties={"WAIT": "true"},
        )
        for i in range(3)
    ]


def _put_transactions(store: rmqstore.Store, number: int) -> None:
    half = store.put(
        Message("Money", b"half", transaction=TransactionType.PREPARED, unique_key=f"T{number}")
    )
    end = TransactionType.COMMIT if number % 3 else TransactionType.ROLLBACK
    store.put(
        Message(
            "Money",
            b"whole",
            transaction=end,
            tags="t",
            unique_key=f"T{number}",
            prepared_transaction_offset=half.physical_offset,
        )
    )


def _put_inner_batch(store: rmqstore.Store, number: int) -> None:
    count = 2 + number % 5
    body = batch.encode(
        batch.Message(
            flag=i,
            body=f"inner {number}/{i}".encode(),
            property_bytes=properties.encode({"n": str(i)}),
        )
        for i in range(count)
    )
    store.put(
        Message(
            BATCH_TOPIC,
            body,
            queue=number % 2,
            sys_flag=int(SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP),
            properties={"INNER_NUM": str(count)},
            unique_key=f"I{number:06}",
        )
    )


def assert_accepted(report: Report, *, messages: int) -> None:
    """Hold the verdict of a dump with keys, probe and manifest against *messages* records."""
    assert report.verdict["ok"], report.verdict
    assert report.exit_status == 0, report.stderr
    (compared,) = report.of("manifest")
    assert compared["lines"] == messages
    assert compared["matched"] + compared["undispatched"] == messages


def read_by_java(java: JavaStore, case: Case, *, probe: bool = True) -> Report:
    """Return what the Java store says of the case after its own recovery."""
    return java.dump(case.directory, keys=True, probe=probe, manifest=case.manifest)
