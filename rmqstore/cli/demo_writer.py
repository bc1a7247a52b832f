"""The process that `rmqstore demo` kills: it stores numbered messages and tells which ones were
acknowledged.

    python -m rmqstore.cli.demo_writer PATH TOPIC
"""

from __future__ import annotations

import os
import sys

import rmqstore
from rmqstore import Durability, Message

__all__ = ["body_of"]

_BATCH = 64


def body_of(number: int) -> bytes:
    """Return the body of message *number*."""
    return f"message {number:09} ".encode() * 8


def _write(path: str, topic: str) -> None:
    with rmqstore.open(path) as store:
        first = len(store.queue(topic))
        while True:
            numbers = range(first, first + _BATCH)
            store.put_many(
                (Message(topic, body_of(number), keys=(f"n{number}",)) for number in numbers),
                durability=Durability.DISK,
            )
            first += _BATCH
            # Written at once and whole: everything below the number was acknowledged.
            os.write(sys.stdout.fileno(), b"%d\n" % first)


if __name__ == "__main__":
    _write(sys.argv[1], sys.argv[2])
