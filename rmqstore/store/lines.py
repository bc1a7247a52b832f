"""Lines of files as messages: a line is a body, or a JSON object whose fields say more."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rmqstore import arguments
from rmqstore.errors import ArgumentError
from rmqstore.message import Message

__all__ = ["LineShape", "batches_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LineShape:
    """Which fields of a JSON object make up its message."""

    topic: str | None
    queue: int
    queue_count: int
    tag: str | None
    topic_field: str | None = None
    body_field: str | None = None
    key_fields: tuple[str, ...] = ()
    tag_field: str | None = None
    queue_field: str | None = None
    time_field: str | None = None

    @property
    def needs_objects(self) -> bool:
        """Whether a field is named, so that the lines must be JSON objects."""
        fields = (self.topic_field, self.body_field, self.tag_field, self.queue_field)
        return any(fields) or bool(self.key_fields) or self.time_field is not None

    def from_line(self, line: bytes, number: int) -> Message:
        """Return the message of a plain line: the line is its body."""
        if self.topic is None:
            raise ArgumentError("topic is None; a plain line names no topic, give one (--topic)")
        return Message(
            self.topic, line, queue=self.queue + number % self.queue_count, tags=self.tag
        )

    def from_object(self, line: bytes, number: int) -> Message:
        """Return the message of a JSON object. Raises ArgumentError that names the field."""
        try:
            value = json.loads(line)
        except ValueError as error:
            raise ArgumentError(
                f"the line is not JSON ({error}); give a JSON object a line, or --format lines"
            ) from None

        if not isinstance(value, dict):
            raise ArgumentError(
                f"the line is {arguments.shown(value)}; give a JSON object, or --format lines"
            )

        topic = _text(value, self.topic_field) or self.topic
        if not topic:
            raise ArgumentError(
                f"the line has no field {self.topic_field!r}; name the topic with --topic"
            )

        keys = tuple(text for name in self.key_fields if (text := _text(value, name)))
        time_text = _text(value, self.time_field)
        born = None
        if time_text is not None:
            born = arguments.time_ms(f"field {self.time_field!r}", time_text)

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
        return json.dumps(found, ensure_ascii=False).encode()

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


def batches_of(
    lines: Iterable[bytes], make: Callable[[bytes, int], Message], *, count: int
) -> Iterator[list[Message]]:
    """Yield the messages that *make* makes of *lines*, *count* at a time; empty lines are left out.

    *make* is called with a line and its number from 0. Raises its ArgumentError, with the number of
    the line from 1, after the messages before that line were yielded.
    """
    messages: list[Message] = []
    for number, line in enumerate(lines):
        line = line.rstrip(b"\r\n")
        if not line:
            continue
        try:
            messages.append(make(line, number))
        except ArgumentError as error:
            if messages:
                yield messages
            raise ArgumentError(f"line {number + 1}: {error}") from None
        if len(messages) == count:
            yield messages
            messages = []
    if messages:
        yield messages
