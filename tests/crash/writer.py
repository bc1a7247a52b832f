"""A process that writes until it is killed; run as `python writer.py DIRECTORY SEED FIRST_NUMBER`.

Several threads put, one at a time and many, in memory and to the disk, while the main thread cuts,
expires, flushes, closes and opens the store. Prints a line before each of these acts and after it,
and one for each message after its put returned:

    opening | open | closing | closed
    cutting PHYSICAL_OFFSET | cut PHYSICAL_OFFSET
    expiring FILES | expired FILES
    put TOPIC QUEUE QUEUE_OFFSET PHYSICAL_OFFSET NUMBER

The number alone tells what the message is. Lines stand in the order of what they tell of: nothing
is put between the two lines of a cut, or of closing.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import sys
import threading
from collections import deque
from collections.abc import Iterator

import rmqstore
from rmqstore import Durability, Message
from tests.support.agreement import FILES

TOPICS = ("orders", "payments", "t" * 140)
QUEUES = 3
THREADS = 3
NUMBERS = 10_000
"""How many numbers each thread has; none comes so far before it is killed."""
KEPT_FILES = 40


def message(number: int) -> Message:
    """Return message *number*."""
    rng = random.Random(number)
    body = f"{number}:".encode() + rng.randbytes(rng.choice((0, 10, 200, 200, 1500, 9000)))
    topic = rng.choice(TOPICS)
    keys = (f"k{number}", f"shared{number // 100}")[: rng.randint(0, 2)]
    tags = rng.choice((None, "A", "B"))
    return Message(topic, body, queue=rng.randrange(QUEUES), keys=keys, tags=tags)


class Writer:
    """One store, the threads that put to it, and the acts that must not meet a put."""

    def __init__(self, directory: str, seed: int, number: int) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.number = number
        self.locks = [threading.Lock() for _ in range(THREADS)]
        self.may_put = threading.Event()
        """A thread that puts again at once would have its lock before the main thread has woken."""

        self.printing = threading.Lock()
        self.latest: deque[int] = deque(maxlen=60)
        """Physical offsets of the messages acknowledged last."""

    def say(self, text: str) -> None:
        with self.printing:
            data = text.encode()
            while data:
                data = data[os.write(1, data) :]

    def open(self) -> None:
        self.say("opening\n")
        self.store = rmqstore.open(self.directory, **FILES)
        self.say("open\n")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keep every thread from putting."""
        self.may_put.clear()
        with contextlib.ExitStack() as stack:
            for lock in self.locks:
                stack.enter_context(lock)
            yield
        self.may_put.set()

    def put_all(self, thread: int) -> None:
        rng = random.Random(self.number + thread)
        number = self.number + thread * NUMBERS
        while self.may_put.wait():
            with self.locks[thread]:
                number += self.put(number, rng)

    def put(self, number: int, rng: random.Random) -> int:
        """Put one message or many from *number* on; return how many."""
        durability = rng.choice((Durability.MEMORY,) * 8 + (Durability.DISK,))
        count = rng.choice((1, 1, 1, 2, 40))
        messages = [message(number + i) for i in range(count)]

        if count == 1:
            receipts = [self.store.put(messages[0], durability=durability)]
        else:
            receipts = self.store.put_many(messages, durability=durability)

        self.say(
            "".join(
                f"put {each.topic} {each.queue} {each.queue_offset} {each.physical_offset} "
                f"{number + i}\n"
                for i, each in enumerate(receipts)
            )
        )

        self.latest.extend(each.physical_offset for each in receipts)
        return count

    # -- acts

    def cut(self) -> None:
        with self.alone():
            known = [at for at in self.latest if at >= self.store.start_offset]
            if not known:
                return
            at = self.rng.choice(known)
            self.say(f"cutting {at}\n")
            self.store.truncate_to(at)
            self.say(f"cut {at}\n")
            self.latest.clear()

    def expire(self) -> None:
        count = max(0, len(self.store._files()) - self.rng.randint(3, KEPT_FILES))
        if count:
            self.say(f"expiring {count}\n")
            self.store.expire_files(count)
            self.say(f"expired {count}\n")

    def flush(self) -> None:
        self.store.flush()

    def open_anew(self) -> None:
        with self.alone():
            self.say("closing\n")
            self.store.close()
            self.say("closed\n")
            self.open()

    def run(self) -> None:
        self.open()
        self.may_put.set()
        for thread in range(THREADS):
            threading.Thread(target=self.put_all, args=(thread,), daemon=True).start()
        reader = select.poll()
        reader.register(1, 0)
        # It ends when nobody reads what it prints. How long it looks for that is the pace of a
        # load and no synchronisation: acts meet puts at any moment.
        while not reader.poll(self.rng.uniform(0, 20)):
            self.rng.choice((self.cut, self.expire, self.flush, self.open_anew))()


if __name__ == "__main__":
    Writer(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])).run()
