"""Sums of the reader in the JVM, by every grouping, beside those of the rows of either reader."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

from hypothesis import given, settings
from hypothesis import strategies as st

import rmqstore
from rmqstore import Message
from rmqstore.message import SysFlag, TransactionType
from rmqstore.spark.schema import known_columns
from tests.golden import NAMES, GoldenCases
from tests.spark.clocked import CLOCK_MS
from tests.spark.plan_reader import PlanReader, missing, plan_reader, python_rows
from tests.support.effort import rounds
from tests.support.native_store import set_clock

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

GROUPS = ("topic", "queueId", "tags")
BOUNDED = ("queueOffset", "physicalOffset", "storeTimestamp")
NULLABLE = ("tags", "keys", "uniqKey", "path")
COUNTED = tuple(each.name for each in known_columns(kafka=False)[:-3] if each.name not in NULLABLE)
FUNCTIONS = (
    ("count", None),
    *(("count", name) for name in COUNTED),
    *((function, name) for name in BOUNDED for function in ("min", "max")),
)
GROUPINGS = [
    groups for count in range(len(GROUPS) + 1) for groups in itertools.combinations(GROUPS, count)
]
Row = tuple[Any, ...]


@pytest.fixture(scope="module")
def reader() -> Iterator[PlanReader]:
    """Yield one process for all tests."""
    with plan_reader() as started:
        yield started


def joined(into: Row | None, row: Row) -> Row:
    """Return the values of two parts of one group as one."""
    if into is None:
        return row
    both = zip(FUNCTIONS, into, row, strict=True)
    joins = {"count": lambda a, b: a + b, "min": min, "max": max}
    return tuple(joins[name](a, b) for (name, _), a, b in both)


def of_rows(rows: list[dict[str, Any]], groups: tuple[str, ...]) -> dict[Row, Row]:
    """Return the values of FUNCTIONS of rows by their groups."""
    found: dict[Row, Row] = {}
    for row in rows:
        group = tuple(row[name] for name in groups)
        values = tuple(1 if name == "count" else row[column] for name, column in FUNCTIONS)
        found[group] = joined(found.get(group), values)
    return found


def check_sums(reader: PlanReader, root: Path, **options: str) -> None:
    """Compare each grouping of a store with that of the rows of both readers."""
    names = ",".join(dict.fromkeys((*GROUPS, *BOUNDED)))
    by_python = python_rows(root, columns=names, **options)
    by_jvm = reader.rows(root, columns=names, **options)
    assert by_python == by_jvm
    rows = [dict(zip(names.split(","), row, strict=True)) for row in by_python]
    functions = [
        {"name": name} if column is None else {"name": name, "column": column}
        for name, column in FUNCTIONS
    ]

    for groups in GROUPINGS:
        found: dict[Row, Row] = {}
        aggregation = {"groups": list(groups), "functions": functions}
        for row in reader.sums(root, aggregation, **options):
            if row[len(groups)] == 0:
                continue  # of a task without a message
            group, values = row[: len(groups)], row[len(groups) :]
            found[group] = joined(found.get(group), values)
        assert found == of_rows(rows, groups), groups


TAGS = st.sampled_from([None, "eu", "EU", "us", "t" * 300, "\u65e5\u672c", "q?"])
TOPICS = ("orders", "audit", "t" * 200)
"""The last one is longer than a record of the first version can name."""


def plain(topic: str, tags: str | None, queue: int, flags: int) -> list[Message]:
    return [Message(topic, b"x" * (queue * 50), queue=queue, tags=tags, sys_flag=flags)]


def half(tags: str | None, queue: int, kind: TransactionType) -> list[Message]:
    return [Message("orders", b"half", queue=queue, tags=tags, transaction=kind)]


PLAIN = st.builds(
    plain,
    st.sampled_from(TOPICS),
    TAGS,
    st.integers(0, 2),
    st.sampled_from([0, 0, int(SysFlag.COMPRESSED)]),
)
HALVES = st.builds(half, TAGS, st.integers(0, 2), st.sampled_from(list(TransactionType)))
INNER = st.lists(
    st.builds(lambda tags: Message("batches", b"inner", tags=tags, queue=0), TAGS),
    min_size=2,
    max_size=6,
)


@settings(max_examples=rounds(25, 400), deadline=None)
@given(
    records=st.lists(PLAIN | INNER | HALVES, max_size=25),
    steps=st.lists(st.integers(-5, 50), min_size=25, max_size=25),
    options=st.fixed_dictionaries(
        {"maxPartitionBytes": st.sampled_from(["1", "1500", "128m"])},
        optional={
            "topic": st.sampled_from(["orders", "batches", "batches,audit"]),
            "tags": st.sampled_from(["eu", "eu || us"]),
            "startingTimestamp": st.integers(CLOCK_MS, CLOCK_MS + 300).map(str),
        },
    ),
)
def test_sums_by_every_grouping_are_those_of_the_rows(
    reader: PlanReader, records: list[list[Message]], steps: list[int], options: dict[str, str]
) -> None:
    with tempfile.TemporaryDirectory(prefix="sums-") as folder:
        root = Path(folder, "store")
        with rmqstore.open(
            root, commit_log_file_size_bytes=4096, message_index_enable=False
        ) as store:
            for topic in ("orders", "audit"):
                store.create_topic(topic)
            store.create_topic("batches", attributes={"queue.type": "BatchCQ"})
            clock = CLOCK_MS
            for messages, step in zip(records, steps, strict=False):
                clock += step
                set_clock(store, clock)
                if len(messages) == 1:
                    store.put(messages[0])
                else:
                    store.put_batch(messages)
        for file in (root / "commitlog").iterdir():
            file.write_bytes(file.read_bytes().replace(b"TAGS\1q?", b"TAGS\1q\xff"))
        check_sums(reader, root, startingOffsetsByTimestampStrategy="latest", **options)


@pytest.mark.parametrize("release", ["5.3.3", "5.5.0"])
def test_sums_of_golden_stores_are_those_of_the_rows(
    release: str, reader: PlanReader, golden_cases: GoldenCases, tmp_path: Path
) -> None:
    for name in NAMES:
        root = golden_cases.copy(release, name, into=tmp_path).root
        check_sums(reader, root, onCorrupt="skip", upTo="max")
