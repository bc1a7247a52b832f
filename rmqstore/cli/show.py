"""`ls`, `info` and `dump`: the whole content of a store."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rmqstore.check.facts import facts_of
from rmqstore.check.manifest import dump as manifest
from rmqstore.cli.errors import ExitCode, command, opened, print_error
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import body_members, print_json, print_rows, progress, time_text
from rmqstore.store import Store
from rmqstore.store.parquet import write_parquet

__all__ = ["OnCorrupt", "dump", "info", "list_queues"]

_REPORT_EVERY = 1024


class OnCorrupt(StrEnum):
    """The action of `dump` at bytes that are not a record."""

    FAIL = "fail"
    SKIP = "skip"


@command
def list_queues(
    path: StorePath,
    topic: Annotated[str | None, typer.Argument(help="Only queues of this topic.")] = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """List the queues with their offsets.

    `start` is the first offset kept, `end` the offset after the last message. Exits with 1 when
    there are no queues.
    """
    with opened(path, config) as store:
        rows = []
        for queue in store.queues(topic):
            start, end = queue.start, queue.end
            rows.append((queue.topic, queue.number, start, end, end - start))
    if json:
        for name, number, start, end, count in rows:
            print_json(
                {"topic": name, "queueId": number, "start": start, "end": end, "messages": count}
            )
    else:
        print_rows(("topic", "queue", "start", "end", "messages"), rows)
    return ExitCode.OK if rows else ExitCode.FAULT


@command
def info(path: StorePath, json: JsonOption = False, config: ConfigOption = None) -> ExitCode:
    """Show the bounds, settings and state of a store."""
    with opened(path, config) as store:
        facts = facts_of(store)
    if json:
        print_json(facts)
    else:
        print_rows(("fact", "value"), [(name, _text(name, value)) for name, value in facts.items()])
    return ExitCode.OK


def _text(name: str, value: object) -> str:
    if name == "firstStoreTimestamp" and isinstance(value, int):
        return time_text(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {each}" for key, each in value.items() if each is not None)
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return "" if value is None else str(value)


@command
def dump(
    path: StorePath,
    json: Annotated[bool, typer.Option("--json", help="Lines of JSON; the default.")] = False,
    parquet: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a Parquet file instead.", dir_okay=False),
    ] = None,
    on_corrupt: Annotated[
        OnCorrupt,
        typer.Option(help="At bytes that are not a record: end with exit code 1, or skip them."),
    ] = OnCorrupt.FAIL,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="Include bodies: body, or bodyBase64.")
    ] = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Print every record in the order of the log, with RocketMQ's field names.

    Exits with 1 at damage: after the records before it, or with `--on-corrupt skip` after all
    records that can be read.
    """
    if json and parquet:
        raise typer.BadParameter("give --json or --parquet, not both")
    with opened(path, config) as store:
        if parquet is not None:
            return _write_parquet(store, parquet, on_corrupt)
        start, total = max(store.start_offset, 0), store.end_offset
        scan = store.scan_log(on_corrupt=on_corrupt.value)
        with progress("dumping") as report:
            for number, line in enumerate(manifest(store, scan)):
                if bodies:
                    line |= body_members(store.record_at(line["phyOffset"]))
                print_json(line)
                if number % _REPORT_EVERY == 0:
                    report(line["phyOffset"] - start, total - start)
    return _report_skipped(path, scan.skipped)


def _report_skipped(path: Path, skipped: int) -> ExitCode:
    if not skipped:
        return ExitCode.OK
    print_error(
        f"{path}: skipped {skipped} corrupt place(s) of the log; see rmqstore verify {path}"
    )
    return ExitCode.FAULT


def _write_parquet(store: Store, target: Path, on_corrupt: OnCorrupt) -> ExitCode:
    stream = store.scan_arrow(check_crc=True, on_corrupt=on_corrupt.value)
    with progress("dumping", unit="records") as report:
        rows = write_parquet(stream, target, progress=lambda done: report(done, done))
    print(f"{rows} records in {target}", file=sys.stderr)
    return _report_skipped(Path(store.path), stream.skipped)
