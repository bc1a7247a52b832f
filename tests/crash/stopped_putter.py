"""Puts under a lease in a process that `stopped_process.c` stops: one put for each step of it.

    python -m tests.crash.stopped_putter DIRECTORY CONTROL VERB DURABILITY

One line of JSON for each put: whether it was stopped, the outcome, whether it was stored. The last
put is the first that was not stopped.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import mmap
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore import Durability, Message, aio
from rmqstore._native.core import place_records
from tests.support.agreement import FILES
from tests.support.boards import Follower, board_of

LEASE_MS = 20_000
STOP_MS = 30_000
STEPS_MAX = 60


def verbs(wanted: Durability) -> dict[str, Callable[[aio.AsyncStore, bytes], Any]]:
    return {
        "put": lambda store, _: store.store.put("t", b"x", durability=wanted),
        "put_large": lambda store, _: store.store.put("t", bytes(3000), durability=wanted),
        "put_many": lambda store, _: store.store.put_many([b"x"], topic="t", durability=wanted),
        "put_batch": lambda store, _: store.store.put_batch(
            [Message("t", b"x")], durability=wanted
        ),
        "place_records": lambda store, record: place_records(store.store, record),
        "aio.put": lambda store, _: store.put("t", b"x", durability=wanted),
        "aio.put_many": lambda store, _: store.put_many([b"x"], topic="t", durability=wanted),
    }


async def main(directory: str, control: str, verb: str, durability: str) -> None:
    act = verbs(Durability[durability])[verb]
    rule: dict[str, Any] = {"copies": 2, "confirm_copies": 2}
    with Path(control).open("r+b") as file, mmap.mmap(file.fileno(), 16) as mapping:
        with memoryview(mapping) as view, view.cast("q") as steps:
            async with aio.open(directory, **FILES) as store:
                record = store.store.record_at(store.store.put("t", b"x").physical_offset).raw
                board, slots = board_of(store.store)
                with Follower(store.store, board, slots[0]):
                    for step in range(1, STEPS_MAX):
                        end_ms = time.monotonic_ns() // 10**6 + LEASE_MS
                        board.freeze()
                        board.thaw(counted=slots, lease_end_ms=end_ms, **rule)
                        before = store.store.end_offset
                        steps[1], steps[0] = STOP_MS, step
                        try:
                            found = act(store, record)
                            if inspect.isawaitable(found):
                                await found
                            outcome: Any = "acknowledged"
                        except rmqstore.PutError as error:
                            outcome = [type(error).__name__, error.stored, str(error.status)]
                        was_stopped, steps[0] = steps[0] == 0, 0
                        is_stored = store.store.end_offset > before
                        print(json.dumps([was_stopped, outcome, is_stored]), flush=True)
                        if not was_stopped:
                            break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
