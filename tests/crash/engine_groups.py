"""Groups of processes with one engine each, and what a test does to them.

A group checks itself: `settle` returns when every node has the same history, which contains every
acknowledged command, no command twice, and begins with the history of the last time.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection
from contextlib import ExitStack
from itertools import permutations
from pathlib import Path
from typing import Any, Self

import pytest

from rmqstore.controller.engines.log_file import COMMANDS, Record, encode_record, parse_log
from rmqstore.controller.engines.raft import is_built
from tests.support.etcd_cluster import EtcdCluster, needs_etcd
from tests.support.etcd_room import make_room, use_up_quota
from tests.support.ports import reserved
from tests.support.relay import Relay
from tests.support.waiting import spin_until

WAIT_S = 150.0
LEASE_S = 4


class NodeProcess:
    """One node; its lines are read as they come."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.acknowledged: list[str] = []
        self.is_started = self.leads = self.has_failed = False
        self.refused = self.restored = 0
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
            elif word == "refused":
                self.refused += 1
            elif word == "restored":
                self.restored = int(rest[0])
            elif word == "failed":
                self.has_failed = True
            else:
                self.leads = word == "leads"

    def has_ended(self) -> bool:
        """Whether the process is gone."""
        return self._process.poll() is not None

    @property
    def status(self) -> int | None:
        """How the process ended, as `subprocess` has it."""
        return self._process.returncode

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
    disk_bytes = 64 << 20
    """Enough for all files of a node."""

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

    @classmethod
    def place(cls, directory: Path, name: str) -> Path:
        """Return the directory of the files of a node of a group in *directory*."""
        return directory / name

    def settings(self, name: str) -> dict[str, Any]:
        """What the process of a node is given."""
        return {"directory": str(self.place(self.directory, name))}

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

    def replace(self, name: str) -> None:
        """Do what an operator does for a node whose disk lost what it had synced: nothing."""

    def has_failed(self, name: str) -> bool:
        """Whether the disk of a node ended its part."""
        return self.nodes[name].has_failed

    def damage_tail(self, name: str, rng: random.Random) -> None:
        """Leave a torn write at the end of the log of a node that does not run."""
        log = self.place(self.directory, name) / "log"
        data = log.read_bytes()
        content = parse_log(data, str(log))
        # A snapshot has just taken the place of all records where there are none.
        last = content.records[-1].last_index if content.records else content.base_index
        record = Record(COMMANDS, last + 1, 1, (b"x" * 100,))
        torn = encode_record(record, len(data))
        log.write_bytes(data + torn[: rng.randrange(1, len(torn))])

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

    def wait_for_refusal(self, name: str) -> None:
        """Wait until a node refuses commands, certainly not committed, for want of room."""
        counted = self.nodes[name].refused
        self._wait(lambda: self.nodes[name].refused > counted, "a command is refused")

    def wait_for_snapshot(self, name: str) -> None:
        """Wait until a node has taken a state from another one, since its start."""
        self._wait(lambda: self.nodes[name].restored > 0, f"{name} gets a snapshot")

    def wait_for_failure(self, name: str, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Wait until the disk of a node has ended its part, and do *meanwhile* before each look."""

        def is_so() -> bool:
            meanwhile()
            return self.has_failed(name)

        self._wait(is_so, f"{name} notices its disk")

    def settle(self) -> None:
        """Mend all, and check that nothing is lost."""
        self.rest()
        for each in self.nodes.values():
            each.tell("go")

    def rest(self) -> None:
        """Mend all, stop the proposals, and check that nothing is lost."""
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

    def _all_acknowledged(self) -> set[str]:
        return self._acknowledged.union(*(each.acknowledged for each in self.nodes.values()))

    def _check_alive(self) -> None:
        ended = {name: node.status for name, node in self.nodes.items() if node.has_ended()}
        assert not ended, f"{ended} ended"

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        def is_so() -> bool:
            self._check_alive()
            return condition()

        try:
            spin_until(is_so, what, timeout=WAIT_S)
        except AssertionError as error:
            counts = {n: (each.leads, len(each.acknowledged)) for n, each in self.nodes.items()}
            raise AssertionError(f"{error}; leads and commands of each node: {counts}") from None


class RaftGroup(Group):
    """Three nodes with C-Raft; each reaches each other one through a relay of their own."""

    engine = "raft"
    names = ("n0", "n1", "n2")

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.joining: set[str] = set()
        """Nodes that lost their directory, and take the log from the others."""
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
        return {
            **super().settings(name),
            "ports": {**ports, name: self._ports[name]},
            "founds": name not in self.joining,
        }

    def damage_tail(self, name: str, rng: random.Random) -> None:
        """Change the end of the segment that was being written, up to several entries of it."""
        log = self.place(self.directory, name) / "raft"
        sizes = {each: len(each.read_bytes().rstrip(b"\0")) for each in log.glob("open-*")}
        segment = max(sizes, key=lambda each: sizes[each])
        # A follower that took a snapshot may have written nothing since then.
        size = rng.randrange(1, 300)
        if sizes[segment] - size > 8:
            with segment.open("r+b") as file:
                file.seek(sizes[segment] - size)
                file.write(rng.choice([bytes(size), rng.randbytes(size)]))

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
    disk_bytes = 512 << 20
    quota_bytes = 2 << 30

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        options = {"quota-backend-bytes": str(self.quota_bytes)}
        self._cluster = EtcdCluster(directory, members=3, options=options)
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

    @classmethod
    def place(cls, directory: Path, name: str) -> Path:
        """Return the directory of the member of etcd that shares the fate of a node."""
        return directory / f"m{cls.names.index(name)}"

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

    def replace(self, name: str) -> None:
        """Replace the member of etcd, which does not start without what it acknowledged."""
        self._cluster.replace(self._members[self.names.index(name)])

    def has_failed(self, name: str) -> bool:
        """Whether the disk of a node's member of etcd ended that."""
        return bool(self._members[self.names.index(name)].has_ended())

    def use_up_quota(self) -> None:
        """Leave no room in etcd."""
        use_up_quota(self._cluster.endpoints)

    def make_room(self) -> None:
        """End the effect of `use_up_quota`."""
        make_room(self._cluster.endpoints)

    def damage_tail(self, name: str, rng: random.Random) -> None:
        """Cut the log of a member of etcd within its last record."""
        logs = (self.place(self.directory, name) / "member" / "wal").glob("*.wal")
        last = max(logs)
        size = len(last.read_bytes().rstrip(b"\0"))
        with last.open("r+b") as file:
            file.truncate(size - rng.randrange(1, 8))

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


needs_raft = pytest.mark.skipif(not is_built(), reason="built without libraft")
ENGINES = [
    Group,
    pytest.param(EtcdGroup, marks=needs_etcd),
    pytest.param(RaftGroup, marks=needs_raft),
]
REPLICATED = ENGINES[1:]
