"""A process that appends numbered messages to a store at a steady pace, and closes it.

python -m tests.spark.stream_writer PATH COUNT MESSAGES_A_SECOND
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from tests.spark.streaming import messages, open_store

PORTION = 50


def write(path: Path, count: int, rate: int) -> None:
    """Put messages 0 to *count*, a portion at a time."""
    with open_store(path, flush_commit_log_interval_ms=20) as store:
        began = time.monotonic()
        for first in range(0, count, PORTION):
            # The pace of the load.
            time.sleep(max(0.0, began + first / rate - time.monotonic()))
            store.put_many(messages(min(PORTION, count - first), first=first))


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
