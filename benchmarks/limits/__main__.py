"""Measures the parts a call from Python is made of, in CPU time; `floor.pyx` is compiled before."""

from __future__ import annotations

import gc
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

CALLS = 300_000
BATCH = 100


def measures(floor: Any) -> Iterator[tuple[str, int, Callable[[], None]]]:
    """Yield (what, calls it makes, what makes them)."""
    for size in (100, 1024, 4096):
        payload = bytes(size)
        batch = [payload] * BATCH

        def put(payload: bytes = payload) -> None:
            call = floor.put
            for _ in range(CALLS):
                call("topic", payload, queue=3, tags="TagA", keys=None)

        def put_many(batch: list[bytes] = batch) -> None:
            call = floor.put_many
            for _ in range(CALLS // BATCH):
                call(batch)

        def body(size: int = size) -> None:
            call = floor.body
            for _ in range(CALLS):
                call(size)

        yield f"put {size}", CALLS, put
        yield f"put_many {size}", CALLS, put_many
        yield f"body {size}", CALLS, body

    def loop() -> None:
        for _ in range(CALLS):
            pass

    def result() -> None:
        call = floor.result
        for _ in range(CALLS):
            call("topic")

    def results() -> None:
        call = floor.results
        for _ in range(CALLS // BATCH):
            call("topic", BATCH)

    def step() -> None:
        for _ in floor.Results(CALLS):
            pass

    def clock() -> None:
        read = time.perf_counter_ns
        for _ in range(CALLS):
            read()
            read()

    yield "loop", CALLS, loop
    yield "result", CALLS, result
    yield "results", CALLS, results
    yield "step", CALLS, step
    yield "two clock readings", CALLS, clock


def main(path: str, runs: int) -> None:
    """Print one line of JSON for each measure."""
    spec = importlib.util.spec_from_file_location("floor", path)
    assert spec is not None
    assert spec.loader is not None
    floor = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(floor)
    for variant, calls, work in measures(floor):
        took = []
        for _ in range(runs):
            gc.collect()
            began = time.thread_time()
            work()
            took.append(round((time.thread_time() - began) / calls * 1e9, 2))
        line = {"limit": "python", "variant": variant, "size": 0, "bytes_per_op": 0, "ns": took}
        print(json.dumps(line))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
