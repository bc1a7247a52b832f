"""The process that `rmqstore demo` kills: it stores numbered messages and reports the acknowledged
ones.

    python -m rmqstore.cli.demo.writer_process PATH TOPIC [MESSAGES_A_SECOND]

Without a rate it writes as fast as it can, until it is killed. With a rate it closes the store and
ends at the end of its standard input.
"""

from __future__ import annotations

import os
import select
import sys

import rmqstore
from rmqstore import Durability, Message

__all__ = ["MESSAGE", "REPEATED", "body_of"]

MESSAGE, REPEATED = "message %09d ", 8
"""A body is this text with its number, repeated."""

_BATCH = 64


def body_of(number: int) -> bytes:
    """Return the body of message *number*."""
    return (MESSAGE % number).encode() * REPEATED


def _write(path: str, topic: str, *, rate: int | None = None) -> None:
    with rmqstore.open(path) as store:
        first = len(store.queue(topic))
        while rate is None or not select.select([sys.stdin], [], [], _BATCH / rate)[0]:
            numbers = range(first, first + _BATCH)
            store.put_many(
                (Message(topic, body_of(number), keys=(f"n{number}",)) for number in numbers),
                durability=Durability.DISK,
            )
            first += _BATCH
            # One write: all messages below the number were acknowledged.
            os.write(sys.stdout.fileno(), b"%d\n" % first)


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2], rate=int(sys.argv[3]) if len(sys.argv) > 3 else None)
