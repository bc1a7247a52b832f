"""`spark`: jobs over whole stores, run by Spark on this machine or on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, fail
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import parse_time, print_json, progress
from rmqstore.errors import MissingExtraError, NotFoundError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmqstore.spark.pipelines import Report

__all__ = ["app"]

app = typer.Typer(
    help=(
        "Jobs over whole stores, run by Spark: needs pip install 'rmqstore[spark]' and Java 17.\n\n"
        "PATH is a store, a commit log directory, or a pattern for several stores if the command "
        "accepts several. If Spark runs on several hosts, PATH must be the same on all hosts. "
        "Nothing is written to PATH."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
)

StorePlace = Annotated[str, typer.Argument(metavar="PATH", help="The store, or a URL of it.")]
TargetPlace = Annotated[str, typer.Argument(metavar="TARGET", help="Directory to write to.")]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark master.", envvar="SPARK_MASTER")
]
FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        "-o",
        metavar="NAME=VALUE",
        help="An option of the Spark format, such as maxPartitionBytes=64m; may be repeated.",
    ),
]
TopicOption = Annotated[
    str | None, typer.Option("--topic", "-t", help="Topic, or several topics separated by commas.")
]
SinceOption = Annotated[
    str | None, typer.Option("--since", metavar="TIME", help="Stored at or after this time.")
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Stored before this time.")
]
UpTo = Literal["confirm", "max"]
UpToOption = Annotated[
    UpTo, typer.Option("--up-to", help="Read confirmed messages, or all messages.")
]

_PLOTS = (".html", ".htm", ".png")


@app.command("compare", epilog=EXIT_CODES)
@command
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="One replica.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The other replica.")],
    by: Annotated[
        Literal["bytes", "crc32", "blake2b"],
        typer.Option(help="Compare bytes in one task, or hashes if no host sees both replicas."),
    ] = "bytes",
    up_to: UpToOption = "confirm",
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Show the byte ranges in which two replicas differ, as divergence or damage.

    Compares up to the smaller of the two readable ends. Exits with 1 when records differ.
    """
    with _running(master) as (spark, run), progress("comparing", unit="tasks") as report:
        found = run.compare(spark, a, b, by=by, up_to=up_to, progress=report)
    return _print(found, json)


@app.command("audit", epilog=EXIT_CODES)
@command
def audit(
    path: StorePlace,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Check the CRC of every record, also after damage; exit with 1 when there is damage."""
    with _running(master) as (spark, run), progress("auditing", unit="tasks") as report:
        found = run.audit(spark, path, progress=report, **_options(option))
    return _print(found, json)


@app.command("count", epilog=EXIT_CODES)
@command
def count(
    path: StorePlace,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Count messages; exit with 1 when damage was skipped."""
    settings = _options(option, topic=topic, since=since, until=until)
    with _running(master) as (spark, run), progress("counting", unit="tasks") as report:
        found = run.count(spark, path, progress=report, **settings)
    return _print(found, json)


@app.command("statistics", epilog=EXIT_CODES)
@command
def statistics(
    path: StorePlace,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Draw a plot into a .html file, or a .png file with matplotlib."
        ),
    ] = None,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Summarize messages by topic and queue: count, bytes, offsets, times, sizes.

    Exits with 1 when damage was skipped.
    """
    settings = _options(option, topic=topic, since=since, until=until)
    if plot is not None and plot.suffix.lower() not in _PLOTS:
        raise typer.BadParameter(
            f"{plot} has the suffix {plot.suffix!r}; a plot is one of {', '.join(_PLOTS)}"
        )
    with _running(master) as (spark, run), progress("summing up", unit="tasks") as report:
        found = run.statistics(spark, path, progress=report, **settings)
        if plot is not None:
            run.plot(found, plot)
    return _print(found, json)


@app.command("rebuild-check", epilog=EXIT_CODES)
@command
def rebuild_check(
    path: StorePlace,
    index: Annotated[bool, typer.Option(help="Check the index files too.")] = True,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Check queues and index against the log; exit with 1 when rebuilt ones would differ."""
    with _running(master) as (spark, run), progress("checking", unit="tasks") as report:
        found = run.rebuild_check(spark, path, index=index, progress=report, **_options(option))
    return _print(found, json)


@app.command("export", epilog=EXIT_CODES)
@command
def export(
    path: StorePlace,
    target: TargetPlace,
    topic: TopicOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns, separated by commas. Default: all."),
    ] = None,
    mode: Annotated[
        Literal["append", "error", "overwrite"],
        typer.Option(help="Action if TARGET exists."),
    ] = "error",
    by_topic: Annotated[
        bool, typer.Option("--by-topic", help="Fewer and larger files, at the cost of a shuffle.")
    ] = False,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Write messages to Parquet, in folders topicFolder=T/date=D, sorted by queue and offset."""
    settings = _options(option, topic=topic, since=since, until=until)
    chosen = columns.split(",") if columns else None
    with _running(master) as (spark, run), progress("exporting", unit="tasks") as report:
        found = run.export(
            spark,
            path,
            target,
            columns=chosen,
            mode=mode,
            by_topic=by_topic,
            progress=report,
            **settings,
        )
    return _print(found, json)


@app.command("compact", epilog=EXIT_CODES)
@command
def compact(
    path: StorePlace,
    target: TargetPlace,
    form: Annotated[
        Literal["parquet", "rmqstore"], typer.Option("--form", help="Form of TARGET.")
    ] = "rmqstore",
    without_key: Annotated[
        Literal["keep", "drop"], typer.Option(help="Action for messages without a key.")
    ] = "keep",
    tombstones: Annotated[
        bool, typer.Option("--tombstones", help="An empty body deletes its key.")
    ] = False,
    new_timestamps: Annotated[
        bool,
        typer.Option(
            "--new-timestamps", help="Store with the present time, if the old times do not ascend."
        ),
    ] = False,
    topic: TopicOption = None,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Write the newest message of each key of each queue to a store or to Parquet."""
    settings = _options(option, topic=topic)
    with _running(master) as (spark, run), progress("compacting", unit="tasks") as report:
        found = run.compact(
            spark,
            path,
            target,
            form=form,
            without_key=without_key,
            tombstones=tombstones,
            keep_timestamps=not new_timestamps,
            progress=report,
            **settings,
        )
    return _print(found, json)


@app.command("transactions", epilog=EXIT_CODES)
@command
def transactions(
    path: StorePlace,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Time instead of now.")
    ] = None,
    min_age: Annotated[
        float,
        typer.Option(metavar="SECONDS", min=0, help="Leave out transactions younger than this."),
    ] = 0.0,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """List transactions without an end and overdue delayed messages.

    Exits with 1 when there are any.
    """
    given_ms = parse_time(at)
    now_ms = round(time.time() * 1000) if given_ms is None else given_ms
    with _running(master) as (spark, run), progress("searching", unit="tasks") as report:
        found = run.transactions(
            spark, path, now_ms=now_ms, min_age_ms=round(min_age * 1000), progress=report
        )
    return _print(found, json)


@app.command("feed", epilog=EXIT_CODES)
@command
def feed(
    path: StorePlace,
    target: TargetPlace,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="Directory of the progress. Default: TARGET/_checkpoint."
        ),
    ] = None,
    topic: TopicOption = None,
    option: FormatOption = None,
    json: JsonOption = False,
    master: MasterOption = "local[*]",
) -> ExitCode:
    """Append the messages since the last run to Parquet, each message once."""
    settings = _options(option, topic=topic)
    kept = checkpoint or f"{target.rstrip('/')}/_checkpoint"
    with _running(master) as (spark, run), progress("feeding", unit="messages") as report:
        found = run.change_feed(spark, path, target, checkpoint=kept, progress=report, **settings)
    return _print(found, json)


@contextmanager
def _running(master: str) -> Iterator[tuple[SparkSession, Any]]:
    """Run the block with a session and the pipelines; a session that existed before stays open.

    Errors of tasks, which Spark wraps into long traces, are unwrapped.
    """
    from rmqstore.spark.failures import own_error
    from rmqstore.spark.session import quiet_session

    builder = quiet_session(master=master)
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession

        from rmqstore.spark import pipelines
        from rmqstore.spark.pipelines.work import interruptible
    except ImportError as error:
        raise MissingExtraError(
            f"this command needs {error.name}: pip install 'rmqstore[spark]'"
        ) from error
    is_ours = SparkSession.getActiveSession() is None
    spark = interruptible(builder.getOrCreate, lambda: None)
    try:
        yield spark, _Interruptible(pipelines, spark.sparkContext.cancelAllJobs)
    except NotFoundError as error:
        raise fail(str(error), ExitCode.CANNOT_OPEN) from None
    except PySparkException as error:
        own = own_error(error)
        if own is None:
            raise fail(str(error).strip().partition("\n")[0], ExitCode.FAILED) from None
        if isinstance(own, NotFoundError):
            raise fail(str(own), ExitCode.CANNOT_OPEN) from None
        raise own from None
    finally:
        if is_ours:
            spark.stop()


class _Interruptible:
    """The functions of a module, each called so that an interrupt ends it with *cancel*."""

    def __init__(self, module: Any, cancel: Callable[[], object]) -> None:
        self._module = module
        self._cancel = cancel

    def __getattr__(self, name: str) -> Callable[..., Any]:
        from rmqstore.spark.pipelines.work import interruptible

        function = getattr(self._module, name)
        return lambda *given, **named: interruptible(
            partial(function, *given, **named), self._cancel
        )


def _options(
    given: list[str] | None,
    *,
    topic: str | None = None,
    since: str | None = None,
    until: str | None = None,
) -> dict[str, str]:
    options = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(
                f"{text!r} is not NAME=VALUE; give an option such as maxPartitionBytes=64m"
            )
        options[name] = value
    if topic is not None:
        options["topic"] = topic
    for name, place in (("startingTimestamp", since), ("endingTimestamp", until)):
        time_ms = parse_time(place)
        if time_ms is not None:
            options[name] = str(time_ms)
    return options


def _print(report: Report, json: bool) -> ExitCode:
    if json:
        for each in report.as_json():
            print_json(each)
    else:
        for line in report.lines():
            print(line)
    return ExitCode.OK if report.is_sound else ExitCode.FAULT
