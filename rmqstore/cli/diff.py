"""`diff`: the first byte at which two stores differ."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from rmqstore.check.compare import Comparison, Side, compare
from rmqstore.check.log_bytes import Holder
from rmqstore.cli.errors import ExitCode, command, opened
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json, print_rows, progress, time_text
from rmqstore.epochs import EpochEntry, epoch_at
from rmqstore.errors import NotFoundError

__all__ = ["diff"]


@command
def diff(
    a: Annotated[Path, typer.Argument(metavar="A", help="A store.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.")],
    common: Annotated[
        bool,
        typer.Option(
            "--common", help="Exit with 0 when the common range is equal, as for a replica."
        ),
    ] = False,
    json: JsonOption = False,
) -> ExitCode:
    """Show the first byte at which two stores differ; exit with 1 when they do.

    Compares the bytes of both commit logs over their common range, then the ends of the logs and of
    their queues. The record at the first different byte is shown from each side, with its epoch if
    there is one. Nothing is written, and brokers may run on both stores.
    """
    with ExitStack() as stack:
        stores = [stack.enter_context(opened(path)) for path in (a, b)]
        with progress("comparing") as report:
            found = compare(*stores, progress=report)
    if json:
        _print_as_json(found)
    else:
        _print(found)
    if common and found.common[0] == found.common[1]:
        raise NotFoundError(
            f"the two logs have no byte in common: A holds {found.a.start} to {found.a.end}, B "
            f"{found.b.start} to {found.b.end}; compare replicas of one log"
        )
    is_equal = not found.differences if common else found.is_equal
    return ExitCode.OK if is_equal else ExitCode.FAULT


# ---- text


def _print(found: Comparison) -> None:
    print_rows(
        ("side", "path", "start", "end", "state"),
        [
            (name, side.path, side.start, side.end, "closed" if side.was_closed else "in use")
            for name, side in (("A", found.a), ("B", found.b))
        ],
    )

    for each in found.differences:
        print(f"{'filler' if each.is_filler else 'difference'}: byte {each.offset}")
        for name, side, at in (("A", found.a, each.a), ("B", found.b, each.b)):
            print(f"  {name}: {_text_of(at)}{_epoch_text(side.epochs, each.offset)}")

    for name, side in (("A", found.a), ("B", found.b)):
        for start, stop in found.only_in(side):
            epochs = side.epochs_of(start, stop)
            answer = f", written in epoch {', '.join(map(str, epochs))}" if epochs else ""
            print(f"only in {name}: {start} to {stop}, {stop - start} bytes{answer}")
        if side.written_end > side.end:
            print(
                f"after the end of {name}: {side.written_end - side.end} bytes that are not a "
                f"whole record{_tail(found, name)}"
            )

    if found.epochs_part_at is not None:
        print(f"by their epochs: {_parting_text(found)}")
    if found.queues:
        print_rows(
            ("topic", "queue", "end in A", "end in B"),
            [(each.topic, each.queue, _or_none(each.a), _or_none(each.b)) for each in found.queues],
        )

    print(_verdict(found))


def _tail(found: Comparison, name: str) -> str:
    shorter, other = (found.a, found.b) if name == "A" else (found.b, found.a)
    if shorter.end >= other.end:
        return ""
    if found.tail_difference is not None:
        return f", different from byte {found.tail_difference} on"
    return "" if found.parting else ", as on the other side"


def _text_of(at: Holder) -> str:
    place = f"{at.start} to {at.end}"
    if at.kind == "record":
        name = f"{at.topic}/{at.queue}@{at.queue_offset}"
        return f"record {place}, {name}, stored {time_text(at.store_timestamp)}"
    if at.kind == "filler":
        return f"filler at the end of a file, {place}"
    return f"no whole record at {at.start}"


def _epoch_text(entries: Sequence[EpochEntry], offset: int) -> str:
    entry = epoch_at(entries, offset)
    return "" if entry is None else f", epoch {entry.epoch} from {entry.start_offset}"


def _parting_text(found: Comparison) -> str:
    at = found.epochs_part_at
    if at == -1:
        return "the two logs have nothing in common"
    if found.parting and found.parting.offset < (at or 0):
        return f"the two logs are the same up to {at}, but the bytes differ: do not join them"
    return f"the two logs are the same up to {at}"


def _verdict(found: Comparison) -> str:
    start, stop = found.common
    if found.is_equal:
        return f"equal: {stop - start} bytes from {start} to {stop}"
    if found.parting:
        return f"different from byte {found.parting.offset} on, of {start} to {stop} that both hold"
    if start == stop:
        return "different: the two logs have no byte in common"
    if found.differences:
        return f"different, but no message from {start} to {stop}: only fillers of files"
    if not found.is_same_range:
        return f"different: equal from {start} to {stop}, but the ranges differ"
    return f"different: the logs are equal from {start} to {stop}, but the ends of queues differ"


def _or_none(end: int | None) -> object:
    return "none" if end is None else end


# ---- JSON


def _print_as_json(found: Comparison) -> None:
    for name, side in (("a", found.a), ("b", found.b)):
        print_json(
            {
                "type": "store",
                "side": name,
                "path": side.path,
                "startOffset": side.start,
                "endOffset": side.end,
                "writtenEnd": side.written_end,
                "wasClosed": side.was_closed,
                "epochs": [[each.epoch, each.start_offset] for each in side.epochs],
            }
        )

    for each in found.differences:
        print_json(
            {
                "type": "difference",
                "kind": "filler" if each.is_filler else "records",
                "offset": each.offset,
                "a": _as_json(each.a, found.a, each.offset),
                "b": _as_json(each.b, found.b, each.offset),
            }
        )
    for name, side in (("a", found.a), ("b", found.b)):
        for start, stop in found.only_in(side):
            epochs = side.epochs_of(start, stop)
            print_json(
                {"type": "only", "side": name, "startOffset": start, "endOffset": stop}
                | {"epochs": epochs}
            )

    for queue in found.queues:
        print_json(
            {"type": "queue", "topic": queue.topic, "queueId": queue.queue}
            | {"endA": queue.a, "endB": queue.b}
        )

    start, stop = found.common
    print_json(
        {
            "type": "summary",
            "equal": found.is_equal,
            "sameRange": found.is_same_range,
            "commonStart": start,
            "commonEnd": stop,
            "firstDifference": found.differences[0].offset if found.differences else None,
            "tailDifference": found.tail_difference,
            "firstDifferentRecord": found.parting.offset if found.parting else None,
            "epochsPartAt": found.epochs_part_at,
            "queues": len(found.queues),
        }
    )


def _as_json(at: Holder, side: Side, offset: int) -> dict[str, Any]:
    entry = epoch_at(side.epochs, offset)
    answer: dict[str, Any] = {
        "kind": at.kind,
        "startOffset": at.start,
        "endOffset": at.end,
        "epoch": entry.epoch if entry else None,
    }
    if at.kind == "record":
        answer |= {
            "topic": at.topic,
            "queueId": at.queue,
            "queueOffset": at.queue_offset,
            "storeTimestamp": at.store_timestamp,
        }
    return answer
