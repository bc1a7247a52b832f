"""A process that puts until it is killed; run as `python writer.py DIRECTORY SEED FIRST_NUMBER`.

Prints `opening`, `open`, then a line for each message after its put returned: topic, queue, queue
offset, physical offset, number. The number alone tells what the message is.
"""

from __future__ import annotations

import random
import sys

import rmqstore
from rmqstore import Durability, Message
from tests.crash.agreement import FILES

TOPICS = ("orders", "payments", "t" * 140)
QUEUES = 3


def message(number: int) -> Message:
    """Return message *number*."""
    rng = random.Random(number)
    body = f"{number}:".encode() + rng.randbytes(rng.choice((0, 10, 200, 200, 1500, 9000)))
    topic = rng.choice(TOPICS)
    keys = (f"k{number}", f"shared{number // 100}")[: rng.randint(0, 2)]
    tags = rng.choice((None, "A", "B"))
    return Message(topic, body, queue=rng.randrange(QUEUES), keys=keys, tags=tags)


def main(directory: str, seed: int, number: int) -> None:
    rng = random.Random(seed)
    print("opening", flush=True)
    store = rmqstore.open(directory, **FILES)
    print("open", flush=True)
    while True:
        durability = rng.choice((Durability.MEMORY,) * 8 + (Durability.DISK,))
        count = rng.choice((1, 1, 1, 2, 40))
        messages = [message(number + i) for i in range(count)]
        if count == 1:
            receipts = [store.put(messages[0], durability=durability)]
        else:
            receipts = store.put_many(messages, durability=durability)
        lines = [
            f"{each.topic} {each.queue} {each.queue_offset} {each.physical_offset} {number + i}\n"
            for i, each in enumerate(receipts)
        ]
        print("".join(lines), end="", flush=True)
        number += count


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
