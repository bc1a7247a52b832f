"""A record as a row of the Arrow columns: what each column holds for it.

Timestamps are numbers of milliseconds here and properties a dict; a value is None where the column
is null.
"""

from __future__ import annotations

from typing import Any

from tests.reference import properties
from tests.reference import record as reference
from tests.reference.record import Record

NAMES = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "store_timestamp",
    "born_timestamp",
    "born_host",
    "store_host",
    "tags",
    "keys",
    "unique_key",
    "properties",
    "body",
    "body_crc",
    "body_crc_ok",
    "sys_flag",
    "flag",
    "reconsume_times",
    "prepared_transaction_offset",
    "message_id",
    "version",
    "tags_code",
    "record",
)

Row = dict[str, Any]


def row(record: Record) -> Row:
    """Return the value of every column for *record*."""
    pairs = record.properties
    values = (
        record.topic,
        record.queue_id,
        record.queue_offset,
        record.physical_offset,
        record.size,
        record.store_timestamp,
        record.born_timestamp,
        str(record.born_host),
        str(record.store_host),
        pairs.get(properties.TAGS),
        pairs.get(properties.KEYS),
        pairs.get(properties.UNIQUE_KEY),
        pairs,
        record.body,
        record.body_crc,
        reference.body_crc_is_right(record),
        record.sys_flag,
        record.flag,
        record.reconsume_times,
        record.prepared_transaction_offset,
        record.message_id,
        record.version,
        record.tags_code,
        reference.encode(record),
    )
    return dict(zip(NAMES, values, strict=True))


def rows_of(table: Any) -> list[Row]:
    """Return the rows of a pyarrow table or batch in the form of `row`."""
    import pyarrow as pa

    columns: Row = {}
    for field in table.schema:
        column = table.column(field.name)
        if pa.types.is_timestamp(field.type):
            assert field.type == pa.timestamp("ms", "UTC")
            column = column.cast(pa.int64())
        values = column.to_pylist()
        if pa.types.is_map(field.type):
            assert all(len(dict(pairs)) == len(pairs) for pairs in values)
            values = [dict(pairs) for pairs in values]
        columns[field.name] = values
    return [
        dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)
    ]
