"""The columns of rows to be stored: which there are, and their Arrow buffers for the encoder."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from rmqstore.errors import ArgumentError
from rmqstore.message import SysFlag
from rmqstore.spark.schema import known_columns

__all__ = [
    "COLUMNS",
    "Column",
    "cells_of",
    "is_null_in_all",
    "marked_row",
    "validate_columns",
]


class Column(NamedTuple):
    """What a column of the writer may be."""

    kinds: tuple[str, ...]
    """DDL of the types it may have, the usual one first."""

    native: str
    """Its name in `core.RowEncoder`."""


COLUMNS: Mapping[str, Column] = {
    "topic": Column(("string",), "topic"),
    "body": Column(("binary", "string"), "body"),
    "queueId": Column(("int", "smallint", "tinyint"), "queue_id"),
    "tags": Column(("string",), "tags"),
    "keys": Column(("string", "array<string>"), "keys"),
    "properties": Column(("map<string,string>",), "properties"),
    "bornTimestamp": Column(("timestamp_ltz",), "born"),
    "storeTimestamp": Column(("timestamp_ltz",), "stored"),
}
_NEEDED = ("topic", "body")
_READ_ONLY = frozenset(each.name for each in known_columns(kafka=False)) - COLUMNS.keys()
"""What a row has because it was stored; a store sets it again."""
_MARKS = int(SysFlag.COMPRESSED) | int(SysFlag.TRANSACTION_PREPARED)
"""A body that is not plain, and a message that no consumer may see; rollback includes PREPARED."""

_TEXT = pyarrow.string()
_KINDS: Mapping[str, Any] = {
    "topic": _TEXT,
    "body": pyarrow.binary(),
    "queue_id": pyarrow.int32(),
    "tags": _TEXT,
    "properties": pyarrow.map_(_TEXT, _TEXT),
    "born": pyarrow.timestamp("us", "UTC"),
    "stored": pyarrow.timestamp("us", "UTC"),
}


def validate_columns(schema: StructType, *, strict: bool) -> tuple[str, ...]:
    """Return the names of all columns; the writer's are of right types and complete.

    Other columns may be those that only a read has, and with *strict* there may be none.
    Raises ArgumentError that lists everything wrong, with the nearest right name.
    """
    names = tuple(schema.fieldNames())
    wrong = []

    for field in schema.fields:
        column = COLUMNS.get(field.name)
        if column is None and field.name in _READ_ONLY and not strict:
            continue
        if column is None:
            near = difflib.get_close_matches(
                field.name.lower(), [name.lower() for name in COLUMNS], n=1
            )
            right = next((name for name in COLUMNS if near and name.lower() == near[0]), "")
            advice = f"did you mean {right}?" if right else f"there are {', '.join(COLUMNS)}"
            wrong.append(f"column {field.name}: unknown; {advice}")
        elif _ddl(field.dataType) not in column.kinds:
            wrong.append(
                f"column {field.name}: {_ddl(field.dataType)} is not {' or '.join(column.kinds)}; "
                f"cast it"
            )

    wrong += [f"column {name}: given twice" for name in COLUMNS if names.count(name) > 1]
    wrong += [f"column {name}: missing" for name in _NEEDED if name not in names]
    if wrong:
        raise ArgumentError("\n  ".join(("these rows are not messages:", *wrong)))

    return names


def _ddl(kind: DataType) -> str:
    """Returns the name of a type, whatever nulls its parts may hold."""
    match kind:
        case StringType() | BinaryType() | ByteType() | ShortType() | IntegerType():
            return kind.simpleString().partition(" ")[0]
        case TimestampType():
            return "timestamp_ltz"
        case ArrayType():
            return f"array<{_ddl(kind.elementType)}>"
        case MapType():
            return f"map<{_ddl(kind.keyType)},{_ddl(kind.valueType)}>"
    return kind.simpleString()


def cells_of(
    batch: pyarrow.RecordBatch, columns: Sequence[str], *, left_out: Sequence[str] = ()
) -> dict[str, Any]:
    """Return what `core.RowEncoder.begin` takes of a batch with *columns* in this order, all but
    those that are *left_out*."""
    cells: dict[str, Any] = {}
    for name, array in zip(columns, batch.columns, strict=True):
        if name not in COLUMNS or name in left_out:
            continue
        native = COLUMNS[name].native
        if native == "keys" and not pyarrow.types.is_string(array.type):
            array = array.cast(pyarrow.list_(_TEXT))
            cells["key_items"] = _buffers(array.values)
        elif native == "keys":
            array = array.cast(_TEXT)
        else:
            array = array.cast(_KINDS[native], safe=native not in ("born", "stored"))
        if native == "properties":
            pairs = array.values
            cells["names"] = _buffers(pairs.field(0))
            cells["values"] = _buffers(pairs.field(1))
        cells[native] = _buffers(array)
    return cells


def is_null_in_all(name: str, batch: pyarrow.RecordBatch, columns: Sequence[str]) -> bool:
    """Return whether a batch has no value of the column *name*, or no such column."""
    return name not in columns or (batch.column(columns.index(name)).null_count == batch.num_rows)


def marked_row(batch: pyarrow.RecordBatch, columns: Sequence[str]) -> tuple[int, int] | None:
    """Return number and sysFlag of the first row that must not be stored without its mark."""
    if "sysFlag" not in columns:
        return None
    flags = batch.column(columns.index("sysFlag"))
    marked = pc.not_equal(pc.bit_wise_and(flags, pyarrow.scalar(_MARKS, flags.type)), 0)
    row = pc.index(marked, pyarrow.scalar(value=True)).as_py()
    return None if row < 0 else (row, flags[row].as_py())


def _buffers(array: Any) -> tuple[int, Any, Any, Any]:
    validity, values, *more = array.buffers()
    is_text = pyarrow.types.is_string(array.type) or pyarrow.types.is_binary(array.type)
    return array.offset, validity, values, more[0] if is_text else None
