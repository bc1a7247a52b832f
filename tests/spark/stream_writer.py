"""A process that appends numbered messages to a store at a steady pace, and closes it: when all are
there, or its standard input ends.

python -m tests.spark.stream_writer PATH COUNT MESSAGES_A_SECOND
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path

from tests.spark.streaming import messages, open_store

PORTION = 50


def write(path: Path, count: int, rate: int) -> None:
    """Put messages 0 to *count*, a portion at a time, while standard input is open."""
    with open_store(path, flush_commit_log_interval_ms=20) as store:
        began = time.monotonic()
        for first in range(0, count, PORTION):
            # How long it looks for the end is the pace of a load, and no synchronisation.
            pause = max(0.0, began + first / rate - time.monotonic())
            if select.select([sys.stdin], [], [], pause)[0]:
                return
            store.put_many(messages(min(PORTION, count - first), first=first))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
