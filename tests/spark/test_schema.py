"""Columns by Spark's names and by the Kafka source's."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark", reason="these are Spark's schemas: pip install rmqstore[spark]")

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from rmqstore.errors import ArgumentError
from rmqstore.spark import schema
from rmqstore.spark.options import Options
from rmqstore.store import arrow

DEFAULT = (
    "topic queueId queueOffset physicalOffset size storeTimestamp bornTimestamp bornHost storeHost "
    "tags keys uniqKey properties body bodyCrc bodyCrcOk sysFlag flag reconsumeTimes "
    "preparedTransactionOffset msgId version path"
).split()
KAFKA = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]


def parse(**options: str) -> Options:
    return Options.parse({"path": "/store", **options})


def columns(**options: str) -> list[str]:
    return list(schema.columns_of(parse(**options)))


def test_the_default_columns_are_all_but_the_raw_record() -> None:
    assert columns() == DEFAULT
    assert columns(includeRecord="true") == [*DEFAULT, "record"]
    assert columns(onCorrupt="row", includeRecord="true") == [*DEFAULT, "record", "error"]


def test_columns_are_asked_for_in_their_own_order_and_spelt_right() -> None:
    assert columns(columns="BODY, tagscode ,error,body,queueid") == [
        "body",
        "tagsCode",
        "error",
        "queueId",
    ]


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        ("queue", "there is no column queue; did you mean queueId?"),
        ("offset", "no column offset; did you mean queueOffset, or the option columnNames kafka?"),
        ("xyz", "there is no column xyz; there are topic, queueId"),
    ],
)
def test_a_wrong_column_is_answered_with_the_nearest(asked: str, answer: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        parse(columns=asked)
    assert answer in str(caught.value)


def test_kafka_names_are_those_of_the_kafka_source() -> None:
    assert columns(columnNames="kafka") == KAFKA
    assert columns(columnNames="kafka", includeHeaders="true") == [*KAFKA, "headers"]
    assert columns(columnNames="kafka", onCorrupt="row") == [
        *KAFKA,
        "physicalOffset",
        "size",
        "path",
        "error",
    ]

    types = {field.name: field.dataType for field in schema.struct((*KAFKA, "headers"), True)}
    header = StructType().add("key", StringType()).add("value", BinaryType())
    assert types == {
        "key": BinaryType(),
        "value": BinaryType(),
        "topic": StringType(),
        "partition": IntegerType(),
        "offset": LongType(),
        "timestamp": TimestampType(),
        "timestampType": IntegerType(),
        "headers": ArrayType(header),
    }


def test_other_columns_can_stand_beside_those_of_kafka() -> None:
    assert columns(columnNames="kafka", columns="offset,msgId") == ["offset", "msgId"]


@pytest.mark.parametrize("kafka", [False, True])
def test_every_native_column_is_one_of_the_core(kafka: bool) -> None:
    natives = [column.native for column in schema.known_columns(kafka=kafka)]
    assert {native for native in natives if native} <= set(arrow.column_names())
    if not kafka:
        assert sorted(native for native in natives if native) == sorted(arrow.column_names())


@pytest.mark.parametrize("kafka", [False, True])
def test_the_ddl_of_a_column_is_its_type(kafka: bool) -> None:
    for column in schema.known_columns(kafka=kafka):
        (field,) = schema.struct([column.name], kafka).fields
        answer = column.ddl.replace(" ", "").lower().replace("timestamp_ltz", "timestamp")
        assert field.dataType.simpleString() == answer


def test_every_column_may_be_null_and_times_are_utc() -> None:
    names = [column.name for column in schema.known_columns(kafka=False)]
    built = schema.arrow_schema(schema.struct(names, False))
    assert built.names == names
    assert all(field.nullable for field in built)
    assert built.field("storeTimestamp").type == pa.timestamp("us", "UTC")
    assert built.field("properties").type == pa.map_(pa.string(), pa.string())


def test_a_users_schema_passes_in_its_own_order() -> None:
    given = StructType().add("body", BinaryType()).add("queueId", IntegerType(), nullable=False)
    assert schema.check_user_schema(given, parse()) == ("body", "queueId")


def test_everything_wrong_with_a_users_schema_is_told_at_once() -> None:
    given = (
        StructType()
        .add("queueID", IntegerType())
        .add("size", LongType())
        .add("body", BinaryType())
        .add("body", BinaryType())
        .add("partition", IntegerType())
        .add("xyz", IntegerType())
    )

    with pytest.raises(ArgumentError) as caught:
        schema.check_user_schema(given, parse())

    answer = str(caught.value)
    assert "there is no column queueID; did you mean queueId?" in answer
    assert "column size is INT, not BIGINT" in answer
    assert "column body is there twice" in answer
    assert "no column partition; did you mean queueId, or the option columnNames kafka?" in answer
    assert "there is no column xyz; there are topic, queueId" in answer


def test_native_names_are_in_the_order_asked_for() -> None:
    assert schema.native_names(["path", "uniqKey", "body"], parse()) == {
        "path": None,
        "uniqKey": "unique_key",
        "body": "body",
    }
    assert schema.native_names(["offset", "key"], parse(columnNames="kafka")) == {
        "offset": "queue_offset",
        "key": "keys",
    }
