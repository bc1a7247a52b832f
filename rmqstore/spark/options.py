"""The options of the format: name, default, unit and help of each, and their values in one query.

Words, defaults and precedence are those of Spark's Kafka source where it has them: a timestamp for
all queues wins over timestamps by queue, and these over offsets. Starting points are inclusive,
ends are exclusive. Times are store timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from rmqstore.config.options import Codec, Option, codec_for, options_of
from rmqstore.errors import ArgumentError
from rmqstore.spark import option_rules
from rmqstore.spark import option_values as of
from rmqstore.spark.option_values import EARLIEST, LATEST, ByQueue

__all__ = ["EARLIEST", "LATEST", "Options", "SparkOption", "spark_options"]

_EVER_MS = (-(2**63), 2**63 - 1)
_BATCH_BYTES_MAX = 1 << 30
_ALWAYS = "batch and streams"


@dataclass(frozen=True, slots=True)
class SparkOption(Option):
    """One row of the table of options."""

    aliases: tuple[str, ...] = ()
    """Other names of the option."""
    kafka: str = "none"
    """The option of the Kafka source: "the same", another name, or "none"."""


def _option(
    key: str,
    default: Any,
    unit: str = "",
    *,
    help: str,
    effect: str = _ALWAYS,
    codec: Codec | None = None,
    aliases: tuple[str, ...] = (),
    kafka: str = "none",
) -> Any:
    codec = codec or codec_for(type(default))
    about = SparkOption(
        key, "", default, unit, None, None, help, effect, codec, aliases=aliases, kafka=kafka
    )
    return field(default=default, metadata={"option": about})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a query, every value checked. Of bounds, only those in force are set.

    Each field holds a `SparkOption` in its metadata.
    """

    paths: tuple[str, ...] = _option(
        "path",
        (),
        codec=of.PATH,
        help="a store's directory, a commit log directory, a glob or a URL; `load` sets it",
    )
    log_folders: tuple[str, ...] = _option(
        "storePathCommitLog",
        (),
        codec=of.FOLDERS,
        help="the folders of the commit log, separated by commas, of a store that has it elsewhere "
        "than in `commitlog`, or in several folders: RocketMQ's setting, and read-only ones too",
    )
    topics: tuple[str, ...] | None = _option(
        "topic",
        None,
        codec=of.TOPICS,
        aliases=("subscribe",),
        help="topics, separated by commas",
        kafka="`subscribe`",
    )
    topic_pattern: str | None = _option(
        "subscribePattern",
        None,
        codec=of.PATTERN,
        help="a regular expression of Python that matches the whole topic",
        kafka="the same, of Java",
    )
    assign: dict[str, tuple[int, ...]] | None = _option(  # noqa: RUF009
        "assign",
        None,
        codec=of.ASSIGNMENT,
        help='JSON of queue ids by topic: `{"orders": [0, 1]}`',
        kafka="the same",
    )
    tags: tuple[str, ...] | None = _option(
        "tags",
        None,
        codec=of.TAGS,
        aliases=("subExpression",),
        help="any of these: `eu || us` or `eu,us`; the text is compared",
    )
    starting_offsets: Literal["earliest", "latest"] | ByQueue = _option(  # noqa: RUF009
        "startingOffsets",
        "earliest",
        codec=of.position("earliest", "latest"),
        help="`earliest`, `latest` (streams only, and their default), or JSON by queue: "
        '`{"orders": {"0": 17, "1": -2}}`; -2 earliest, -1 latest',
        kafka="the same",
    )
    ending_offsets: Literal["earliest", "latest"] | ByQueue = _option(  # noqa: RUF009
        "endingOffsets",
        "latest",
        codec=of.position("earliest", "latest"),
        help="`latest` or JSON by queue",
        effect="batch",
        kafka="the same",
    )
    starting_ms: int | None = _option(
        "startingTimestamp",
        None,
        "ms since 1970, or ISO 8601",
        codec=of.TIME,
        help="first store time; wins over the other two starts",
        kafka="the same",
    )
    ending_ms: int | None = _option(
        "endingTimestamp",
        None,
        "ms since 1970, or ISO 8601",
        codec=of.TIME,
        help="store time at which the read ends; wins over the other two ends",
        effect="batch",
        kafka="the same",
    )
    starting_ms_by_queue: ByQueue | None = _option(  # noqa: RUF009
        "startingOffsetsByTimestamp",
        None,
        "ms since 1970",
        codec=of.TIMES,
        help="JSON of times by queue; wins over `startingOffsets`",
        kafka="the same",
    )
    ending_ms_by_queue: ByQueue | None = _option(  # noqa: RUF009
        "endingOffsetsByTimestamp",
        None,
        "ms since 1970",
        codec=of.TIMES,
        help="JSON of times by queue; wins over `endingOffsets`",
        effect="batch",
        kafka="the same",
    )
    starting_strategy: Literal["error", "latest"] = _option(
        "startingOffsetsByTimestampStrategy",
        "error",
        codec=of.one_of("error", "latest"),
        help="where a queue's last message is older than its time: `error`, or `latest` to read "
        "without an error",
        kafka="the same",
    )
    max_clock_step_ms: int | None = _option(
        "maxClockStepMs",
        None,
        "ms",
        codec=of.COUNT,
        help="largest step back of the writer's clock. With it, files and splits whose times "
        "are outside of a range by more are not read; without it all are read and rows are chosen "
        "one by one, since nothing in a log bounds such a step",
    )
    fail_on_data_loss: bool = _option(
        "failOnDataLoss",
        True,
        help="where a file is gone since the read was planned, or retention removed a start: an "
        "error, or a warning and what is left",
        kafka="the same",
    )
    min_partitions: int | None = _option(
        "minPartitions",
        None,
        "partitions",
        codec=of.COUNT,
        help="least number of them, approximately",
        kafka="the same",
    )
    max_partition_bytes: int = _option(
        "maxPartitionBytes",
        128 << 20,
        "bytes",
        codec=of.size(),
        help="largest piece of log in a partition",
    )
    columns: tuple[str, ...] | None = _option(
        "columns",
        None,
        codec=of.NAMES,
        help="names of columns, separated by commas; `tagsCode`, `record` and `error` are not "
        "among all",
    )
    kafka_names: bool = _option(
        "columnNames",
        False,
        codec=Codec(
            lambda value: of.one_of("rmqstore", "kafka").parse(value) == "kafka",
            lambda value: "kafka" if value else "rmqstore",
        ),
        help="names of the columns: `rmqstore` or `kafka`",
    )
    include_headers: bool = _option(
        "includeHeaders",
        False,
        help="the column `headers`, with Kafka's names",
        kafka="the same",
    )
    include_record: bool = _option("includeRecord", False, help="the column `record`")
    check_crc: bool = _option(
        "checkCrc", False, help="a body that does not match its CRC is damage"
    )
    on_corrupt: Literal["fail", "skip", "row"] = _option(
        "onCorrupt",
        "fail",
        codec=of.one_of("fail", "skip", "row"),
        help="what damage does: `fail`, `skip` or `row`, below",
    )
    up_to: Literal["confirm", "max"] = _option(
        "upTo",
        "confirm",
        codec=of.one_of("confirm", "max"),
        help="where a read ends: `confirm` or `max`, below",
    )
    decompress: bool = _option("decompress", False, help="bodies decompressed, `sysFlag` as stored")
    batch_bytes: int = _option(
        "batchBytes",
        2 << 20,
        "bytes",
        codec=of.size(_BATCH_BYTES_MAX),
        help="text and bodies in a batch on the way to Spark, at most 1024m",
    )
    reader: Literal["auto", "jvm", "python"] = _option(
        "reader",
        "auto",
        codec=of.one_of("auto", "jvm", "python"),
        help="who reads: `jvm`, `python`, or `auto` for the JVM where it can, above",
    )
    max_bytes_per_trigger: int | None = _option(
        "maxBytesPerTrigger",
        None,
        "bytes",
        codec=of.size(),
        help="log that a batch reads at most",
        effect="streams",
    )
    max_offsets_per_trigger: int | None = _option(
        "maxOffsetsPerTrigger",
        None,
        "messages",
        codec=of.COUNT,
        help="messages that a batch reads at most; excludes `maxBytesPerTrigger`",
        effect="streams",
        kafka="the same",
    )

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> Options:
        """Return the options that Spark handed over; names are of any case.

        Raises ArgumentError that names every option that is unknown or wrong. *streaming* options
        may start at the latest offset, which is their default, and have no end.
        """
        given, wrong = option_rules.spelled(options, _BY_NAME)
        values: dict[str, Any] = {}
        for name, text in given.items():
            about = _BY_NAME[name]
            try:
                value = about.parse(text)
            except ValueError as error:
                wrong.append(f"{name}: {error}")
            else:
                is_path = about.name == "paths"
                values[about.name] = (*values.get("paths", ()), *value) if is_path else value

        wrong += option_rules.settle(values, given, streaming=streaming)
        if wrong:
            count = len(wrong)
            heading = f"{count} wrong option{'' if count == 1 else 's'}:"
            raise ArgumentError("\n  ".join((heading, *wrong)))
        return cls(**values)

    @classmethod
    def parse_for_either(cls, options: Mapping[str, str]) -> Options:
        """Return the options of a query of either kind: Spark does not name the kind here, and a
        stream may start at the end. Raises as `parse` does for a batch query.
        """
        try:
            return cls.parse(options)
        except ArgumentError as wrong:
            try:
                return cls.parse(options, streaming=True)
            except ArgumentError:
                raise wrong from None

    @property
    def by_topic(self) -> bool:
        """Whether topics or queues are chosen: only messages that are in a queue are read then,
        chosen by `partitions.choice`."""
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


def spark_options() -> tuple[SparkOption, ...]:
    """Return the table of options, in its order."""
    first, *others = cast(Mapping[str, SparkOption], options_of(Options)).values()
    return (first, _PATHS, *others)


_PATHS = SparkOption(
    "paths",
    "paths",
    (),
    "",
    None,
    None,
    "a JSON list of paths; `load` sets it",
    _ALWAYS,
    of.PATHS,
)
_BY_NAME = {name: each for each in spark_options() for name in (each.key, *each.aliases)}
