"""What records call for: units in consume queues, keys in the index.

Source: ReputMessageService, ConsumeQueue and IndexService of RocketMQ 5.3.3; tag keys of 5.5.0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from rmqstore.message import SysFlag, TransactionType, java_string_hash
from rmqstore.spark.pipelines import work

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["KEY_COLUMNS", "UNITS", "UNIT_COLUMNS", "Keys", "Unit", "keys_of", "units_of"]

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
_BATCH_MAX = 32767
_HASH_MAX = 0x7FFFFFFF
_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_WITHOUT_UNIT = (int(TransactionType.PREPARED), int(TransactionType.ROLLBACK))
_LIGHT = "%LMQ%"
_NO_LIGHT_QUEUES = ("%RETRY%", "SCHEDULE_TOPIC_XXXX", "rmq_sys_")


class Unit(NamedTuple):
    """A unit that a record calls for; in the order of the columns that records are sent in."""

    topic: str
    queue_id: int
    is_batch: bool
    queue_offset: int
    message_count: int
    physical_offset: int
    size: int
    tags_code: int
    is_light: bool


def units_of(records: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield the units that *records* call for: batches with the columns of Unit.

    *records* have the columns of UNIT_COLUMNS.
    """
    import pyarrow as pa
    from pyarrow import compute as pc

    flags = records.column("sys_flag")
    kinds = pc.bit_wise_and(flags, _TRANSACTION)
    has_unit = pc.and_(
        pc.invert(pc.is_in(kinds, pa.array(_WITHOUT_UNIT, kinds.type))),
        pc.greater_equal(records.column("queue_id"), 0),
    )
    records = records.filter(has_unit)
    if not records.num_rows:
        return
    properties = records.column("properties")
    inner = pc.not_equal(pc.bit_wise_and(records.column("sys_flag"), _INNER_BATCH), 0)
    names = pc.map_lookup(properties, "INNER_MULTI_DISPATCH", "first")
    is_special = pc.or_(inner, pc.is_valid(names))
    plain = records.filter(pc.invert(is_special))
    if plain.num_rows:
        columns = {name: plain.column(name) for name in UNIT_COLUMNS}
        yield pa.RecordBatch.from_arrays(
            [
                columns["topic"],
                columns["queue_id"],
                pa.repeat(pa.scalar(False), plain.num_rows),
                columns["queue_offset"],
                pa.repeat(pa.scalar(1, pa.int32()), plain.num_rows),
                columns["physical_offset"],
                columns["size"],
                columns["tags_code"],
                pa.repeat(pa.scalar(False), plain.num_rows),
            ],
            schema=UNITS.schema,
        )
    special = records.filter(is_special)
    if special.num_rows:
        yield UNITS.batch(unit for row in special.to_pylist() for unit in _special_units(row))


def _special_units(row: dict[str, Any]) -> Iterator[Unit]:
    """The units of a record that holds several messages, or that stands in several queues."""
    properties = dict(row["properties"])
    offset, count = row["queue_offset"], 1
    is_batch = bool(row["sys_flag"] & _INNER_BATCH)
    if "INNER_NUM" in properties:
        stated = _int_of(properties["INNER_NUM"]), _int_of(properties.get("INNER_BASE"))
        if 0 < stated[0] <= _BATCH_MAX and stated[1] >= 0:
            count, offset = stated
    topic, queue_id = row["topic"], row["queue_id"]
    place = (row["physical_offset"], row["size"], row["tags_code"])
    yield Unit(topic, queue_id, is_batch, offset, count, *place, False)
    if topic.startswith(_NO_LIGHT_QUEUES):
        return
    names = properties.get("INNER_MULTI_DISPATCH", "").split(",")
    offsets = properties.get("INNER_MULTI_QUEUE_OFFSET", "").split(",")
    for name, text in zip(names, offsets, strict=False):
        at = _int_of(text)
        if name and at >= 0:
            number = 0 if name.startswith(_LIGHT) else queue_id
            yield Unit(name, number, False, at, 1, *place, True)


def _int_of(text: str | None) -> int:
    try:
        return int(text or "")
    except ValueError:
        return -1


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

        A record at the border of two files has its first entries in one and its last in the other;
        the last record of all may be entered again when a store is opened.
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
