"""A streaming query of the reader in the JVM: the answers of its planner about positions.

The answers are those of the Python source's `RmqStoreStreamReader`, so that positions, limits,
errors and checkpoints are the same with either reader. One process plans for one query at a time.

    {"do": "open", "options": {...}, "columns": [...],
     "schema": JSON of Spark's}                            {"kind": "bytes", "most": 1048576}
    {"do": "initial"}                                      {"offset": text}
    {"do": "now"}                                          {}
    {"do": "latest", "start": text, "kind": ..., "most": ...}  {"offset": text}
    {"do": "report"}                                       {"offset": text}, null for none
    {"do": "behind", "offset": text}                       {"bytes": [4096]}, one for each log
    {"do": "plan", "start": text, "end": text}             {"partitions": [{"reading": {...},
                                                            "splits": [...]}]}
    {"do": "close"}                                        {}

A limit is rows, bytes or all. An offset is JSON as text, which Spark keeps and compares as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rmqstore.spark.jvm.plans import partition_of, reading_of
from rmqstore.spark.read.conditions import EVERYTHING

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadLimit

    from rmqstore.spark.stream.stream import RmqStoreStreamReader

__all__ = ["Streams"]


class Streams:
    """The stream that a process plans for."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._opened: RmqStoreStreamReader | None = None

    def __call__(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to one request. Raises what the reader does."""
        do = request["do"]
        if do == "open":
            return self._open(request)
        if do == "close":
            self._opened = None
            return {}
        stream = self._opened
        assert stream is not None
        if do == "now":
            stream.prepareForTriggerAvailableNow()
            return {}
        if do == "behind":
            return {"bytes": stream.bytes_behind(json.loads(request["offset"]))}
        if do == "plan":
            return self._plan(stream, json.loads(request["start"]), json.loads(request["end"]))
        if do == "initial":
            return _text_of(stream.initialOffset())
        if do == "latest":
            limit = _limit(request["kind"], request["most"])
            return _text_of(stream.latestOffset(json.loads(request["start"]), limit))
        assert do == "report"
        return _text_of(stream.reportLatestOffset())

    def _open(self, request: Mapping[str, Any]) -> dict[str, Any]:
        # What pyspark needs is imported for streams alone.
        from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows
        from pyspark.sql.types import StructType

        from rmqstore.spark.stream.stream import RmqStoreStreamReader

        schema = StructType.fromJson(json.loads(request["schema"]))
        self._opened = RmqStoreStreamReader(request["options"], schema)
        self._columns = request["columns"]
        limit = self._opened.getDefaultReadLimit()
        if isinstance(limit, ReadMaxBytes):
            return {"kind": "bytes", "most": limit.max_bytes}
        if isinstance(limit, ReadMaxRows):
            return {"kind": "rows", "most": limit.max_rows}
        return {"kind": "all", "most": 0}

    def _plan(
        self, stream: RmqStoreStreamReader, start: dict[str, Any], end: dict[str, Any]
    ) -> dict[str, Any]:
        planned = [each.value for each in stream.partitions(start, end)]
        return {
            "partitions": [
                {
                    "reading": reading_of(options, EVERYTHING, self._columns),
                    **partition_of(partition),
                }
                for partition, options in planned
            ]
        }


def _text_of(offset: dict[str, Any] | None) -> dict[str, Any]:
    return {"offset": None if offset is None else json.dumps(offset)}


def _limit(kind: str, most: int) -> ReadLimit:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

    if kind == "bytes":
        return ReadMaxBytes(most)
    return ReadMaxRows(most) if kind == "rows" else ReadAllAvailable()
