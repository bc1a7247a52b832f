"""The reader in Python on stores that Java writes: closed, crashed, and while it writes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from tests.golden import GoldenCase
from tests.spark.golden_rows import comparable, expected_rows
from tests.spark.reading import read
from tests.support.every_kind import SPEC
from tests.support.java_store import JavaStore
from tests.support.releases import NEW, OLD, with_release, with_releases


@with_releases("crash", {"closed": (False, OLD), "crashed": (True, NEW)}, fixture="java_store")
def test_a_store_of_live_java_gives_the_rows_of_its_manifest(
    java_store: JavaStore, crash: bool, tmp_path: Path
) -> None:
    written = java_store.write(tmp_path, SPEC, crash=crash)
    case = GoldenCase(java_store.release, "live", tmp_path, SPEC, written, [])
    expected = list(expected_rows(case))
    assert len(expected) > len(written)
    options: tuple[dict[str, Any], ...] = ({}, {"maxPartitionBytes": 1}, {"minPartitions": 9})
    for each in options:
        assert [comparable(row) for row in read(tmp_path / "store", upTo="max", **each)] == expected


@with_release(NEW, fixture="java_store")
def test_a_read_beside_live_java_has_whole_messages(java_store: JavaStore, tmp_path: Path) -> None:
    root = tmp_path / "store"
    with java_store.benching("put", root, messages=100_000_000) as process:
        deadline = time.monotonic() + 60
        sizes: list[int] = []
        while len(sizes) < 3 and time.monotonic() < deadline:
            assert process.poll() is None
            if not any((root / "commitlog").glob("*")):
                continue
            rows = read(root, upTo="max", columns="topic,queueId,queueOffset,bodyCrcOk")
            if not rows or (sizes and len(rows) <= sizes[-1]):
                continue
            sizes.append(len(rows))
            assert all(row["bodyCrcOk"] for row in rows)
            queues: dict[tuple[str, int], list[int]] = {}
            for row in rows:
                queues.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
            for offsets in queues.values():
                assert offsets == list(range(len(offsets)))
            if len(rows) > 200_000:
                break
    assert sizes
