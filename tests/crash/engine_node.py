"""A process with one node of an engine, for tests that kill it.

    python -m tests.crash.engine_node ENGINE DIRECTORY FIRST

It prints `start N` and the N commands that its state has, one a line; then `ack NUMBER` for each
number from FIRST on that was committed, with sixteen proposals on the way at any time.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from rmqstore.controller.engines.engine import Engine, Outcome
from rmqstore.controller.engines.own_file import OwnFileEngine
from tests.support.engine_history import History

IN_FLIGHT = 16


def make_engine(name: str, directory: str) -> Engine:
    """Return the engine called *name*."""
    assert name == "own file", name
    return OwnFileEngine(directory, snapshot_entries=200)


async def main(name: str, directory: str, first: int) -> None:
    history, engine = History(), make_engine(name, directory)
    await history.start(engine)
    print(f"start {len(history.commands)}", *history.commands, sep="\n", flush=True)
    numbers = itertools.count(first)

    async def work() -> None:
        for number in numbers:
            outcome, _ = await engine.propose(str(number).encode(), timeout=30)
            if outcome is not Outcome.COMMITTED:
                return
            print("ack", number, flush=True)

    await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
