"""Answers the requests of the reader in the JVM on the driver: lines of JSON in, lines out.

    {"call": "schema", "options": {...}}                      {"ddl": "`topic` STRING, ..."}
    {"call": "reader", "options": {...}}                      {"reader": "jvm"}
    {"call": "push",   "options": {...}, "conditions": [...]} {"effects": ["exact", "none"]}
    {"call": "aggregate", "options": {...}, "aggregation":
     {"groups": [...], "functions": [{"name": "min", "column": "queueOffset"}]}}
                                                              {"sums": {...}}, null for none
    {"call": "sample", "options": {...}, "lower": 0.0,
     "upper": 0.1, "withReplacement": false, "seed": 7}       {"sample": {...}}, null for none
    {"call": "plan",   "options": {...}, "conditions": [...],
     "sample": {...}, null for none,
     "columns": [...], "schema": [[name, type, nullable]]}    what org.rmqstore.spark.Plan holds
    {"call": "stream", "do": "open", ...}                     see rmqstore.spark.jvm.streams

Each request names its release. An error is {"error": class, "text": message}. The process ends with
its standard input.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from typing import Any

from rmqstore.errors import ArgumentError, StoreError
from rmqstore.spark import schema, texts
from rmqstore.spark.files import is_local
from rmqstore.spark.jvm.plans import partition_of, reading_of
from rmqstore.spark.jvm.streams import Streams
from rmqstore.spark.options import Options
from rmqstore.spark.read.conditions import SAMPLE_NUMBERS, Sample, pushed, sample_of, sums_of
from rmqstore.spark.read.layout import Layout, layouts_of
from rmqstore.spark.read.partitions import plan
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["answer", "serve"]


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
        release = _release()
        if request["release"] != release:
            raise ArgumentError(
                f"the jar is of rmqstore {request['release']}, the Python package of the driver of "
                f"{release}; take the jar that rmqstore.spark.session() adds"
            )
        return _CALLS[request["call"]](request)
    except StoreError as error:
        return {"error": type(error).__name__, "text": str(error)}


@cache
def _release() -> str:
    """Return the package's release: finding it takes longer than most answers."""
    return metadata.version("rmqstore")


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
    if not all(is_local(path) for path in (*options.paths, *options.log_folders)):
        return "a path that is a URL"
    return None


def _push(request: Mapping[str, Any]) -> dict[str, Any]:
    _, effects = pushed(request["conditions"], Options.parse_for_either(request["options"]))
    return {"effects": effects}


def _aggregate(request: Mapping[str, Any]) -> dict[str, Any]:
    sums = sums_of(request["aggregation"], Options.parse_for_either(request["options"]))
    return {"sums": None if sums is None else asdict(sums)}


def _sample(request: Mapping[str, Any]) -> dict[str, Any]:
    sample = sample_of(request, Options.parse_for_either(request["options"]))
    return {"sample": None if sample is None else sample._asdict()}


def _plan(request: Mapping[str, Any]) -> dict[str, Any]:
    options = Options.parse(request["options"])
    schema.check_fields([(name, type_) for name, type_, _ in request["schema"]], options)
    if options.on_corrupt == "row":
        _check_nulls(request["schema"])
    conditions, _ = pushed(request["conditions"], options)
    if request["sample"] is not None:
        conditions = replace(conditions, sample=Sample(**request["sample"]))

    layouts = layouts_of(options)
    partitions = plan(layouts, options, conditions=conditions).partitions
    size = sum(split.weight for each in partitions for split in each.splits)
    return {
        "reading": reading_of(options, conditions, request["columns"]),
        "partitions": [partition_of(each) for each in partitions],
        "bytes": size,
        "rows": _estimated_rows(layouts, size, conditions.sample),
    }


def _estimated_rows(layouts: Sequence[Layout], size: int, sample: Sample) -> int | None:
    """Return about how many rows a sample of *size* bytes of the logs has, None where no queue
    counts them.

    Damaged units may name more messages than the log has bytes, and more than Java has numbers.
    """
    messages = sum(
        queue.end - queue.start
        for layout in layouts
        for queue in layout.queues or ()
        if not queue.topic.startswith(LIGHT_PREFIX)
    )
    total = sum(layout.readable_end - layout.start for layout in layouts)
    share = max(sample.end - sample.begin, 0)
    return messages * size * share // (total * SAMPLE_NUMBERS) if 0 < messages <= total else None


def _check_nulls(fields: Sequence[tuple[str, str, bool]]) -> None:
    for name, _, is_nullable in fields:
        if not is_nullable and name not in schema.DAMAGE_COLUMNS:
            raise ArgumentError(texts.NOT_NULL.format(column=name))


_CALLS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "aggregate": _aggregate,
    "plan": _plan,
    "push": _push,
    "reader": _reader,
    "sample": _sample,
    "schema": _schema,
    "stream": Streams(),
}


if __name__ == "__main__":
    serve()
