"""The answers to what the reader in the JVM asks on the driver: lines of JSON in, lines out.

    {"call": "schema", "options": {...}}                      {"ddl": "`topic` STRING, ..."}
    {"call": "reader", "options": {...}}                      {"reader": "jvm"}
    {"call": "push",   "options": {...}, "conditions": [...]} {"effects": ["exact", "none"]}
    {"call": "aggregate", "options": {...}, "aggregation":
     {"groups": [...], "functions": [{"name": "min", "column": "queueOffset"}]}}
                                                              {"sums": {...}}, null for none
    {"call": "plan",   "options": {...}, "conditions": [...],
     "columns": [...], "schema": [[name, type, nullable]]}    what org.rmqstore.spark.Plan holds

Each request names its release. An error is {"error": class, "text": message}. The process ends with
its standard input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import metadata
from typing import Any

from rmqstore.errors import ArgumentError, StoreError
from rmqstore.spark import schema, texts
from rmqstore.spark.files import expand, is_local
from rmqstore.spark.options import Options
from rmqstore.spark.read import sizes
from rmqstore.spark.read.conditions import Conditions, pushed, sums_of
from rmqstore.spark.read.layout import Layout
from rmqstore.spark.read.partitions import plan
from rmqstore.spark.read.queue_ranges import ranges_of
from rmqstore.spark.read.ranges import Partition, QueueRange, Split

__all__ = ["answer", "serve"]

_UNNAMED = "\0"
"""A topic that no option names."""


def serve() -> None:
    """Answer until standard input ends; what others print goes to standard error."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as out:
        os.dup2(2, 1)
        for line in sys.stdin.buffer:
            out.write(json.dumps(answer(json.loads(line))) + "\n")
            out.flush()


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to one request, an error of the package's as part of it."""
    try:
        release = metadata.version("rmqstore")
        if request["release"] != release:
            raise ArgumentError(
                f"the jar is of rmqstore {request['release']}, the Python package of the driver of "
                f"{release}; take the jar that rmqstore.spark.session() adds"
            )
        return _CALLS[request["call"]](request)
    except StoreError as error:
        return {"error": type(error).__name__, "text": str(error)}


def _schema(request: Mapping[str, Any]) -> dict[str, Any]:
    options = Options.parse_for_either(request["options"])
    return {"ddl": schema.ddl(schema.columns_of(options), kafka=options.kafka_names)}


def _reader(request: Mapping[str, Any]) -> dict[str, Any]:
    options = Options.parse_for_either(request["options"])
    refusal = _refusal(options)
    if refusal is not None and options.reader == "jvm":
        raise ArgumentError(f"reader: jvm cannot read with {refusal}; leave the option out")
    is_jvm = refusal is None and options.reader != "python"
    return {"reader": "jvm" if is_jvm else "python"}


def _refusal(options: Options) -> str | None:
    """Return what the reader in the JVM lacks for a query, None for nothing."""
    if options.decompress:
        return "decompress"
    if options.topic_pattern is not None:
        return "subscribePattern"
    if not all(is_local(path) for path in options.paths):
        return "a path that is a URL"
    return None


def _push(request: Mapping[str, Any]) -> dict[str, Any]:
    _, effects = pushed(request["conditions"], Options.parse_for_either(request["options"]))
    return {"effects": effects}


def _aggregate(request: Mapping[str, Any]) -> dict[str, Any]:
    sums = sums_of(request["aggregation"], Options.parse_for_either(request["options"]))
    return {"sums": None if sums is None else asdict(sums)}


def _plan(request: Mapping[str, Any]) -> dict[str, Any]:
    options = Options.parse(request["options"])
    schema.check_fields([(name, type_) for name, type_, _ in request["schema"]], options)
    if options.on_corrupt == "row":
        _check_nulls(request["schema"])
    conditions, _ = pushed(request["conditions"], options)

    layouts = [
        Layout.of(root, up_to=options.up_to) for path in options.paths for root in expand(path)
    ]
    partitions = plan(layouts, options, conditions=conditions).partitions
    return {
        "reading": _reading(options, conditions, request["columns"]),
        "partitions": [_partition(each) for each in partitions],
        "bytes": sum(split.weight for each in partitions for split in each.splits),
    }


def _check_nulls(fields: Sequence[tuple[str, str, bool]]) -> None:
    for name, _, is_nullable in fields:
        if not is_nullable and name not in schema.DAMAGE_COLUMNS:
            raise ArgumentError(texts.NOT_NULL.format(column=name))


def _reading(options: Options, conditions: Conditions, columns: Sequence[str]) -> dict[str, Any]:
    tags = options.tags if conditions.tags is None else conditions.tags
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
        "topics": [
            {"topic": topic, "ranges": _numbers(ranges_of(options, topic, conditions))}
            for topic in _named_topics(options, conditions)
        ],
        "others": _numbers(ranges_of(options, _UNNAMED, conditions)),
        "onCorrupt": options.on_corrupt,
        "failOnDataLoss": options.fail_on_data_loss,
        "windowBytes": sizes.LOCAL_WINDOW_BYTES,
        "gapBytes": sizes.LOCAL_GAP_BYTES,
        "recordBytes": sizes.RECORD_BYTES,
        "texts": {
            "cut": texts.CUT,
            "damage": texts.DAMAGE,
            "gone": texts.GONE,
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


def _partition(partition: Partition) -> dict[str, Any]:
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


_CALLS = {
    "aggregate": _aggregate,
    "plan": _plan,
    "push": _push,
    "reader": _reader,
    "schema": _schema,
}


if __name__ == "__main__":
    serve()
