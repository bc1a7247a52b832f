"""The values of options, read from text; everything that is wrong with them is found at once."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, cast

from rmqstore.errors import ArgumentError
from rmqstore.spark import schema

__all__ = ["EARLIEST", "LATEST", "ByQueue", "Judge"]

EARLIEST, LATEST = -2, -1
"""Stand for the ends of a queue where queue offsets are named."""

_NAMES = (
    "path",
    "paths",
    "topic",
    "subscribe",
    "subscribePattern",
    "assign",
    "tags",
    "subExpression",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "maxClockStepMs",
    "failOnDataLoss",
    "minPartitions",
    "maxPartitionBytes",
    "columns",
    "columnNames",
    "includeHeaders",
    "includeRecord",
    "checkCrc",
    "onCorrupt",
    "upTo",
    "decompress",
    "batchBytes",
    "maxBytesPerTrigger",
    "maxOffsetsPerTrigger",
)
_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])(?:i?b)?|b)?", re.IGNORECASE)
_BATCH_BYTES_MAX = 1 << 30

ByQueue = dict[str, dict[int, int]]
"""Values by topic and queue id."""


class Judge:
    """Reads options one by one and keeps what is wrong with them."""

    def __init__(self, options: Mapping[str, str], *, streaming: bool) -> None:
        self.options = options
        self.streaming = streaming
        self.wrong: list[str] = []
        """What is wrong, in words."""
        self._given: dict[str, str] = {}

    def values(self) -> dict[str, Any]:
        """Return the fields of Options; meaningless when something is wrong."""
        self._sort()
        values: dict[str, Any] = {
            "paths": self._paths(),
            "tags": self._tags(),
            "starting_strategy": self._word(
                "startingOffsetsByTimestampStrategy", ("error", "latest")
            ),
            "max_clock_step_ms": self._count("maxClockStepMs"),
            "fail_on_data_loss": self._bool("failOnDataLoss", default=True),
            "min_partitions": self._count("minPartitions"),
            "max_partition_bytes": self._size("maxPartitionBytes", default=128 << 20),
            "include_headers": self._bool("includeHeaders"),
            "include_record": self._bool("includeRecord"),
            "kafka_names": self._word("columnNames", ("rmqstore", "kafka")) == "kafka",
            "check_crc": self._bool("checkCrc"),
            "on_corrupt": self._word("onCorrupt", ("fail", "skip", "row")),
            "up_to": self._word("upTo", ("confirm", "max")),
            "decompress": self._bool("decompress"),
            "batch_bytes": self._size("batchBytes", default=2 << 20, limit=_BATCH_BYTES_MAX),
            "max_bytes_per_trigger": self._size("maxBytesPerTrigger"),
            "max_offsets_per_trigger": self._count("maxOffsetsPerTrigger"),
        }
        values["columns"] = self._columns(values)
        self._at_most_one("maxBytesPerTrigger", "maxOffsetsPerTrigger")
        values.update(self._topics())
        values.update(self._bounds())
        if not self.wrong:
            self._check_queues(values)
        return values

    def _sort(self) -> None:
        known = {name.lower(): name for name in _NAMES}
        for name, value in self.options.items():
            right = known.get(name.lower())
            if right is None:
                self.wrong.append(f"there is no option {name}; {_nearest(name, _NAMES)}")
            elif right in self._given and self._given[right] != value:
                self.wrong.append(f"{right} is given twice, with different values")
            else:
                self._given[right] = value

    def _paths(self) -> tuple[str, ...]:
        paths = [self._given["path"]] if "path" in self._given else []
        if "paths" in self._given:
            more = self._json("paths")
            if isinstance(more, list) and all(isinstance(each, str) for each in more):
                paths += more
            else:
                self.wrong.append(f"paths is a JSON list of texts, not {self._given['paths']!r}")
        if not any(paths) and "paths" not in self._given:
            self.wrong.append(
                "there is no path; give load(...) the directory of a store or its commit log"
            )
        return tuple(dict.fromkeys(path for path in paths if path))

    def _topics(self) -> dict[str, Any]:
        self._at_most_one("topic", "subscribe", "subscribePattern", "assign")
        values: dict[str, Any] = {}
        for name in ("topic", "subscribe"):
            if name in self._given:
                values["topics"] = self._list(name)
        if "subscribePattern" in self._given:
            values["topic_pattern"] = pattern = self._given["subscribePattern"]
            try:
                re.compile(pattern)
            except re.error as error:
                self.wrong.append(f"subscribePattern is no regular expression: {error}")
        if "assign" in self._given:
            values["assign"] = self._assign()
        return values

    def _assign(self) -> dict[str, tuple[int, ...]]:
        given = self._json("assign")
        if isinstance(given, dict) and all(
            isinstance(queues, list) and all(_is_count(queue) for queue in queues)
            for queues in given.values()
        ):
            return {topic: tuple(dict.fromkeys(queues)) for topic, queues in given.items()}
        self.wrong.append(
            'assign is JSON of queue ids by topic such as {"orders": [0, 1]}, not '
            f"{self._given['assign']!r}"
        )
        return {}

    def _tags(self) -> tuple[str, ...] | None:
        self._at_most_one("tags", "subExpression")
        text = self._given.get("tags", self._given.get("subExpression", "*"))
        tags = [tag.strip() for tag in re.split(r"\|\||,", text)]
        if tags == ["*"]:
            return None
        if not all(tags) or "*" in tags:
            self.wrong.append(f'tags are text such as "a || b", or "*" for all, not {text!r}')
        return tuple(dict.fromkeys(tags))

    def _columns(self, values: dict[str, Any]) -> tuple[str, ...] | None:
        if "columns" not in self._given:
            return None
        names = self._list("columns")
        try:
            return schema.judged_names(names, kafka=values["kafka_names"])
        except ArgumentError as error:
            self.wrong.append(f"columns: {error}")
            return None

    # ---- where to start and to end ----

    def _bounds(self) -> dict[str, Any]:
        if self.streaming:
            for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
                if name in self._given:
                    self.wrong.append(f"{name} means nothing to a streaming query; leave it out")
        starts = self._side("starting", default="latest" if self.streaming else "earliest")
        ends = self._side("ending", default="latest")
        if not self.streaming and starts["starting_offsets"] == "latest":
            self.wrong.append("startingOffsets cannot be latest in a batch query, only earliest")
        if ends["ending_offsets"] == "earliest":
            self.wrong.append("endingOffsets cannot be earliest, only latest")
        if not self.streaming:
            self._refuse_end(starts["starting_offsets"], "startingOffsets", LATEST)
        self._refuse_end(ends["ending_offsets"], "endingOffsets", EARLIEST)
        first, last = starts["starting_ms"], ends["ending_ms"]
        if first is not None and last is not None and first > last:
            self.wrong.append(f"startingTimestamp {first} lies behind endingTimestamp {last}")
        return {**starts, **ends}

    def _side(self, side: str, *, default: str) -> dict[str, Any]:
        offsets: str | ByQueue = self._given.get(f"{side}Offsets", default).strip()
        if isinstance(offsets, str) and offsets.lower() in ("earliest", "latest"):
            offsets = offsets.lower()
        else:
            offsets = self._by_queue(f"{side}Offsets", lowest=EARLIEST)
        timestamp = by_queue = None
        if f"{side}Timestamp" in self._given:
            timestamp = self._time(f"{side}Timestamp")
        if f"{side}OffsetsByTimestamp" in self._given:
            by_queue = self._by_queue(f"{side}OffsetsByTimestamp", lowest=0)
        if timestamp is not None:
            by_queue = None
        if timestamp is not None or by_queue is not None:
            offsets = "earliest" if side == "starting" else "latest"
        return {
            f"{side}_offsets": offsets,
            f"{side}_ms": timestamp,
            f"{side}_ms_by_queue": by_queue,
        }

    def _by_queue(self, name: str, *, lowest: int) -> ByQueue:
        given = self._json(name)
        if isinstance(given, dict) and all(
            isinstance(queues, dict)
            and all(
                queue.isdecimal() and _is_count(value, lowest) for queue, value in queues.items()
            )
            for queues in given.values()
        ):
            return {
                topic: {int(queue): value for queue, value in queues.items()}
                for topic, queues in given.items()
            }
        words = "" if lowest == 0 else "earliest, latest or "
        self.wrong.append(
            f'{name} is {words}JSON by topic and queue id such as {{"orders": {{"0": 17}}}}, not '
            f"{self._given[name]!r}"
        )
        return {}

    def _refuse_end(self, offsets: str | ByQueue, name: str, refused: int) -> None:
        if not isinstance(offsets, dict):
            return
        for topic, queues in offsets.items():
            for queue, offset in queues.items():
                if offset == refused:
                    word = "latest" if refused == LATEST else "earliest"
                    self.wrong.append(f"{name} cannot be {offset} ({word}), as for {topic}/{queue}")

    def _check_queues(self, values: dict[str, Any]) -> None:
        """A bound for a queue that is not read would be without effect."""
        for name, field in (
            ("startingOffsets", "starting_offsets"),
            ("endingOffsets", "ending_offsets"),
            ("startingOffsetsByTimestamp", "starting_ms_by_queue"),
            ("endingOffsetsByTimestamp", "ending_ms_by_queue"),
        ):
            by_queue = values[field]
            for topic, queues in by_queue.items() if isinstance(by_queue, dict) else ():
                for queue in queues:
                    if not _is_chosen(values, topic, queue):
                        self.wrong.append(f"{name} names {topic}/{queue}, which is not read")

    # ---- single values ----

    def _list(self, name: str) -> tuple[str, ...]:
        items = [item.strip() for item in self._given[name].split(",")]
        if not all(items):
            self.wrong.append(f"{name} is a list parted by commas, not {self._given[name]!r}")
        return tuple(dict.fromkeys(items))

    def _json(self, name: str) -> object:
        try:
            return cast(object, json.loads(self._given[name]))
        except ValueError:
            return None

    def _word(self, name: str, words: tuple[str, ...]) -> str:
        """Return one of *words*, of which the first is the default."""
        given = self._given.get(name, words[0]).strip()
        if given.lower() not in words:
            self.wrong.append(f"{name} is one of {', '.join(words)}, not {given!r}")
        return given.lower()

    def _bool(self, name: str, *, default: bool = False) -> bool:
        return self._word(name, ("true", "false") if default else ("false", "true")) == "true"

    def _count(self, name: str) -> int | None:
        given = self._given.get(name)
        if given is None:
            return None
        if given.strip().isdecimal() and int(given) > 0:
            return int(given)
        self.wrong.append(f"{name} is a number from 1 on, not {given!r}")
        return None

    def _size(self, name: str, *, default: int | None = None, limit: int = 2**62) -> int | None:
        given = self._given.get(name)
        if given is None:
            return default
        match = _SIZE.fullmatch(given.strip())
        if match:
            power = " kmgt".index((match[2] or " ").lower())
            size = int(match[1]) << (10 * power)
            if 0 < size <= limit:
                return size
        most = "" if limit == 2**62 else f" up to {limit >> 20}m"
        self.wrong.append(f"{name} is a size such as 1048576, 128m or 64MiB{most}, not {given!r}")
        return default

    def _time(self, name: str) -> int | None:
        given = self._given[name].strip()
        if re.fullmatch(r"-?\d+", given) and abs(int(given)) < 2**63:
            return int(given)
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            self.wrong.append(
                f"{name} is milliseconds since 1970 or a time such as 2025-01-31T12:00:00Z, not "
                f"{given!r}"
            )
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return round(moment.timestamp() * 1000)

    def _at_most_one(self, *names: str) -> None:
        given = [name for name in names if name in self._given]
        if len(given) > 1:
            self.wrong.append(f"{' and '.join(given)} exclude each other; give one of them")


def _is_count(value: object, lowest: int = 0) -> bool:
    is_int = isinstance(value, int) and not isinstance(value, bool)
    return is_int and lowest <= cast(int, value) < 2**63


def _is_chosen(values: Mapping[str, Any], topic: str, queue: int) -> bool:
    if "topics" in values:
        return topic in values["topics"]
    if "topic_pattern" in values:
        return re.fullmatch(values["topic_pattern"], topic) is not None
    if "assign" in values:
        return queue in values["assign"].get(topic, ())
    return True


def _nearest(name: str, known: tuple[str, ...]) -> str:
    by_case = {each.lower(): each for each in known}
    close = difflib.get_close_matches(name.lower(), by_case, n=1, cutoff=0.5)
    return f"did you mean {by_case[close[0]]}?" if close else f"there are {', '.join(known)}"
