"""The columns that Spark sees, by their Spark names and by the names of the Kafka source.

Every column may be null in Spark's schema: a row for damage has few values.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Protocol

from rmqstore.errors import ArgumentError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import DataType, StructType

__all__ = [
    "DAMAGE_COLUMNS",
    "INSTANT",
    "Column",
    "ColumnChoice",
    "arrow_schema",
    "check_fields",
    "check_user_schema",
    "columns_of",
    "ddl",
    "validated_names",
    "known_columns",
    "native_names",
    "native_of",
    "struct",
]


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its name in Spark, the core's column that it is made of, and its Spark type."""

    name: str
    native: str | None
    """None: made without the core."""
    ddl: str


INSTANT = "TIMESTAMP_LTZ"
"""A point in time. The word TIMESTAMP means what spark.sql.timestampType says in a session."""

_COLUMNS = (
    Column("topic", "topic", "STRING"),
    Column("queueId", "queue_id", "INT"),
    Column("queueOffset", "queue_offset", "BIGINT"),
    Column("physicalOffset", "physical_offset", "BIGINT"),
    Column("size", "size", "INT"),
    Column("storeTimestamp", "store_timestamp", INSTANT),
    Column("bornTimestamp", "born_timestamp", INSTANT),
    Column("bornHost", "born_host", "STRING"),
    Column("storeHost", "store_host", "STRING"),
    Column("tags", "tags", "STRING"),
    Column("keys", "keys", "STRING"),
    Column("uniqKey", "unique_key", "STRING"),
    Column("properties", "properties", "MAP<STRING,STRING>"),
    Column("body", "body", "BINARY"),
    Column("bodyCrc", "body_crc", "INT"),
    Column("bodyCrcOk", "body_crc_ok", "BOOLEAN"),
    Column("sysFlag", "sys_flag", "INT"),
    Column("flag", "flag", "INT"),
    Column("reconsumeTimes", "reconsume_times", "INT"),
    Column("preparedTransactionOffset", "prepared_transaction_offset", "BIGINT"),
    Column("msgId", "message_id", "STRING"),
    Column("version", "version", "INT"),
    Column("path", None, "STRING"),
)
_KAFKA_COLUMNS = (
    Column("key", "keys", "BINARY"),
    Column("value", "body", "BINARY"),
    Column("topic", "topic", "STRING"),
    Column("partition", "queue_id", "INT"),
    Column("offset", "queue_offset", "BIGINT"),
    Column("timestamp", "store_timestamp", INSTANT),
    Column("timestampType", None, "INT"),
)
_HEADERS = Column("headers", "properties", "ARRAY<STRUCT<key: STRING, value: BINARY>>")
_TAGS_CODE = Column("tagsCode", "tags_code", "BIGINT")
_RECORD = Column("record", "record", "BINARY")
_ERROR = Column("error", None, "STRING")
DAMAGE_COLUMNS = frozenset(("physicalOffset", "size", "path", "error"))
"""The columns that a row for damage has."""
# Of those that no Kafka source has, what such a row needs.
_KAFKA_DAMAGE = tuple(each for each in _COLUMNS if each.name in DAMAGE_COLUMNS)


class ColumnChoice(Protocol):
    """The options that choose columns."""

    @property
    def columns(self) -> tuple[str, ...] | None: ...
    @property
    def kafka_names(self) -> bool: ...
    @property
    def include_headers(self) -> bool: ...
    @property
    def include_record(self) -> bool: ...
    @property
    def on_corrupt(self) -> str: ...


def columns_of(options: ColumnChoice) -> tuple[str, ...]:
    """Return the names of the columns that the options select, in order."""
    if options.columns is not None:
        return options.columns
    extra = []
    default: tuple[Column, ...] = _COLUMNS
    if options.kafka_names:
        default = _KAFKA_COLUMNS
        if options.include_headers:
            extra.append(_HEADERS)
    if options.include_record:
        extra.append(_RECORD)
    if options.on_corrupt == "row":
        extra += [*(_KAFKA_DAMAGE if options.kafka_names else ()), _ERROR]
    return tuple(column.name for column in (*default, *extra))


def known_columns(*, kafka: bool) -> tuple[Column, ...]:
    """Return every column that can be selected by name."""
    return _known(kafka)


def validated_names(names: Iterable[str], *, kafka: bool) -> tuple[str, ...]:
    """Return *names*, each once, with the columns' own spelling of upper and lower case.

    Raises ArgumentError for names that are not columns, with the nearest that are.
    """
    known = {column.name.lower(): column.name for column in _known(kafka)}
    wrong, right = [], []
    for name in names:
        spelt = known.get(name.lower())
        if spelt is None:
            wrong.append(f"there is no column {name}; {_nearest(name, known)}")
        elif spelt not in right:
            right.append(spelt)
    if wrong:
        raise ArgumentError("; ".join(wrong))
    return tuple(right)


def native_names(columns: Sequence[str], options: ColumnChoice) -> dict[str, str | None]:
    """Return the core's column for each of Spark's, None for a column that the core lacks."""
    known = {column.name: column.native for column in _known(options.kafka_names)}
    return {name: known[name] for name in validated_names(columns, kafka=options.kafka_names)}


def native_of(name: str, *, kafka: bool) -> str | None:
    """Return the core's column for the column *name*, None for none."""
    return next((column.native for column in _known(kafka) if column.name == name), None)


def ddl(names: Iterable[str], *, kafka: bool) -> str:
    """Return the columns *names* as Spark's language for schemas has them, in this order."""
    types = {column.name: column.ddl for column in _known(kafka)}
    return ", ".join(f"`{name}` {types[name]}" for name in names)


def struct(names: Iterable[str], kafka: bool) -> StructType:
    """Return Spark's schema of the columns *names*, in this order."""
    from pyspark.sql.types import StructType

    types = _types(kafka)
    schema = StructType()
    for name in names:
        schema.add(name, types[name], True)
    return schema


def check_user_schema(schema: StructType, options: ColumnChoice) -> tuple[str, ...]:
    """Return the names of the columns of a schema that a user gave; raises as `check_fields`."""
    fields = [(field.name, field.dataType.simpleString()) for field in schema.fields]
    return check_fields(fields, options)


def check_fields(fields: Sequence[tuple[str, str]], options: ColumnChoice) -> tuple[str, ...]:
    """Return the names of *fields*, which are names and types in Spark's short form.

    Raises ArgumentError for unknown columns, which names the nearest, and for wrong types; all of
    them in one message.
    """
    types = {column.name: column.ddl for column in _known(options.kafka_names)}
    known = {name.lower(): name for name in types}
    wrong = []

    for name, found in fields:
        wanted = types.get(name)
        if wanted is None:
            wrong.append(f"there is no column {name}; {_nearest(name, known)}")
        elif found != _short(wanted):
            wrong.append(f"column {name} is {wanted}, not {found.upper()}")

    names = tuple(name for name, _ in fields)
    wrong += [f"column {name} is there twice" for name in set(names) if names.count(name) > 1]

    if wrong:
        raise ArgumentError(f"the schema does not fit: {'; '.join(wrong)}")
    return names


def _short(ddl: str) -> str:
    if ddl == INSTANT:
        return "timestamp"
    return ddl.lower().replace(": ", ":").replace(", ", ",")


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that batches for *schema* must have, to the letter."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


@cache
def _known(kafka: bool) -> tuple[Column, ...]:
    if kafka:
        names = {column.name for column in _KAFKA_COLUMNS}
        more = [each for each in _COLUMNS if each.name not in names]
        return (*_KAFKA_COLUMNS, _HEADERS, *more, _TAGS_CODE, _RECORD, _ERROR)
    return (*_COLUMNS, _TAGS_CODE, _RECORD, _ERROR)


def _types(kafka: bool) -> dict[str, DataType]:
    """Return Spark's types by name of column."""
    from pyspark.sql import types

    simple = {
        "STRING": types.StringType(),
        "INT": types.IntegerType(),
        "BIGINT": types.LongType(),
        INSTANT: types.TimestampType(),
        "BINARY": types.BinaryType(),
        "BOOLEAN": types.BooleanType(),
    }
    text = types.StringType()
    header = types.StructType().add("key", text).add("value", types.BinaryType())
    return {
        column.name: {
            _HEADERS.ddl: types.ArrayType(header),
            "MAP<STRING,STRING>": types.MapType(text, text),
            **simple,
        }[column.ddl]
        for column in _known(kafka)
    }


def _nearest(name: str, known: dict[str, str]) -> str:
    """Say which of the *known*, by their names in lower case, was meant."""
    by_kafka = {column.name.lower(): column.native for column in _KAFKA_COLUMNS}
    for column in _COLUMNS:
        if column.native and column.native == by_kafka.get(name.lower()):
            return f"did you mean {column.name}, or the option columnNames kafka?"
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {known[close[0]]}?" if close else f"there are {', '.join(known.values())}"
