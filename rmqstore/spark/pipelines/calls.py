"""What records call for, batch by batch: units in consume queues, keys in the index.

The units are those of `rmqstore.check.units`. Records that hold one message, and are in one
queue, are most; theirs are made as columns, and the others' one by one.

Source: ReputMessageService, ConsumeQueue and IndexService of RocketMQ 5.3.3; tag keys of 5.5.0.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rmqstore.check.units import WITHOUT_UNIT, Unit, is_storable, units_of
from rmqstore.message import SysFlag, TransactionType, java_string_hash
from rmqstore.spark.pipelines import work

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEY_COLUMNS", "UNITS", "UNIT_COLUMNS", "Keys", "keys_of", "unit_batches"]

UNITS = work.Table(
    topic="STRING",
    queueId="INT",
    isBatch="BOOLEAN",
    queueOffset="BIGINT",
    count="INT",
    physicalOffset="BIGINT",
    size="INT",
    tagsCode="BIGINT",
    isLight="BOOLEAN",
)
UNIT_COLUMNS = (
    "topic",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "size",
    "tags_code",
    "sys_flag",
    "properties",
)
KEY_COLUMNS = (
    "physical_offset",
    "store_timestamp",
    "sys_flag",
    "topic",
    "unique_key",
    "keys",
    "tags",
)
_HASH_MAX = 0x7FFFFFFF
_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_INNER_BATCH = int(SysFlag.INNER_BATCH)


def unit_batches(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the units that *records* call for: batches with the fields of Unit.

    *records* have the columns of UNIT_COLUMNS.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    is_plain = _is_plain(records)
    plain = records.filter(is_plain)
    if plain.num_rows:
        no = pa.repeat(pa.scalar(False), plain.num_rows)
        one = pa.repeat(pa.scalar(1, pa.int32()), plain.num_rows)
        columns = [
            plain.column("topic"),
            plain.column("queue_id"),
            no,
            plain.column("queue_offset"),
            one,
            plain.column("physical_offset"),
            plain.column("size"),
            plain.column("tags_code"),
            no,
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=UNITS.schema)

    others = records.filter(pc.invert(is_plain))
    if others.num_rows:
        yield UNITS.batch(unit for row in others.to_pylist() for unit in _units_of(row))


def _is_plain(records: pa.RecordBatch) -> pa.BooleanArray:
    """Which records surely call for the unit of one message, and for no other unit."""
    import pyarrow as pa
    from pyarrow import compute as pc

    flags, topics = records.column("sys_flag"), records.column("topic")
    kinds = pc.bit_wise_and(flags, _TRANSACTION)
    names = [name for name in pc.unique(topics).to_pylist() if is_storable(name)]
    conditions = (
        pc.invert(pc.is_in(kinds, pa.array(WITHOUT_UNIT, kinds.type))),
        pc.equal(pc.bit_wise_and(flags, _INNER_BATCH), 0),
        pc.greater_equal(records.column("queue_id"), 0),
        pc.is_in(topics, pa.array(names, topics.type)),
        _has_no_inner_property(records.column("properties")),
    )
    return functools.reduce(pc.and_, conditions)


def _has_no_inner_property(properties: pa.MapArray) -> pa.BooleanArray:
    import pyarrow as pa
    from pyarrow import compute as pc

    has_none = pa.repeat(pa.scalar(True), len(properties))
    if pc.any(pc.starts_with(properties.keys, "INNER_")).as_py():
        for name in ("INNER_NUM", "INNER_MULTI_DISPATCH"):
            is_there = pc.is_valid(pc.map_lookup(properties, name, "first"))
            has_none = pc.and_(has_none, pc.invert(is_there))
    return has_none


def _units_of(row: dict[str, Any]) -> Iterator[Unit]:
    return units_of(**{**row, "properties": dict(row["properties"] or ())})


@dataclass(frozen=True, slots=True)
class Keys:
    """What one record adds to the index."""

    physical_offset: int
    store_timestamp: int
    hashes: tuple[int, ...]
    """Of its unique key and its keys, in the order they are entered; none for a tag alone."""

    tag_hash: int | None
    """Of its tag, which stores of RocketMQ 5.5 enter last."""

    def fits(self, entered: Sequence[int], *, may_begin_late: bool, may_end_early: bool) -> bool:
        """Whether *entered* are the hashes of this record, one or several times over.

        A record where one file ends and the next begins has its first entries in one and its last
        in the other; the last record of all may be entered again when a store is opened.
        """
        whole = [self.hashes]
        if self.tag_hash is not None:
            whole.append((*self.hashes, self.tag_hash))
        return any(
            _repeats(tuple(entered), hashes, may_begin_late, may_end_early) for hashes in whole
        )


def _repeats(
    entered: tuple[int, ...], hashes: tuple[int, ...], may_begin_late: bool, may_end_early: bool
) -> bool:
    if not hashes:
        return False
    firsts = range(len(hashes)) if may_begin_late else (0,)
    for first in firsts:
        rounds = (len(entered) + first) // len(hashes) + 1
        laid_out = (hashes * rounds)[first : first + len(entered)]
        ends_whole = (first + len(entered)) % len(hashes) == 0
        if laid_out == entered and (ends_whole or may_end_early):
            return True
    return False


def _key_hash(topic: str, key: str) -> int:
    value = abs(java_string_hash(f"{topic}#{key}"))
    return value if value <= _HASH_MAX else 0


def keys_of(records: pa.RecordBatch) -> Iterator[Keys]:
    """Yield what *records*, with the columns of KEY_COLUMNS, add to the index."""
    import pyarrow as pa

    stored = records.column("store_timestamp").cast(pa.int64())
    records = records.set_column(1, "store_timestamp", stored)
    for place, time_ms, flags, topic, unique, keys, tags in zip(
        *(column.to_pylist() for column in records.columns), strict=True
    ):
        if flags & _TRANSACTION == TransactionType.ROLLBACK:
            continue
        texts = ([unique] if unique else []) + [key for key in (keys or "").split(" ") if key]
        if texts or tags:
            hashes = tuple(_key_hash(topic, text) for text in texts)
            tag = _key_hash(topic, f"T#{tags}") if tags else None
            yield Keys(place, time_ms, hashes, tag)
