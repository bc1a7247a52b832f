"""The named workloads: one name, one meaning, for every peer.

A message goes to topic `bench0`, queue number (index modulo 4), with the tag `TagA` and no key,
as the Java store's own benchmark writes it; a record is the body and 107 bytes. Bodies are slices
of random bytes, so that nothing compresses and an exchange of two messages is noticed.
"""

from __future__ import annotations

import functools
import random
from dataclasses import dataclass
from enum import StrEnum

__all__ = [
    "BODIES",
    "BY_NAME",
    "HUNDRED_FILES",
    "LATENCIES",
    "PACED_WARM_UP",
    "PULL",
    "QUEUES",
    "ROLL_FILE_SIZE",
    "STORES",
    "TAG",
    "TOPIC",
    "WORKLOADS",
    "Kind",
    "PreparedStore",
    "Workload",
    "bodies",
    "body_at",
]

TOPIC = "bench0"
TAG = "TagA"
QUEUES = 4
BODIES = 1000
"""Different bodies, used in a circle; a multiple of every batch and of QUEUES."""

PULL = 32
"""Messages a get asks for, where reading is by calls."""

LATENCIES = 4
"""Calls are timed one by one in a second pass over a fraction of the messages: one in so many."""

PACED_RATE = 150_000
"""Puts a second of the workloads at a fixed rate."""
PACED_WARM_UP = 2
"""They warm up with one message in so many, at the same rate."""
_HELD = 0.99

ROLL_FILE_SIZE = 64 << 20
HUNDRED_FILES = "100-files"


class Kind(StrEnum):
    """What a workload does."""

    PUT = "put"
    """Acknowledged when it is in the log; then waits until queues are complete too."""
    PACED = "paced"
    """Puts at a fixed rate; each counts from the moment at which it was due."""
    DURABLE = "durable"
    """Acknowledged when it is on the disk."""
    HANDLES = "handles"
    """The same: one thread puts several messages, then waits for all of them."""
    GET = "get"
    """Every body in order as a Python object, checksums checked."""
    ARROW = "arrow"
    """Columns of every record."""
    RECOVER = "recover"
    """Opening after a crash that left no checkpoint: the whole log is walked."""
    ROLL_OVER = "roll-over"
    """Puts over many small log files; how long the put that opens the next file takes."""
    MEMORY = "memory"
    """What an open store adds to the private memory of its process."""
    IMPORT = "import"
    """What importing the package adds to the start of an interpreter."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One measurement, the same for every peer that can do it."""

    name: str
    kind: Kind
    messages: int = 0
    """In all threads together, by the pass that counts."""
    quick: int = 0
    """The same where only a trial is wanted."""
    body: int = 1024
    threads: int = 1
    batch: int = 1
    """Messages a call, or a wait."""
    rate: int = 0
    """Calls a second, 0 for as many as there can be."""
    store: str | None = None
    """The prepared store it reads."""

    def holds(self, reached: float) -> bool:
        """Return whether a run with so many calls a second kept to the rate."""
        return reached >= self.rate * _HELD

    def count(self, *, quick: bool) -> int:
        """Return how many messages to use."""
        return self.quick if quick else self.messages


@dataclass(frozen=True, slots=True)
class PreparedStore:
    """A store written once, before anything is measured."""

    messages: int
    quick: int
    log_file_size: int = 1 << 30


STORES = {
    # As many records of 1 KiB as one log file of 1 GiB takes.
    "1k-1g": PreparedStore(949_000, 60_000),
    "1k-4g": PreparedStore(4 * 949_000, 240_000),
    # 100 files of 4 MiB, less what is left at their ends.
    HUNDRED_FILES: PreparedStore(369_000, 369_000, 4 << 20),
}

WORKLOADS = (
    Workload("put-100", Kind.PUT, 1_000_000, 100_000, body=100),
    Workload("put-1k", Kind.PUT, 500_000, 60_000),
    Workload("put-4k", Kind.PUT, 150_000, 20_000, body=4096),
    Workload("put-100-at-150k", Kind.PACED, 600_000, 60_000, body=100, rate=PACED_RATE),
    Workload("put-1k-at-150k", Kind.PACED, 600_000, 60_000, rate=PACED_RATE),
    Workload("put-threads-2", Kind.PUT, 400_000, 40_000, threads=2),
    Workload("put-threads-4", Kind.PUT, 400_000, 40_000, threads=4),
    Workload("put-threads-8", Kind.PUT, 400_000, 40_000, threads=8),
    Workload("put-many-100x100", Kind.PUT, 2_000_000, 200_000, body=100, batch=100),
    Workload("put-many-100x1k", Kind.PUT, 600_000, 60_000, batch=100),
    Workload("put-durable-1", Kind.DURABLE, 4_000, 400),
    Workload("put-durable-8", Kind.DURABLE, 16_000, 1_600, threads=8),
    Workload("put-durable-32", Kind.DURABLE, 40_000, 4_000, threads=32),
    Workload("put-durable-32-handles", Kind.HANDLES, 80_000, 8_000, batch=32),
    Workload("put-durable-64", Kind.DURABLE, 60_000, 6_000, threads=64),
    Workload("get-decoded-1k", Kind.GET, 200_000, 20_000, store="1k-1g"),
    Workload("arrow-no-bodies", Kind.ARROW, store="1k-1g"),
    Workload("arrow-every-field", Kind.ARROW, store="1k-1g"),
    Workload("arrow-bodies", Kind.ARROW, store="1k-1g"),
    Workload("recover-1g-crash", Kind.RECOVER, store="1k-1g"),
    Workload("recover-4g-crash", Kind.RECOVER, store="1k-4g"),
    Workload("roll-over", Kind.ROLL_OVER, 800_000, 200_000),
    Workload("memory-100-files", Kind.MEMORY, store=HUNDRED_FILES),
    Workload("import-time", Kind.IMPORT, 15, 5),
)
BY_NAME = {workload.name: workload for workload in WORKLOADS}


@functools.cache
def bodies(size: int) -> tuple[bytes, ...]:
    """Return the bodies of that size."""
    noise = random.Random(size).randbytes(61 * BODIES + size)
    return tuple(noise[61 * number : 61 * number + size] for number in range(BODIES))


def body_at(size: int, *, queue: int, offset: int) -> bytes:
    """Return the body of the message at that place of a store written in turn by one thread."""
    return bodies(size)[(offset * QUEUES + queue) % BODIES]
