"""A store of rmqstore as a side of a pair, measured by commands on the standard input.

    python -m benchmarks.replica_node ROLE classic|autoswitch DIR [MASTER_HOST:PORT]

ROLE is master, slave, or unflushed: a slave that syncs its log when it closes, and no earlier.

    put THREADS COUNT WARMUP SIZE   synchronous puts, each acknowledged by both sides
    tasks TASKS COUNT WARMUP SIZE   the same from tasks of one asyncio loop
    handles MANY COUNT WARMUP SIZE  the same from one thread, which waits for so many puts at once
    feed COUNT SIZE                 puts that wait for nobody
    paced COUNT RATE SIZE           puts into the log alone, so many a second, each call timed
    burst COUNT SIZE                the same without a pause, one call in four timed
    sync [COPIES]                   waits until so many sides have all; both by default
    arm                             looks out for the next byte of the log
    follow OFFSET                   waits until the log ends there; when it did, and that next byte
    leave, join                     closes the slave's role and takes it again; `began_ns` is when
    quit

Answers are lines of JSON. Times are time.monotonic_ns(), which on Linux is the clock that all
processes share. Else settings are the store's own but for quorum and port: flushing is
asynchronous.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.workloads import LATENCIES, QUEUES, TAG, TOPIC, bodies
from rmqstore import Durability, Message
from rmqstore.aio import AsyncStore
from rmqstore.replication import Master, Quorum, Slave

__all__: list[str] = []

FIRST_POLL_S, END_POLL_S = 0.0005, 0.002
PATIENCE_S = 120.0
BATCH = 500
UNFLUSHED = dict.fromkeys(
    ("flush_commit_log_interval_ms", "flush_commit_log_thorough_interval_ms"), 600_000
)
"""Later than any command ends."""
REPLICATED = Durability.REPLICATED
"""Looking a member of an Enum up takes some 0.1 µs of each put."""

Answer = Mapping[str, float]


class _Node:
    """The store in its role, and what was seen of its log's end."""

    def __init__(self, opened: AsyncStore, role: str, protocol: Any, master: str) -> None:
        self.opened = opened
        self.store = store = opened.store
        self.protocol = protocol
        self.master = master

        self.first_ns = 0
        self.began_ns = 0
        self.side: Master | Slave | None = None
        self.arm()

        if role == "master":
            self.began_ns = time.monotonic_ns()
            self.side = Master(
                store,
                listen=("127.0.0.1", 0),
                protocol=protocol,
                quorum=Quorum(total=2, in_sync=2),
            )
        else:
            self.join()

    @property
    def ready(self) -> Answer:
        address = self.side.address if isinstance(self.side, Master) else None
        return {"port": address[1] if address else 0, "end": self.store.end_offset}

    def arm(self) -> Answer:
        start, self.first_ns = self.store.end_offset, 0

        def watch() -> None:
            while self.store.end_offset <= start:
                time.sleep(FIRST_POLL_S)
            self.first_ns = time.monotonic_ns()

        threading.Thread(target=watch, name="watch", daemon=True).start()
        return {"end": start}

    def follow(self, offset: int) -> Answer:
        deadline = time.monotonic() + PATIENCE_S
        while self.store.end_offset < offset or not self.first_ns:
            if time.monotonic() > deadline:
                raise TimeoutError(f"the log ends at {self.store.end_offset}")
            time.sleep(END_POLL_S)
        end = time.monotonic_ns()
        return {"began_ns": self.began_ns, "first_ns": self.first_ns, "end_ns": end}

    def leave(self) -> Answer:
        assert self.side is not None
        self.side.close()
        self.side = None
        return {"end": self.store.end_offset}

    def join(self) -> Answer:
        self.began_ns = time.monotonic_ns()
        self.side = Slave(self.store, master=self.master, protocol=self.protocol)
        return {"began_ns": self.began_ns}

    def sync(self, copies: int = 2) -> Answer:
        assert isinstance(self.side, Master)
        self.side.wait_in_sync(copies, timeout=PATIENCE_S)
        return {"end": self.store.end_offset}

    # -- puts

    def feed(self, count: int, size: int) -> Answer:
        made = [
            Message(TOPIC, body, queue=number % QUEUES, tags=TAG)
            for number, body in enumerate(bodies(size))
        ]
        for first in range(0, count, BATCH):
            start = first % len(made)
            batch = made[start : start + min(BATCH, count - first)]
            self.store.put_many(batch, durability=Durability.MEMORY)
        return {"end": self.store.end_offset}

    def put(self, threads: int, count: int, warm_up: int, size: int) -> Answer:
        put, clock = self.store.put, time.perf_counter_ns
        kept = bodies(size)

        def work(number: int, took: array[int]) -> None:
            for at in range(len(took)):
                body = kept[at % len(kept)]
                began = clock()
                put(TOPIC, body, queue=(at + number) % QUEUES, tags=TAG, durability=REPLICATED)
                took[at] = clock() - began

        _in_threads(threads, max(1, warm_up // threads), work)
        began = clock()
        took = _in_threads(threads, max(1, count // threads), work)
        return self._figures(took, clock() - began)

    def tasks(self, tasks: int, count: int, warm_up: int, size: int) -> Answer:
        return asyncio.run(self._tasks(tasks, count, warm_up, size))

    async def _tasks(self, tasks: int, count: int, warm_up: int, size: int) -> Answer:
        put, clock, kept = self.opened.put, time.perf_counter_ns, bodies(size)

        async def work(number: int, took: array[int]) -> None:
            for at in range(len(took)):
                body = kept[at % len(kept)]
                began = clock()
                await put(
                    TOPIC,
                    body,
                    queue=(at + number) % QUEUES,
                    tags=TAG,
                    durability=REPLICATED,
                )
                took[at] = clock() - began

        async def all_tasks(calls: int) -> array[int]:
            each = [_times(calls) for _ in range(tasks)]
            await asyncio.gather(*(work(number, took) for number, took in enumerate(each)))
            return _joined(each)

        await all_tasks(max(1, warm_up // tasks))
        began = clock()
        took = await all_tasks(max(1, count // tasks))
        return self._figures(took, clock() - began)

    def handles(self, together: int, count: int, warm_up: int, size: int) -> Answer:
        put, wait, clock = self.store.put_async, self.store.wait, time.perf_counter_ns
        kept = bodies(size)

        def work(took: array[int]) -> None:
            for call in range(len(took)):
                began = clock()
                wait(
                    [
                        put(
                            TOPIC,
                            kept[(call + at) % len(kept)],
                            queue=at % QUEUES,
                            tags=TAG,
                            durability=REPLICATED,
                        )
                        for at in range(together)
                    ]
                )
                took[call] = clock() - began

        work(_times(max(1, warm_up // together)))
        took = _times(max(1, count // together))
        began = clock()
        work(took)
        spent = clock() - began
        done = len(took) * together
        return {
            **self._figures(took, spent),
            "messages": done,
            "msgs_per_s": done / spent * 1e9,
        }

    def paced(self, count: int, rate: int, size: int) -> Answer:
        put, clock, kept = self.store.put, time.perf_counter_ns, bodies(size)
        took = _times(count)
        began = clock()
        for at in range(count):
            late_ns = clock() - began - at * 1_000_000_000 // rate
            if late_ns < 0:
                time.sleep(-late_ns / 1e9)
            one = clock()
            put(TOPIC, kept[at % len(kept)], queue=at % QUEUES, tags=TAG)
            took[at] = clock() - one
        return self._figures(took, clock() - began)

    def burst(self, count: int, size: int) -> Answer:
        put, clock, kept = self.store.put, time.perf_counter_ns, bodies(size)
        took = _times(count // LATENCIES)
        began = clock()
        for at in range(count // LATENCIES):
            one = clock()
            put(TOPIC, kept[at % len(kept)], queue=at % QUEUES, tags=TAG)
            took[at] = clock() - one
            for more in range(1, LATENCIES):
                put(TOPIC, kept[(at + more) % len(kept)], queue=more % QUEUES, tags=TAG)
        spent = clock() - began
        return {**self._figures(took, spent), "msgs_per_s": count / spent * 1e9}

    def _figures(self, took: array[int], spent_ns: int) -> Answer:
        ordered = sorted(took)
        return {
            "messages": len(ordered),
            "msgs_per_s": len(ordered) / spent_ns * 1e9,
            "p50_us": ordered[len(ordered) // 2] / 1e3,
            "p99_us": ordered[len(ordered) * 99 // 100] / 1e3,
            "max_us": ordered[-1] / 1e3,
            "end": self.store.end_offset,
        }


def _times(count: int) -> array[int]:
    return array("q", bytes(8 * count))


def _joined(parts: list[array[int]]) -> array[int]:
    whole = array("q")
    for part in parts:
        whole.extend(part)
    return whole


def _in_threads(threads: int, calls: int, work: Callable[[int, array[int]], None]) -> array[int]:
    each = [_times(calls) for _ in range(threads)]
    failed: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number, each[number])
        except BaseException as error:
            failed.append(error)

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failed:
        raise failed[0]
    return _joined(each)


async def main(arguments: list[str]) -> None:
    """Take the role, then obey until the input ends."""
    role, protocol, root, *master = arguments
    async with AsyncStore(root, **(UNFLUSHED if role == "unflushed" else {})) as opened:
        # Commands block, and what serves the pair does not depend on this loop.
        await asyncio.to_thread(_obey, _Node(opened, role, protocol, *master or [""]))


def _obey(node: _Node) -> None:
    _say(node.ready)
    for line in sys.stdin:
        command, *numbers = line.split()
        if command == "quit":
            break
        try:
            _say(getattr(node, command)(*map(int, numbers)))
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}"})
    if node.side is not None:
        node.side.close()


def _say(answer: Mapping[str, float | str]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
