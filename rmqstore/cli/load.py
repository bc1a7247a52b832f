"""`import`: files of lines or of JSON objects as messages."""

from __future__ import annotations

import json as json_module
import sys
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO, Annotated, Any

import typer

from rmqstore.cli.errors import ExitCode, command, fail, opened
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import parse_time, print_json, progress
from rmqstore.errors import ArgumentError, PutError
from rmqstore.message import Durability, Message
from rmqstore.store import Store

__all__ = ["import_files"]


class Format(StrEnum):
    """What a line of a file is."""

    AUTO = "auto"
    LINES = "lines"
    NDJSON = "ndjson"


class Reached(StrEnum):
    """Where a batch has to be before the next is read."""

    MEMORY = "memory"
    DISK = "disk"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which fields of a JSON object make up its message."""

    topic: str | None
    queue: int
    queue_count: int
    tag: str | None
    topic_field: str | None = None
    body_field: str | None = None
    key_fields: tuple[str, ...] = field(default=())
    tag_field: str | None = None
    queue_field: str | None = None
    time_field: str | None = None

    @property
    def needs_objects(self) -> bool:
        """Whether plain lines could not say what is asked for."""
        fields = (self.topic_field, self.body_field, self.tag_field, self.queue_field)
        return any(fields) or bool(self.key_fields) or self.time_field is not None

    def from_line(self, line: bytes, number: int) -> Message:
        """Return the message of a plain line: the line is its body."""
        if self.topic is None:
            raise ArgumentError("lines name no topic; give --topic")
        return Message(
            self.topic, line, queue=self.queue + number % self.queue_count, tags=self.tag
        )

    def from_object(self, line: bytes, number: int) -> Message:
        """Return the message of a JSON object. Raises ArgumentError that names the field."""
        try:
            value = json_module.loads(line)
        except ValueError as error:
            raise ArgumentError(f"is no JSON: {error}") from None
        if not isinstance(value, dict):
            raise ArgumentError("is no JSON object")
        topic = _text(value, self.topic_field) or self.topic
        if not topic:
            raise ArgumentError(f"has no field {self.topic_field!r}; give --topic for such lines")
        keys = tuple(text for name in self.key_fields if (text := _text(value, name)))
        time_text = _text(value, self.time_field)
        try:
            born = parse_time(time_text)
        except typer.BadParameter as error:
            raise ArgumentError(f"field {self.time_field!r}: {error}") from None
        return Message(
            topic,
            self._body(value, line),
            queue=self._queue(value, keys, number),
            tags=_text(value, self.tag_field) or self.tag,
            keys=tuple(key.replace(" ", "_") for key in keys),
            born_timestamp=born,
        )

    def _body(self, value: Mapping[str, Any], line: bytes) -> bytes:
        if self.body_field is None:
            return line
        found = value.get(self.body_field)
        if isinstance(found, str):
            return found.encode("utf-8", "surrogatepass")
        return json_module.dumps(found, ensure_ascii=False).encode()

    def _queue(self, value: Mapping[str, Any], keys: tuple[str, ...], number: int) -> int:
        if self.queue_field is None:
            # Messages of one key stay in order.
            spread = zlib.crc32(keys[0].encode("utf-8", "surrogatepass")) if keys else number
            return self.queue + spread % self.queue_count
        found = value.get(self.queue_field)
        if isinstance(found, int) and not isinstance(found, bool):
            return found
        text = _text(value, self.queue_field) or ""
        if text.isdecimal():
            return int(text)
        return self.queue + zlib.crc32(text.encode("utf-8", "surrogatepass")) % self.queue_count


def _text(value: Mapping[str, Any], name: str | None) -> str | None:
    found = value.get(name) if name else None
    return None if found is None or found == "" else str(found)


@command
def import_files(
    path: StorePath,
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Files; - is stdin.")],
    form: Annotated[
        Format,
        typer.Option(
            "--format", help="auto: NDJSON when fields are asked for or the name says so."
        ),
    ] = Format.AUTO,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Topic of messages that name none.")
    ] = None,
    topic_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="JSON field with the topic.")
    ] = None,
    body_field: Annotated[
        str | None,
        typer.Option(metavar="FIELD", help="JSON field with the body; without, the whole line."),
    ] = None,
    key_field: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="JSON field with a key; may be given several times."),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Tag of messages that name none.")] = None,
    tag_field: Annotated[
        str | None, typer.Option(metavar="FIELD", help="JSON field with the tag.")
    ] = None,
    queue: Annotated[int, typer.Option("--queue", "-q", min=0, help="First queue id.")] = 0,
    queues: Annotated[
        int, typer.Option(min=1, help="Spread over so many queues, by key or in turn.")
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
    """Put the lines of files into a store as messages; the store is made when it is not there.

    A line is a message's body, or a JSON object (NDJSON) whose fields say more. Empty lines are
    left out. A line that cannot be stored ends the import and is named; what was put before it
    stays.
    """
    shape = Shape(
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
        raise typer.BadParameter("give --topic or --topic-field")
    wanted = Durability.DISK if durability is Reached.DISK else Durability.MEMORY
    began = time.monotonic()
    done = size = 0
    with opened(path, config, read_only=False) as store:
        for name in files:
            with _lines_of(name) as lines:
                for messages in _batches(lines, _maker(shape, form, name), batch, name):
                    _put(store, messages, wanted, done)
                    done += len(messages)
                    size += sum(len(message.body) for message in messages)
        store.flush()
    seconds = max(time.monotonic() - began, 1e-9)
    told = {
        "messages": done,
        "bytes": size,
        "seconds": round(seconds, 3),
        "msgs_per_s": round(done / seconds),
    }
    if json:
        print_json(told)
    else:
        print(f"{done} messages, {size} bytes in {seconds:.1f} s: {round(done / seconds)} a second")
    return ExitCode.OK


def _maker(shape: Shape, form: Format, name: str) -> Any:
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


def _counted(file: IO[bytes], total: int, report: Any) -> Iterator[bytes]:
    done = 0
    for number, line in enumerate(file):
        done += len(line)
        if number % 1024 == 0:
            report(done, total)
        yield line


def _batches(lines: Iterable[bytes], make: Any, count: int, name: str) -> Iterator[list[Message]]:
    messages: list[Message] = []
    for number, line in enumerate(lines, 1):
        line = line.rstrip(b"\r\n")
        if not line:
            continue
        try:
            messages.append(make(line, number - 1))
        except ArgumentError as error:
            if messages:
                yield messages
            text = f"{name}, line {number}: {error}; the lines before it are imported"
            raise fail(text, ExitCode.FAILED) from None
        if len(messages) == count:
            yield messages
            messages = []
    if messages:
        yield messages


def _put(store: Store, messages: list[Message], durability: Durability, done: int) -> None:
    try:
        store.put_many(messages, durability=durability)
    except PutError as error:
        notes = "; ".join(getattr(error, "__notes__", ()))
        text = f"after {done} messages: {error}{'; ' if notes else ''}{notes}"
        raise fail(text, ExitCode.FAILED) from None
