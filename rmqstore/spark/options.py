"""The options of the format, judged all at once.

Words, defaults and precedence are those of Spark's Kafka source where it has them: a timestamp for
all queues goes before timestamps by queue, and these before offsets. Starting points are inclusive,
ends are not. Times are store timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rmqstore.errors import ArgumentError
from rmqstore.spark.judging import EARLIEST, LATEST, ByQueue, Judge

__all__ = ["EARLIEST", "LATEST", "Options"]

_EVER_MS = (-(2**63), 2**63 - 1)


@dataclass(frozen=True, slots=True)
class Options:
    """What a read was asked for, every value checked. Of bounds, only those in force are set."""

    paths: tuple[str, ...] = ()
    """As given: directories, URLs, globs."""
    topics: tuple[str, ...] | None = None
    topic_pattern: str | None = None
    """The whole name of a topic matches it."""
    assign: dict[str, tuple[int, ...]] | None = None
    tags: tuple[str, ...] | None = None
    starting_offsets: Literal["earliest", "latest"] | ByQueue = "earliest"
    ending_offsets: Literal["earliest", "latest"] | ByQueue = "latest"
    starting_ms: int | None = None
    ending_ms: int | None = None
    starting_ms_by_queue: ByQueue | None = None
    ending_ms_by_queue: ByQueue | None = None
    starting_strategy: Literal["error", "latest"] = "error"
    max_clock_step_ms: int | None = None
    """How far the writer's clock stepped back at most; None where nobody knows."""
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_partition_bytes: int = 128 << 20
    columns: tuple[str, ...] | None = None
    kafka_names: bool = False
    include_headers: bool = False
    include_record: bool = False
    check_crc: bool = False
    on_corrupt: Literal["fail", "skip", "row"] = "fail"
    up_to: Literal["confirm", "max"] = "confirm"
    decompress: bool = False
    batch_bytes: int = 2 << 20
    max_bytes_per_trigger: int | None = None
    max_offsets_per_trigger: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> Options:
        """Return the options that Spark handed over; their names' case is of no matter.

        Raises ArgumentError naming every option that is unknown or wrong. *streaming* options may
        start at the latest offset, which is their default, and have no end.
        """
        judge = Judge(options, streaming=streaming)
        values = judge.values()
        if judge.wrong:
            count = len(judge.wrong)
            heading = f"{count} wrong option{'' if count == 1 else 's'}:"
            raise ArgumentError("\n  ".join((heading, *judge.wrong)))
        return cls(**values)

    @property
    def by_topic(self) -> bool:
        """Whether topics or queues are chosen: only messages that are in a queue are read then, and
        `partitions.choice` says which."""
        chosen = (self.topics, self.topic_pattern, self.assign)
        by_queue = (self.starting_ms_by_queue, self.ending_ms_by_queue)
        return (
            any(each is not None for each in (*chosen, *by_queue))
            or isinstance(self.starting_offsets, dict)
            or isinstance(self.ending_offsets, dict)
        )

    @property
    def begin_ms(self) -> int:
        """The first store timestamp that is read, the smallest int64 for all."""
        return _EVER_MS[0] if self.starting_ms is None else self.starting_ms

    @property
    def end_ms(self) -> int:
        """The first store timestamp that is not read any more, the largest int64 for all."""
        return _EVER_MS[1] if self.ending_ms is None else self.ending_ms
