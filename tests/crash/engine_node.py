"""A process with one node of an engine, for tests that kill it and cut it off.

    python -m tests.crash.engine_node SETTINGS

SETTINGS is JSON: `engine`, `node`, `run` and what `make_engine` needs. Lines on stdout:

    held COMMAND...      what its state has after the start
    leads | follows      a change of its leadership
    ack COMMAND          a command that was committed
    refused              a command that was not, for want of room
    restored COUNT       a snapshot of so many commands took the place of its state
    failed               its part has ended
    history COMMAND...   the answer to `history` on stdin

While it leads, sixteen proposals are on the way, unless `stop` came last on stdin, and not `go`. It
ends with its stdin.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
from typing import Any

from rmqstore.controller.engines.engine import Engine, Leadership, Outcome
from rmqstore.controller.engines.etcd import EtcdEngine
from rmqstore.controller.engines.own_file import OwnFileEngine
from rmqstore.controller.engines.raft import RaftEngine
from rmqstore.errors import DiskError
from tests.support.engine_history import History

IN_FLIGHT = 16
SNAPSHOT_ENTRIES = 200
PAUSE_S = 0.005
"""The pace of each proposer; nothing is waited for."""


def make_engine(settings: dict[str, Any]) -> Engine:
    """Return the engine that *settings* describe."""
    node = settings["node"]
    if settings["engine"] == "etcd":
        return EtcdEngine(
            settings["endpoints"],
            node_id=node,
            lease_seconds=settings["lease_seconds"],
            snapshot_entries=SNAPSHOT_ENTRIES,
        )
    if settings["engine"] == "raft":
        return RaftEngine(
            settings["directory"],
            node_id=node,
            members={each: ("127.0.0.1", port) for each, port in settings["ports"].items()},
            bind_host="127.0.0.1",
            founds=settings["founds"],
            snapshot_entries=SNAPSHOT_ENTRIES,
            election_ms=500,
            heartbeat_ms=50,
        )
    return OwnFileEngine(settings["directory"], node_id=node, snapshot_entries=SNAPSHOT_ENTRIES)


class ToldHistory(History):
    """A history that prints when it is replaced."""

    def restore(self, data: bytes) -> None:
        super().restore(data)
        say("restored", str(len(self.commands)))


class Node:
    """Proposes while it leads, and answers."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._engine = make_engine(settings)
        self._history = ToldHistory()
        self._numbers = (f"{settings['node']}.{settings['run']}.{n}" for n in itertools.count())
        self._leads = asyncio.Event()
        self._goes = asyncio.Event()
        self._goes.set()

    async def run(self) -> None:
        self._engine.watch(self._tell)
        await self._history.start(self._engine)
        say("held", *self._history.commands)
        work = [asyncio.create_task(self._propose()) for _ in range(IN_FLIGHT)]
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        while request := (await reader.readline()).decode().strip():
            if request == "history":
                say("history", *self._history.commands)
            elif request == "stop":
                self._goes.clear()
            elif request == "go":
                self._goes.set()
        for each in work:
            each.cancel()
        await self._engine.close()

    def _tell(self, leadership: Leadership) -> None:
        if self._engine.failure is not None:
            say("failed")
        if leadership.is_leader == self._leads.is_set():
            return
        if leadership.is_leader:
            self._leads.set()
        else:
            self._leads.clear()
        say("leads" if leadership.is_leader else "follows")

    async def _propose(self) -> None:
        while True:
            await self._leads.wait()
            await self._goes.wait()
            command = next(self._numbers)
            try:
                outcome, _ = await self._engine.propose(command.encode(), timeout=5)
            except DiskError:
                outcome = Outcome.NOT_LEADER
                say("refused")
            if outcome is Outcome.COMMITTED:
                say("ack", command)
            await asyncio.sleep(PAUSE_S)


def say(*words: str) -> None:
    """Print one line."""
    print(*words, flush=True)


if __name__ == "__main__":
    asyncio.run(Node(json.loads(sys.argv[1])).run())
