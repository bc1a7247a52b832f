"""Which of Spark's conditions narrow a read, and what the reader in the JVM is told."""

from __future__ import annotations

import shutil
import struct
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.message import Message, TransactionType
from rmqstore.spark.jvm.planner import answer
from rmqstore.spark.options import Options
from rmqstore.spark.read.conditions import Conditions, Sums, pushed, sums_of

EVER = (-(2**63), 2**63 - 1)
Condition = dict[str, Any]


def condition(name: str, column: str, *values: object, type_: str = "string") -> Condition:
    """Return a condition as the reader in the JVM writes it."""
    literals = [{"type": type_, "value": value} for value in values]
    return {"name": name, "arguments": [{"column": column}, *literals]}


def push(*given: Condition, **options: str) -> tuple[Conditions, list[str]]:
    """Return what conditions of a read with *options* narrow, and their effects."""
    return pushed(given, Options.parse({"path": "/x", **options}))


def test_equal_texts_and_numbers_choose_topics_queues_and_tags() -> None:
    conditions, effects = push(
        condition("=", "topic", "orders"),
        condition("IN", "queueId", 1, 2, type_="int"),
        condition("IS_NOT_NULL", "tags"),
        condition("<=>", "tags", "eu"),
    )
    assert conditions == Conditions(
        topics=frozenset(["orders"]), queues=frozenset([1, 2]), tags=frozenset(["eu"])
    )
    assert effects == ["exact"] * 4


def test_keys_sys_flags_and_born_times_are_compared_in_the_core() -> None:
    conditions, effects = push(
        condition("IS_NOT_NULL", "keys"),
        condition("=", "keys", "k1"),
        condition("IN", "sysFlag", 0, 8, type_="int"),
        condition("<", "bornTimestamp", 5001, type_="timestamp"),
    )
    assert conditions == Conditions(
        keys=frozenset(["k1"]), sys_flags=frozenset([0, 8]), born_ms=(EVER[0], 6)
    )
    assert effects == ["exact"] * 4


def test_conditions_on_one_column_are_all_in_force() -> None:
    conditions, _ = push(condition("IN", "topic", "a", "b"), condition("IN", "topic", "b", "c"))
    assert conditions.topics == {"b"}
    assert not conditions.excludes_all
    conditions, _ = push(condition("=", "topic", "a"), condition("=", "topic", "b"))
    assert conditions.excludes_all


def test_a_tag_that_the_option_excludes_leaves_nothing() -> None:
    conditions, _ = push(condition("=", "tags", "eu"), tags="us")
    assert conditions.excludes_all


@pytest.mark.parametrize(
    ("name", "microseconds", "expected"),
    [
        (">=", 5000, (5, EVER[1])),
        (">=", 5001, (6, EVER[1])),
        (">", 5000, (6, EVER[1])),
        (">", 4999, (5, EVER[1])),
        ("<", 5000, (EVER[0], 5)),
        ("<", 5001, (EVER[0], 6)),
        ("<=", 5000, (EVER[0], 6)),
        ("<=", 4999, (EVER[0], 5)),
        ("=", 5000, (5, 6)),
        ("<=", -1, (EVER[0], 0)),
    ],
)
def test_times_are_compared_in_milliseconds(
    name: str, microseconds: int, expected: tuple[int, int]
) -> None:
    conditions, effects = push(condition(name, "storeTimestamp", microseconds, type_="timestamp"))
    assert (conditions.store_ms, effects) == (expected, ["exact"])


def test_a_time_between_two_milliseconds_is_that_of_no_message() -> None:
    assert push(condition("=", "storeTimestamp", 5001, type_="timestamp"))[0].excludes_all


def test_a_literal_may_come_first() -> None:
    mirrored = condition(">", "queueOffset", 7, type_="bigint")
    mirrored["arguments"].reverse()
    assert push(mirrored)[0].queue_offsets == (EVER[0], 7)


@pytest.mark.parametrize(
    "given",
    [
        condition("=", "topic", "bad \ufffd bytes"),
        condition("=", "tags", ""),
        condition("=", "keys", ""),
        condition("=", "sysFlag", 2**31, type_="bigint"),
        condition("=", "queueId", -1, type_="int"),
        condition("IN", "queueId", 0, -1, type_="int"),
        condition("=", "topic", None),
        condition(">", "queueOffset", 2**62, type_="bigint"),
        condition("IS_NOT_NULL", "tags"),
        condition("STARTS_WITH", "topic", "or"),
        {"name": "=", "arguments": [{"column": "topic"}, {}]},
        {"name": "=", "arguments": [{}, {"type": "string", "value": "a"}]},
        {"name": "ALWAYS_TRUE", "arguments": []},
    ],
    ids=str,
)
def test_what_the_core_cannot_tell_is_left_to_spark(given: Condition) -> None:
    if {"type": "string", "value": None} in given["arguments"]:
        del given["arguments"][1]["value"]
    assert push(given) == (Conditions(), ["none"])


def test_rows_for_damage_are_for_spark_to_leave_out() -> None:
    _, effects = push(
        condition("=", "topic", "a"), condition("IS_NOT_NULL", "topic"), onCorrupt="row"
    )
    assert effects == ["partly", "partly"]


def test_a_place_in_the_log_is_known_to_a_split() -> None:
    conditions, effects = push(condition(">=", "physicalOffset", 100, type_="bigint"))
    assert (conditions.physical_offsets, effects) == ((100, EVER[1]), ["partly"])


def test_names_are_those_of_the_kafka_source_where_it_is_asked_for() -> None:
    conditions, effects = push(
        condition("=", "partition", 3, type_="int"),
        condition("<", "offset", 9, type_="bigint"),
        columnNames="kafka",
    )
    assert (conditions.queues, conditions.queue_offsets) == ({3}, (EVER[0], 9))
    assert effects == ["exact", "exact"]


# ---- sums ----


def sums(*functions: tuple[str, str | None], groups: Any = (), **options: str) -> Sums | None:
    """Return what an aggregation makes of a read with *options*."""
    given = [
        {"name": name} if column is None else {"name": name, "column": column}
        for name, column in functions
    ]
    aggregation = {"groups": list(groups), "functions": given}
    return sums_of(aggregation, Options.parse({"path": "/x", **options}))


def test_counts_and_bounds_are_sums_by_topic_and_queue() -> None:
    asked = sums(("count", None), ("max", "storeTimestamp"), groups=("queueId", "topic"))
    assert asked == Sums(
        ("queue_id", "topic"),
        ("messages", "max_store_timestamp"),
        "`queueId` INT, `topic` STRING, `value0` BIGINT, `value1` TIMESTAMP_LTZ",
    )
    assert sums(("count", None), groups=("tags",)) == Sums(
        ("tags",), ("messages",), "`tags` STRING, `value0` BIGINT"
    )
    kafka = sums(("min", "offset"), groups=("partition",), columnNames="kafka")
    assert kafka == Sums(("queue_id",), ("min_queue_offset",), "`partition` INT, `value0` BIGINT")


@pytest.mark.parametrize(
    ("function", "groups"),
    [
        (("count", "tags"), ()),
        (("count", "path"), ()),
        (("min", "topic"), ()),
        (("max", "size"), ()),
        (("other", None), ()),
        (("min", "bornTimestamp"), ()),
        (("count", None), ("keys",)),
        (("count", None), (None,)),
    ],
)
def test_what_the_core_does_not_sum_up_is_left_to_spark(
    function: tuple[str, str | None], groups: tuple[str | None, ...]
) -> None:
    assert sums(function, groups=groups) is None


def test_rows_for_damage_are_counted_by_spark() -> None:
    assert sums(("count", None), onCorrupt="row") is None


# ---- the planner ----


def ask(call: str, *, options: dict[str, str], **more: object) -> dict[str, Any]:
    """Return what the planner answers."""
    return answer(
        {"call": call, "release": metadata.version("rmqstore"), "options": options, **more}
    )


def plan(
    root: Path, *conditions: Condition, sample: dict[str, int] | None = None, **options: str
) -> dict[str, Any]:
    """Return the plan for the bodies of a store."""
    return ask(
        "plan",
        options={"path": str(root), **options},
        conditions=conditions,
        sample=sample,
        columns=["body"],
        schema=[["body", "binary", True]],
    )


def test_an_error_is_an_answer() -> None:
    assert ask("schema", options={"path": "/x", "topik": "a"}) == {
        "error": "ArgumentError",
        "text": "1 wrong option:\n  topik: unknown option; did you mean topic?",
    }


def test_a_jar_of_another_release_is_refused() -> None:
    answered = answer({"call": "schema", "release": "0.0.0", "options": {"path": "/x"}})
    assert answered["error"] == "ArgumentError"
    assert "0.0.0" in answered["text"]


@pytest.mark.parametrize(
    ("options", "lacking"),
    [
        ({"path": "/x", "decompress": "true"}, "decompress"),
        ({"path": "/x", "subscribePattern": "a.*"}, "subscribePattern"),
        ({"path": "s3://bucket/x"}, "URL"),
    ],
)
def test_what_the_jvm_lacks_is_read_by_python(options: dict[str, str], lacking: str) -> None:
    assert ask("reader", options=options) == {"reader": "python"}
    refused = ask("reader", options={**options, "reader": "jvm"})
    assert refused["error"] == "ArgumentError"
    assert lacking in refused["text"]


def test_the_jvm_reads_all_else_unless_python_is_named() -> None:
    assert ask("reader", options={"path": "/x"}) == {"reader": "jvm"}
    assert ask("reader", options={"path": "/x", "startingOffsets": "latest"}) == {"reader": "jvm"}
    assert ask("reader", options={"path": "/x", "reader": "python"}) == {"reader": "python"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=4096) as store:
        for number in range(100):
            store.put("bulk", bytes(200), queue=number % 2)
            if number % 20 == 0:
                store.put("rare", b"x", queue=0)
    return root


def test_a_plan_reads_no_file_that_conditions_exclude(root: Path) -> None:
    files = {split["fileStart"] for each in plan(root)["partitions"] for split in each["splits"]}
    bounded = plan(
        root,
        condition(">=", "physicalOffset", 9000, type_="bigint"),
        condition("<", "physicalOffset", 13000, type_="bigint"),
    )
    read = {split["fileStart"] for each in bounded["partitions"] for split in each["splits"]}
    assert len(files) > 5
    assert read == {8192, 12288}
    assert max(s["stop"] for each in bounded["partitions"] for s in each["splits"]) <= 13000


def test_conditions_that_exclude_all_leave_no_partition(root: Path) -> None:
    none = plan(root, condition("=", "topic", "a"), condition("=", "topic", "b"))
    assert none["partitions"] == []


@pytest.mark.parametrize("name", ["\0", ".", "bulk."])
def test_a_topic_that_a_condition_names_stands_for_no_other(root: Path, name: str) -> None:
    reading = plan(root, condition("=", "topic", name))["reading"]
    assert [each["topic"] for each in reading["topics"]] == [name]
    assert reading["others"] == []


def _by_units(planned: dict[str, Any]) -> set[bool]:
    """Return whether splits of a plan are read by units."""
    splits = [split for each in planned["partitions"] for split in each["splits"]]
    return {split["units"] is not None for split in splits}


def test_a_topic_is_read_by_its_queues_where_these_have_all_of_its_records(root: Path) -> None:
    by_option, by_condition = plan(root, topic="rare"), plan(root, condition("=", "topic", "rare"))
    assert by_option["reading"]["dispatchedOnly"]
    assert not by_condition["reading"]["dispatchedOnly"]
    assert by_condition["reading"]["byTopic"]
    assert by_condition["reading"]["others"] == []
    assert _by_units(by_option) == _by_units(by_condition) == {True}

    with rmqstore.open(root) as store:
        store.put(Message("rare", b"half", transaction=TransactionType.PREPARED))
        store.put("bulk", b"after it")
    by_option, by_log = plan(root, topic="rare"), plan(root, condition("=", "topic", "rare"))
    # No queue has the prepared message, which may lie anywhere.
    assert (_by_units(by_option), _by_units(by_log)) == ({True}, {False})
    assert by_option["bytes"] == by_condition["bytes"] < by_log["bytes"] / 5
    assert by_log["rows"] == 106
    assert 0 < by_option["rows"] < 30


def test_a_topic_is_read_by_the_log_where_a_queue_is_lacking(root: Path) -> None:
    shutil.rmtree(root / "consumequeue" / "bulk" / "0")
    assert _by_units(plan(root, condition("=", "topic", "rare"))) == {False}


def test_damaged_units_that_name_too_many_messages_are_no_estimate(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with rmqstore.open(root) as store:
        store.create_topic("orders", attributes={"queue.type": "BatchCQ"})
        for _ in range(2):
            store.put_batch([Message("orders", b"%d" % each) for each in range(9)])
        store.put("audit", b"plain")
    assert plan(root)["rows"] == 19

    (units,) = (root / "batchconsumequeue" / "orders" / "0").iterdir()
    with units.open("r+b") as file:
        file.seek(46 + 28)
        file.write(struct.pack(">q", 2**63 - 9))
    assert plan(root)["rows"] is None


def test_a_frequent_topic_is_read_by_the_log(root: Path) -> None:
    assert _by_units(plan(root, condition("=", "topic", "bulk"))) == {False}


def share(lower: float, upper: float, **more: Any) -> Any:
    """Return the sample of a share, as the planner answers it."""
    given: dict[str, Any] = {"options": {"path": "/x"}, "withReplacement": False, "seed": 7, **more}
    return ask("sample", lower=lower, upper=upper, **given)["sample"]


def test_a_sample_is_a_range_of_numbers() -> None:
    assert share(0.0, 0.25) == {"seed": 7, "begin": 0, "end": 2**51}
    assert share(0.25, 1.0, seed=-1) == {"seed": -1, "begin": 2**51, "end": 2**53}
    assert share(-1e-9, 1 + 1e-9) == {"seed": 7, "begin": 0, "end": 2**53}
    # Samples that share a bound have no message in common, and none is between them.
    assert share(0.0, 1 / 3)["end"] == share(1 / 3, 2 / 3)["begin"]


def test_other_samples_are_made_by_spark() -> None:
    assert share(0.0, 0.5, withReplacement=True) is None
    assert share(0.0, 0.5, options={"path": "/x", "onCorrupt": "row"}) is None


def test_a_plan_counts_the_share_of_a_sample(root: Path) -> None:
    sampled = plan(root, sample=share(0.0, 0.25))
    assert sampled["rows"] == plan(root)["rows"] // 4
    assert sampled["reading"]["sample"] == share(0.0, 0.25)
    assert plan(root, sample=share(0.5, 0.5))["partitions"] == []


def test_a_not_null_column_has_no_place_for_damage(root: Path) -> None:
    refused = ask(
        "plan",
        options={"path": str(root), "onCorrupt": "row"},
        conditions=[],
        sample=None,
        columns=["body"],
        schema=[["body", "binary", False]],
    )
    assert refused["error"] == "ArgumentError"
    assert "column body is NOT NULL" in refused["text"]
