"""A process with one node of a group of C-Raft, for tests that kill it.

    python -m tests.crash.raft_node DIRECTORY NODE MEMBERS FIRST [--join]

MEMBERS is a JSON object of node and port. While the node leads, it commits the numbers from FIRST
on, sixteen at a time, until a line `quiet` comes on stdin. It prints

    restore COUNT           a snapshot took the place of the state
    lead TERM [COMMANDS]    it leads, with these commands applied
    ack NUMBER              the command was committed
    state [COMMANDS]        the answer to a line `state`
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from collections.abc import Iterator

from rmqstore.controller.engines.engine import Leadership, Outcome
from rmqstore.controller.engines.raft import RaftEngine
from tests.support.engine_history import History

IN_FLIGHT = 16
POLL_S = 0.005


def say(*words: object) -> None:
    print(*words, flush=True)


class TellingHistory(History):
    """A history that prints when it is replaced."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        say("restore", len(self.commands))


async def work(engine: RaftEngine, numbers: Iterator[int], quiet: asyncio.Event) -> None:
    while not quiet.is_set():
        if not engine.leadership().is_leader:
            await asyncio.sleep(POLL_S)
            continue
        number = next(numbers)
        outcome, _ = await engine.propose(str(number).encode(), timeout=30)
        if outcome is Outcome.COMMITTED:
            say("ack", number)


async def main(directory: str, node: str, ports: dict[str, int], first: int, *, join: bool) -> None:
    history, quiet = TellingHistory(), asyncio.Event()
    engine = RaftEngine(
        directory,
        node_id=node,
        members={each: ("127.0.0.1", port) for each, port in ports.items()},
        bind_host="127.0.0.1",
        founds=not join,
        snapshot_entries=200,
        election_ms=400,
        heartbeat_ms=50,
    )

    def changed(leadership: Leadership) -> None:
        if leadership.is_leader:
            say("lead", leadership.term, json.dumps(history.commands))

    engine.watch(changed)
    await history.start(engine)
    numbers = itertools.count(first)
    workers = [asyncio.create_task(work(engine, numbers, quiet)) for _ in range(IN_FLIGHT)]
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    while line := await reader.readline():
        if line.strip() == b"quiet":
            quiet.set()
        else:
            say("state", json.dumps(history.commands))
    for each in workers:
        each.cancel()
    await engine.close()


if __name__ == "__main__":
    asyncio.run(
        main(
            sys.argv[1],
            sys.argv[2],
            json.loads(sys.argv[3]),
            int(sys.argv[4]),
            join="--join" in sys.argv,
        )
    )
