"""A process that puts messages of 1 KiB at a steady rate into one queue.

    python -m benchmarks.spark_feeder PATH MESSAGES_A_SECOND SECONDS

Prints one line of JSON at its end: how many messages, in how many seconds, and by how many
milliseconds its worst batch was late.
"""

from __future__ import annotations

import json
import sys
import time

import rmqstore
from benchmarks.spark_data import BODY
from benchmarks.workloads import TAG, TOPIC
from rmqstore import Message

__all__ = ["TICK_S"]

TICK_S = 0.01


def _feed(path: str, rate: int, seconds: float) -> dict[str, float]:
    batch = [
        Message(TOPIC, b"%012d" % number * (BODY // 12), queue=0, tags=TAG)
        for number in range(round(rate * TICK_S))
    ]

    late = 0.0
    with rmqstore.open(path) as store:
        began = time.monotonic()
        ticks = round(seconds / TICK_S)
        for tick in range(ticks):
            due = began + tick * TICK_S
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            else:
                late = max(late, now - due)
            store.put_many(batch)
        took = time.monotonic() - began

    return {"messages": len(batch) * ticks, "seconds": took, "late_ms": late * 1000}


if __name__ == "__main__":
    print(json.dumps(_feed(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
