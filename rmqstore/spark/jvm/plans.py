"""Plans as org.rmqstore.spark.Plan holds them, under the same names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore.spark import schema, texts
from rmqstore.spark.options import Options
from rmqstore.spark.read import sizes
from rmqstore.spark.read.conditions import Conditions
from rmqstore.spark.read.queue_ranges import ranges_of
from rmqstore.spark.read.ranges import Partition, QueueRange, Split

__all__ = ["partition_of", "reading_of"]


def reading_of(options: Options, conditions: Conditions, columns: Sequence[str]) -> dict[str, Any]:
    """Return how every task reads."""
    tags = options.tags if conditions.tags is None else conditions.tags
    named = _named_topics(options, conditions)
    unnamed = "".join(named) + "."  # longer than each of them
    return {
        "columns": [
            {"name": name, "nativeName": schema.native_of(name, kafka=options.kafka_names)}
            for name in columns
        ],
        "batchRows": sizes.BATCH_ROWS,
        "batchBytes": options.batch_bytes,
        "checkCrc": options.check_crc,
        "dispatchedOnly": options.by_topic,
        "byTopic": options.by_topic or conditions.by_topic,
        "beginMs": max(options.begin_ms, conditions.store_ms[0]),
        "endMs": min(options.end_ms, conditions.store_ms[1]),
        "tags": sorted(tags or ()),
        "keys": sorted(conditions.keys or ()),
        "sysFlags": sorted(conditions.sys_flags or ()),
        "bornBeginMs": conditions.born_ms[0],
        "bornEndMs": conditions.born_ms[1],
        "sample": conditions.sample._asdict(),
        "topics": [
            {"topic": topic, "ranges": _numbers(ranges_of(options, topic, conditions))}
            for topic in named
        ],
        "others": _numbers(ranges_of(options, unnamed, conditions)),
        "onCorrupt": options.on_corrupt,
        "failOnDataLoss": options.fail_on_data_loss,
        "windowBytes": sizes.LOCAL_WINDOW_BYTES,
        "gapBytes": sizes.LOCAL_GAP_BYTES,
        "recordBytes": sizes.RECORD_BYTES,
        "texts": {
            "cut": texts.CUT,
            "damage": texts.DAMAGE,
            "gone": texts.GONE,
            "hidden": texts.HIDDEN,
            "leftOut": texts.LEFT_OUT,
            "lost": texts.LOST,
            "missing": texts.MISSING,
            "shortUnits": texts.SHORT_UNITS,
            "unwritten": texts.UNWRITTEN,
        },
    }


def _named_topics(options: Options, conditions: Conditions) -> list[str]:
    bounds = (
        options.assign,
        options.starting_offsets,
        options.ending_offsets,
        options.starting_ms_by_queue,
        options.ending_ms_by_queue,
    )
    named = [*(options.topics or ()), *(conditions.topics or ())]
    named += [topic for each in bounds if isinstance(each, dict) for topic in each]
    return list(dict.fromkeys(named))


def _numbers(ranges: Sequence[QueueRange] | None) -> list[int]:
    return [number for each in ranges or () for number in each]


def partition_of(partition: Partition) -> dict[str, Any]:
    """Return what one task reads."""
    return {"splits": [_split(each) for each in partition.splits]}


def _split(split: Split) -> dict[str, Any]:
    units = split.units
    return {
        "store": split.store,
        "path": split.file.path,
        "fileStart": split.file.start,
        "start": split.start,
        "stop": split.stop,
        "reach": split.reach,
        "units": None
        if units is None
        else [
            {
                "path": each.path,
                "fileSize": each.file_size,
                "first": each.first,
                "stop": each.stop,
                "unitSize": each.unit_size,
            }
            for each in units
        ],
    }
