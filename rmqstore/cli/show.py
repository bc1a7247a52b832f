"""`ls`, `info` and `dump`: what a store holds, as a whole."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqstore.checkpoint import CHECKPOINT, CHECKPOINT_BYTES, Checkpoint
from rmqstore.cli.errors import ExitCode, command, opened, tell
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import body_members, print_json, print_rows, progress, time_text
from rmqstore.errors import MissingExtraError, StoreError
from rmqstore.manifest import dump as manifest
from rmqstore.store import Store

__all__ = ["OnCorrupt", "dump", "info", "list_queues"]

_REPORT_EVERY = 1024


class OnCorrupt(StrEnum):
    """What `dump` does at bytes that are not a record."""

    FAIL = "fail"
    SKIP = "skip"


@command
def list_queues(
    path: StorePath,
    topic: Annotated[str | None, typer.Argument(help="Of this topic only.")] = None,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """List the queues with their offsets.

    `start` is the first offset kept, `end` the one behind the last message. Exits with 1 when there
    are none.
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
    """Tell where a store begins and ends, how it is set up and what state it is in."""
    with opened(path, config) as store:
        facts = _facts(store)
    if json:
        print_json(facts)
    else:
        print_rows(("fact", "value"), [(name, _text(name, value)) for name, value in facts.items()])
    return ExitCode.OK


def _facts(store: Store) -> dict[str, Any]:
    directory = store.directory
    queues = store.queues()
    files = store._files()
    start = max(store.start_offset, 0)
    return {
        "path": store.path,
        "release": directory.release,
        "wasClosed": directory.was_closed,
        "startOffset": start,
        "endOffset": store.end_offset,
        "firstStoreTimestamp": _first_time(store, start),
        "logFiles": len(files),
        "logFileSize": store.config.commit_log_file_size_bytes,
        "topics": len({queue.topic for queue in queues}),
        "queues": len(queues),
        "queueEntries": sum(len(queue) for queue in queues),
        "queueFileSize": store.config.consume_queue_file_size_bytes,
        "indexSlots": directory.index_slot_count,
        "indexEntries": directory.index_entry_count,
        "indexFilesSkipped": store._index_files_skipped(),
        "checkpoint": _checkpoint(store),
        "leftAlone": list(directory.left_alone),
    }


def _checkpoint(store: Store) -> dict[str, Any] | None:
    try:
        with Path(store.path, CHECKPOINT).open("rb") as file:
            found = Checkpoint.parse(file.read(CHECKPOINT_BYTES))
    except FileNotFoundError:
        return None
    return found.as_json() if found else None


def _first_time(store: Store, start: int) -> int | None:
    try:
        first = next(iter(store.scan_log(start)), None)
    except StoreError:
        return None
    return first.store_timestamp if first else None


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
        typer.Option(
            help="At bytes that are not a record: end with exit code 1, or go on after them."
        ),
    ] = OnCorrupt.FAIL,
    bodies: Annotated[
        bool, typer.Option("--bodies", help="Bodies as well: body, or bodyBase64.")
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
    return _tell_skipped(path, scan.skipped)


def _tell_skipped(path: Path, skipped: int) -> ExitCode:
    if not skipped:
        return ExitCode.OK
    tell(f"{path}: skipped {skipped} corrupt place(s) of the log; see rmqstore verify {path}")
    return ExitCode.FAULT


def _write_parquet(store: Store, target: Path, on_corrupt: OnCorrupt) -> ExitCode:
    try:
        import pyarrow.parquet as files
    except ImportError as error:
        raise MissingExtraError("--parquet needs pyarrow; pip install 'rmqstore[arrow]'") from error
    rows = 0
    unfinished = target.with_name(f"{target.name}.unfinished")
    stream = store.scan_arrow(check_crc=True, on_corrupt=on_corrupt.value)
    reader = stream.reader()
    try:
        with (
            files.ParquetWriter(unfinished, reader.schema) as writer,
            progress("dumping", unit="records") as report,
        ):
            for batch in reader:
                writer.write_batch(batch)
                rows += batch.num_rows
                report(rows, rows)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{rows} records in {target}", file=sys.stderr)
    return _tell_skipped(Path(store.path), stream.skipped)
