"""Output: tables and progress for people, tabs and JSON lines for programs."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import typer

from rmqstore import arguments
from rmqstore._native.core import Record
from rmqstore.check.manifest import manifest_line
from rmqstore.compression import decompress
from rmqstore.errors import ArgumentError, StoreError

__all__ = [
    "body_members",
    "parse_time",
    "plain_body",
    "print_json",
    "print_record",
    "print_rows",
    "progress",
    "time_text",
]

_BODY_SHOWN = 200
_GAP = 2
"""Columns of the terminal between two columns of a table."""


def print_json(value: Any) -> None:
    """Print *value* as one line of JSON."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def print_rows(
    names: Sequence[str], rows: Iterable[Sequence[object]], *, spare: Sequence[str] = ()
) -> None:
    """Print a table: drawn on a terminal, else lines of tab-separated fields, names first.

    On a terminal that is too narrow the columns *spare* are left out, the first one first, and a
    line names them. Cells that are still too wide are folded, not cut.
    """
    if not sys.stdout.isatty():
        print(*names, sep="\t")
        for row in rows:
            print(*row, sep="\t")
        return
    from rich.cells import cell_len
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    lines = [names, *rows]
    widths = {
        name: max(cell_len(str(line[number])) for line in lines)
        for number, name in enumerate(names)
    }
    left_out: list[str] = []
    for name in spare:
        if sum(widths.values()) + _GAP * (len(widths) - 1) <= console.width:
            break
        del widths[name]
        left_out.append(name)

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    for name in widths:
        table.add_column(name, overflow="fold")
    for line in lines[1:]:
        cells = (cell for name, cell in zip(names, line, strict=True) if name in widths)
        table.add_row(
            *(Text(str(cell), justify="right" if type(cell) is int else "left") for cell in cells)
        )
    console.print(table)
    if left_out:
        print(f"The terminal has no room for: {', '.join(left_out)}")


def time_text(time_ms: int) -> str:
    """Return a time as ISO 8601 with the local offset; as digits outside the calendar's range."""
    try:
        return (
            datetime.fromtimestamp(time_ms / 1000).astimezone().isoformat(timespec="milliseconds")
        )
    except (OverflowError, ValueError, OSError):
        return str(time_ms)


def parse_time(text: str | None) -> int | None:
    """Return the milliseconds of a time in milliseconds or ISO 8601; a time without zone is local.

    None stays None. Raises typer.BadParameter for anything else.
    """
    if text is None:
        return None
    try:
        return arguments.time_ms("the time", text)
    except ArgumentError as error:
        raise typer.BadParameter(str(error)) from None


def plain_body(record: Record) -> bytes:
    """Return the decompressed body; the stored bytes if they cannot be decompressed."""
    try:
        return decompress(record.body, record.sys_flag)
    except StoreError:
        return record.body


def body_members(record: Record) -> dict[str, str]:
    """Return the JSON members of the plain body: `body`, or `bodyBase64` when it is not UTF-8."""
    body = plain_body(record)
    try:
        return {"body": body.decode("utf-8")}
    except UnicodeDecodeError:
        return {"bodyBase64": base64.b64encode(body).decode("ascii")}


def print_record(record: Record, *, as_json: bool) -> None:
    """Print a record: one line of JSON with RocketMQ's names, or one line for people."""
    if as_json:
        print_json(manifest_line(record) | body_members(record))
        return
    body = plain_body(record).decode("utf-8", "backslashreplace")
    if sys.stdout.isatty() and len(body) > _BODY_SHOWN:
        body = f"{body[:_BODY_SHOWN]}…"
    parts = [
        time_text(record.store_timestamp),
        f"{record.topic}/{record.queue}@{record.queue_offset}",
        *([f"tags={record.tags}"] if record.tags else []),
        *([f"keys={' '.join(record.keys)}"] if record.keys else []),
        "".join(each if each.isprintable() else repr(each)[1:-1] for each in body),
    ]
    print(*parts, sep="\t")


@contextmanager
def progress(title: str, *, unit: str = "bytes") -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar while the block runs, if stderr is a terminal.

    Yields a function to be called with the finished amount and the total.
    """
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn(f"{{task.completed:,.0f}} {unit}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
