"""Groups of processes with one engine each, and what a test does to them.

A group checks itself: `settle` returns when every node has the same history, which contains every
acknowledged command, no command twice, and begins with the history of the last time.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from typing import Any, Self

from tests.support.etcd_cluster import EtcdCluster
from tests.support.ports import reserved
from tests.support.relay import Relay
from tests.support.waiting import spin_until

WAIT_S = 150.0
LEASE_S = 4


class NodeProcess:
    """One node; its lines are read as they come."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged: list[str] = []
        self.is_started = self.leads = self.is_stopped = False
        self._history: list[str] | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.engine_node", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a process that was killed may be cut.
            if not line.endswith("\n"):
                return
            word, *rest = line.split()
            if word == "ack":
                self.acknowledged += rest
            elif word == "history":
                self._history = rest
            elif word == "held":
                self.is_started = True
            else:
                self.leads = word == "leads"

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    def tell(self, word: str) -> None:
        """Write a line to its stdin."""
        assert self._process.stdin is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def history(self) -> list[str]:
        """The commands of its state, in order."""
        self._history = None
        self.tell("history")
        spin_until(
            lambda: self._history is not None or self.has_ended(), "an answer", timeout=WAIT_S
        )
        assert self._history is not None, "the process has ended"
        return self._history

    def send(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self) -> None:
        """Kill it and take its last lines."""
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for each in (self._process.stdin, self._process.stdout):
            assert each is not None
            each.close()


class Group:
    """The nodes of one log; this one is a single node with a file of its own."""

    engine = "own file"
    names: tuple[str, ...] = ("n0",)

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.nodes: dict[str, NodeProcess] = {}
        self._acknowledged: set[str] = set()
        self._history: list[str] = []
        self._runs = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.nodes):
            self.kill(name)

    def settings(self, name: str) -> dict[str, Any]:
        """What the process of a node is given."""
        return {"directory": str(self.directory / name)}

    def start(self) -> None:
        """Start the nodes that do not run."""
        for name in self.names:
            if name not in self.nodes:
                self._runs += 1
                about = {"engine": self.engine, "node": name, "run": self._runs}
                self.nodes[name] = NodeProcess({**about, **self.settings(name)})

    def kill(self, name: str) -> None:
        """Kill a node."""
        node = self.nodes.pop(name)
        node.end()
        self._acknowledged |= set(node.acknowledged)

    def kill_all(self) -> None:
        """Kill everything at once."""
        for each in self.nodes.values():
            each.send(signal.SIGKILL)
        for name in list(self.nodes):
            self.kill(name)

    def cut(self, name: str, *, hears: bool) -> None:
        """Cut a node off; with *hears* it is cut off in one direction only."""
        raise NotImplementedError

    def mend(self) -> None:
        """End the effect of `cut`."""

    def leader(self) -> str:
        """Wait until a node leads, and return it."""
        found: list[str] = []

        def is_there() -> bool:
            self._check_alive()
            found[:] = [name for name, node in self.nodes.items() if node.leads]
            return len(found) == 1

        spin_until(is_there, "one node leads", timeout=WAIT_S)
        return found[0]

    def progress(self, count: int, *, besides: Collection[str] = ()) -> None:
        """Wait until nodes other than *besides* have had so many more commands committed."""
        counted = {n: len(node.acknowledged) for n, node in self.nodes.items() if n not in besides}
        self._wait(
            lambda: sum(len(self.nodes[n].acknowledged) - counted[n] for n in counted) >= count,
            f"{count} commands are committed",
        )

    def settle(self) -> None:
        """Mend all, and check that nothing is lost."""
        self.mend()
        self.start()
        self._wait(lambda: all(n.is_started for n in self.nodes.values()), "all have started")
        self.leader()
        for each in self.nodes.values():
            each.tell("stop")
        histories: list[list[str]] = []

        def are_equal() -> bool:
            acknowledged = self._all_acknowledged()
            histories[:] = [each.history() for each in self.nodes.values()]
            first = histories[0]
            return all(each == first for each in histories) and acknowledged <= set(first)

        try:
            self._wait(are_equal, "all have every acknowledged command, in one order")
        except AssertionError as error:
            lost = [len(self._all_acknowledged() - set(each)) for each in histories]
            raise AssertionError(
                f"{error}; lengths {[*map(len, histories)]}, lack {lost}"
            ) from None
        history = histories[0]
        assert len(history) == len(set(history)), "a command is applied once"
        assert history[: len(self._history)] == self._history, "history does not change"
        self._history = history
        for each in self.nodes.values():
            each.tell("go")

    def _all_acknowledged(self) -> set[str]:
        return self._acknowledged.union(*(each.acknowledged for each in self.nodes.values()))

    def _check_alive(self) -> None:
        ended = [name for name, node in self.nodes.items() if node.has_ended()]
        assert not ended, f"{ended} ended"

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self._check_alive()
            return condition()

        spin_until(is_so, what, timeout=WAIT_S)


class RaftGroup(Group):
    """Three nodes with C-Raft; each reaches each other one through a relay of their own."""

    engine = "raft"
    names = ("n0", "n1", "n2")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._stack = ExitStack()
        self._ports = dict(
            zip(self.names, self._stack.enter_context(reserved(len(self.names))), strict=True)
        )
        self._relays = {
            (source, target): Relay(("127.0.0.1", self._ports[target]))
            for source, target in permutations(self.names, 2)
        }
        for each in self._relays.values():
            self._stack.callback(each.close)

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def settings(self, name: str) -> dict[str, Any]:
        """The directory and the port of a node, and the relays to the others."""
        ports = {
            target: relay.address[1]
            for (source, target), relay in self._relays.items()
            if source == name
        }
        return {**super().settings(name), "ports": {**ports, name: self._ports[name]}}

    def cut(self, name: str, *, hears: bool) -> None:
        """Cut a node off; in one direction: it receives and cannot send."""
        for (source, target), relay in self._relays.items():
            if source == name or (target == name and not hears):
                relay.cut()

    def mend(self) -> None:
        """End the effect of `cut`."""
        for each in self._relays.values():
            each.mend()


class EtcdGroup(Group):
    """Three nodes beside an etcd cluster of three, each with relays of its own to the members."""

    engine = "etcd"
    names = ("n0", "n1", "n2")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._cluster = EtcdCluster(directory, members=3)
        self._deaf: set[str] = set()
        self._relays = {
            name: [Relay(each.clients.address, self._passing(name)) for each in self._members]
            for name in self.names
        }

    @property
    def _members(self) -> list[Any]:
        return self._cluster.members

    def _passing(self, name: str) -> Callable[[bool], Callable[[bytes], bytes]]:
        def change(is_from_target: bool) -> Callable[[bytes], bytes]:
            return lambda data: b"" if is_from_target and name in self._deaf else data

        return change

    def __enter__(self) -> Self:
        self._cluster.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        for relays in self._relays.values():
            for each in relays:
                each.close()
        self._cluster.__exit__()

    def settings(self, name: str) -> dict[str, Any]:
        """The addresses of the node's relays."""
        ports = [each.address[1] for each in self._relays[name]]
        endpoints = [f"http://127.0.0.1:{port}" for port in ports]
        return {"endpoints": endpoints, "lease_seconds": LEASE_S}

    def start(self) -> None:
        """Start the members of etcd, then the nodes, that do not run."""
        self._cluster.start()
        super().start()

    def kill(self, name: str) -> None:
        """Kill a node, and with it one member of etcd while a majority remains."""
        super().kill(name)
        if all(not each.has_ended() for each in self._members):
            self._members[self.names.index(name)].kill()

    def kill_all(self) -> None:
        """Kill all nodes and all members of etcd."""
        self._cluster.kill()
        super().kill_all()

    def cut(self, name: str, *, hears: bool) -> None:
        """Cut a node off from etcd; in one direction: its requests arrive, the answers do not."""
        assert not hears or not self._deaf
        if hears:
            self._deaf.add(name)
            return
        for each in self._relays[name]:
            each.cut()

    def mend(self) -> None:
        """End the effect of `cut`; connections that lost an answer end."""
        for name in self._deaf:
            for each in self._relays[name]:
                each.drop()
        self._deaf.clear()
        for relays in self._relays.values():
            for each in relays:
                each.mend()
