"""`import`: files of lines or of JSON objects as messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from rmqstore.cli.errors import ExitCode, command, fail, opened
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import print_json, progress
from rmqstore.errors import ArgumentError, PutError
from rmqstore.message import Durability, Message
from rmqstore.store import Store
from rmqstore.store.lines import LineShape, batches_of

__all__ = ["import_files"]


class Format(StrEnum):
    """The format of a line."""

    AUTO = "auto"
    LINES = "lines"
    NDJSON = "ndjson"


class Reached(StrEnum):
    """The state of a batch before the next batch is read."""

    MEMORY = "memory"
    DISK = "disk"


@command
def import_files(
    path: StorePath,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files; - is stdin.")],
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="auto: NDJSON with field options, or if the file name suggests it."
        ),
    ] = Format.AUTO,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic of messages without one.")
    ] = None,
    topic_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="JSON field with the topic.")
    ] = None,
    body_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="JSON field with the body. Default: the whole line."),
    ] = None,
    key_field: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="JSON field with a key; may be given several times."),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag of messages without one.")] = None,
    tag_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="JSON field with the tag.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", "-q", min=0, help="First queue id.")] = 0,
    queues: Annotated[
        int, typer.Option(min=1, help="Number of queues to spread over, by key or in turn.")
    ] = 1,
    queue_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="JSON field with the queue id, or text to spread by."),
    ] = None,
    time_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="JSON field with the born time: ISO 8601 or ms."),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, max=65536, help="Messages put at a time.")] = 512,
    durability: Annotated[
        Reached, typer.Option(help="disk: each batch is flushed before the next.")
    ] = Reached.MEMORY,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Put the lines of files into a store as messages; the store is created if it does not exist.

    A line is a message's body, or a JSON object (NDJSON) with further fields. Empty lines are
    skipped. A line that cannot be stored ends the import with an error that names the line;
    messages before it remain.
    """
    shape = LineShape(
        topic=topic,
        queue=queue,
        queue_count=queues,
        tag=tag,
        topic_field=topic_field,
        body_field=body_field,
        key_fields=tuple(key_field or ()),
        tag_field=tag_field,
        queue_field=queue_field,
        time_field=time_field,
    )

    if topic is None and topic_field is None:
        raise typer.BadParameter("the messages have no topic; give --topic or --topic-field")

    wanted = Durability.DISK if durability is Reached.DISK else Durability.MEMORY
    began = time.monotonic()
    done = size = 0
    with opened(path, config, read_only=False) as store:
        for name in files:
            with _lines_of(name) as lines:
                batches = batches_of(lines, _maker(shape, form, name), count=batch)
                for messages in _named(batches, name):
                    _put(store, messages, wanted, done)
                    done += len(messages)
                    size += sum(len(message.body) for message in messages)
        store.flush()

    seconds = max(time.monotonic() - began, 1e-9)
    answer = {
        "messages": done,
        "bytes": size,
        "seconds": round(seconds, 3),
        "msgs_per_s": round(done / seconds),
    }

    if json:
        print_json(answer)
    else:
        print(f"{done} messages, {size} bytes in {seconds:.1f} s: {round(done / seconds)} a second")
    return ExitCode.OK


def _maker(shape: LineShape, form: Format, name: str) -> Callable[[bytes, int], Message]:
    is_objects = form is Format.NDJSON or (
        form is Format.AUTO
        and (shape.needs_objects or Path(name).suffix in (".ndjson", ".jsonl", ".json"))
    )
    return shape.from_object if is_objects else shape.from_line


@contextmanager
def _lines_of(name: str) -> Iterator[Iterable[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        file = Path(name).open("rb")
    except OSError as error:
        raise fail(f"{name}: {error.strerror}", ExitCode.USAGE) from None
    with file, progress(f"importing {Path(name).name}") as report:
        yield _counted(file, Path(name).stat().st_size, report)


def _named(batches: Iterator[list[Message]], name: str) -> Iterator[list[Message]]:
    """Ends the command at a line of the file *name* that is not a message."""
    try:
        yield from batches
    except ArgumentError as error:
        text = f"{name}, {error}; the lines before it are imported"
        raise fail(text, ExitCode.FAILED) from None


def _counted(file: IO[bytes], total: int, report: Any) -> Iterator[bytes]:
    done = 0
    for number, line in enumerate(file):
        done += len(line)
        if number % 1024 == 0:
            report(done, total)
        yield line


def _put(store: Store, messages: list[Message], durability: Durability, done: int) -> None:
    try:
        store.put_many(messages, durability=durability)
    except PutError as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        text = f"after {done} messages: {error}{'; ' if notes else ''}{notes}"
        raise fail(text, ExitCode.FAILED) from None
