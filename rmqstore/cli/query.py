"""`get`, `tail` and `grep`: single messages."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from rmqstore._native.core import Record
from rmqstore.cli.errors import ExitCode, command, opened
from rmqstore.cli.options import ConfigOption, JsonOption, StorePath
from rmqstore.cli.output import parse_time, plain_body, print_record, progress
from rmqstore.errors import NotFoundError, OffsetOutOfRange
from rmqstore.store import Queue, Store
from rmqstore.store.search import search

__all__ = ["get", "grep", "tail"]

_POLL_SECONDS = 0.2

QueueOption = Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Queue id.")]


@command
def get(
    path: StorePath,
    topic: Annotated[str | None, typer.Argument(help="Topic, with an OFFSET.")] = None,
    offset: Annotated[int | None, typer.Argument(help="Queue offset.", min=0)] = None,
    queue: Annotated[int, typer.Option("--queue", "-q", min=0, help="Queue id.")] = 0,
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, help="Number of messages from OFFSET on.")
    ] = 1,
    message_id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="By offset message id.")
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="BYTES", help="By physical offset.", min=0)
    ] = None,
    body: Annotated[
        bool, typer.Option("--body", help="Print only the bodies, as decompressed bytes.")
    ] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Print messages by queue offset, message id or physical offset.

    Exits with 1 when there is no such message.
    """
    if (topic is None) != (offset is None) or (topic, message_id, at).count(None) != 2:
        raise typer.BadParameter("give TOPIC and OFFSET, or --id, or --at")
    with opened(path, config) as store:
        records: Iterator[Record]
        if message_id is not None:
            records = iter((store.get_by_id(message_id),))
        elif at is not None:
            records = iter((store.record_at(at),))
        else:
            assert topic is not None
            assert offset is not None
            try:
                records = iter((store.get(topic, queue=queue, offset=offset),))
            except NotFoundError:
                text = f"{path} has no queue {topic}/{queue}; see rmqstore ls {path}"
                raise NotFoundError(text) from None
            if count > 1:
                records = store.queue(topic, queue).records(offset, offset + count)
        for record in records:
            if body:
                sys.stdout.flush()
                sys.stdout.buffer.write(plain_body(record))
            else:
                print_record(record, as_json=json)
    return ExitCode.OK


@command
def tail(
    path: StorePath,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    queue: QueueOption = None,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="Number of last messages of each queue.")
    ] = 10,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new messages, until interrupted.")
    ] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Print the last messages of a topic, and with -f the following ones."""
    with opened(path, config) as store:
        seen: dict[int, int] = {}
        for each in _queues_of(store, topic, queue):
            start, end = each.start, each.end
            seen[each.number] = _print_from(each, max(start, end - count), json)
        if not seen and not follow:
            raise NotFoundError(f"{path} has no queue of {topic}; see rmqstore ls {path}")
        while follow:
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            store.refresh()
            for each in _queues_of(store, topic, queue):
                seen[each.number] = _print_from(each, seen.get(each.number, each.start), json)
    return ExitCode.OK


def _queues_of(store: Store, topic: str, number: int | None) -> list[Queue]:
    return [queue for queue in store.queues(topic) if number in (None, queue.number)]


def _print_from(queue: Queue, start: int, json: bool) -> int:
    """Prints the messages from an offset on and returns the next offset."""
    try:
        for record in queue.records(start):
            print_record(record, as_json=json)
            start = record.queue_offset + 1
    except OffsetOutOfRange as error:
        return error.nearest or start
    return max(start, queue.end)


@command
def grep(
    path: StorePath,
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Messages of this topic.")
    ] = None,
    queue: QueueOption = None,
    key: Annotated[
        str | None, typer.Option("--key", "-k", help="Messages with this key or unique key.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", "-g", help="Messages with this tag.")] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored at or after this time.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="TIME", help="Stored before this time.")
    ] = None,
    max_count: Annotated[
        int | None, typer.Option("--max", "-m", min=1, help="Largest number of messages.")
    ] = None,
    count: Annotated[bool, typer.Option("--count", "-c", help="Print only their number.")] = False,
    json: JsonOption = False,
    config: ConfigOption = None,
) -> ExitCode:
    """Print the messages that match all options: key, tag, time, topic, queue.

    A key with a topic is looked up in the index, a topic is read through its queues, and any other
    search reads the whole log. Times are milliseconds, or ISO 8601, local unless they name a zone.
    Exits with 1 when no message matches.
    """
    begin_ms, end_ms = parse_time(since), parse_time(until)
    with opened(path, config) as store:
        found = 0
        with progress("searching") as report:
            fitting = search(
                store,
                topic=topic,
                queue=queue,
                key=key,
                tag=tag,
                begin_ms=begin_ms,
                end_ms=end_ms,
                progress=report,
            )
            for record in islice(fitting, max_count):
                found += 1
                if not count:
                    print_record(record, as_json=json)

    if count:
        print(found)
    return ExitCode.OK if found else ExitCode.FAULT
