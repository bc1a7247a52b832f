"""Groups of three processes with C-Raft: kills, a lost directory, a node behind a snapshot."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rmqstore.controller.engines.raft import is_built
from tests.support.effort import rounds
from tests.support.ports import reserved
from tests.support.waiting import spin_until

pytestmark = pytest.mark.skipif(not is_built(), reason="built without libraft")

SEED = int(os.environ.get("RMQ_SEED", "20261123"))
NODES = ("n0", "n1", "n2")
STEP = 100_000
"""Distance between the first numbers of two processes."""


class Process:
    """One run of a node; its lines are read as they come."""

    def __init__(
        self, root: Path, node: str, ports: dict[str, int], first: int, join: bool
    ) -> None:
        self.node, self.acks, self.states = node, set[int](), list[list[int]]()
        self.leads: list[tuple[int, list[int]]] = []
        self.restored = 0
        log = root / f"{node}-{first}.out"
        self._out = log.open("wb")
        self._in, self._rest = log.open("rb"), b""
        words = [sys.executable, "-m", "tests.crash.raft_node", str(root / node), node]
        words += [json.dumps(ports), str(first), *(["--join"] if join else [])]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=self._out)

    def read(self) -> None:
        """Take the whole lines that were printed since the last call."""
        *lines, self._rest = (self._rest + self._in.read()).split(b"\n")
        for line in lines:
            kind, _, rest = line.decode().partition(" ")
            if kind == "ack":
                self.acks.add(int(rest))
            elif kind == "restore":
                self.restored = max(self.restored, int(rest))
            elif kind == "state":
                self.states.append([int(each) for each in json.loads(rest)])
            else:
                assert kind == "lead", line
                term, _, commands = rest.partition(" ")
                self.leads.append((int(term), [int(each) for each in json.loads(commands)]))

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())
        self.process.stdin.flush()

    def end(self, number: int) -> None:
        self.process.send_signal(number)

    def close(self) -> None:
        """Kill the process where it lives, and take its last lines."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(60)
        self.read()
        assert self.process.stdin is not None
        for each in (self._out, self._in, self.process.stdin):
            each.close()


class Group:
    """Three nodes, and what all of their processes have printed."""

    def __init__(self, root: Path, ports: list[int]) -> None:
        self.root = root
        self.ports = dict(zip(NODES, ports, strict=True))
        self.running: dict[str, Process] = {}
        self.past: list[Process] = []
        self._firsts = iter(range(0, 10**9, STEP))

    def start(self, *nodes: str, join: bool = False) -> None:
        for node in nodes:
            first = next(self._firsts)
            self.running[node] = Process(self.root, node, self.ports, first, join)

    def kill(self, *nodes: str) -> None:
        """Kill the processes, all before the first has been waited for."""
        for node in nodes:
            self.running[node].end(signal.SIGKILL)
        for node in nodes:
            process = self.running.pop(node)
            process.close()
            self.past.append(process)

    def all(self) -> list[Process]:
        for each in self.running.values():
            each.read()
            assert each.process.poll() is None, f"{each.node} ended"
        return [*self.past, *self.running.values()]

    def acks(self) -> set[int]:
        return set().union(*(each.acks for each in self.all()))

    def leads(self) -> list[tuple[int, list[int]]]:
        return sorted(lead for each in self.all() for lead in each.leads)

    def leader(self) -> str:
        """Return the node that leads in the highest term."""
        terms = {each.leads[-1][0]: each.node for each in self.running.values() if each.leads}
        return terms[max(terms)]

    def wait_for_acks(self, count: int) -> None:
        """Wait until *count* more commands are committed."""
        before = len(self.acks())
        spin_until(lambda: len(self.acks()) >= before + count, f"{count} commands")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        def holds() -> bool:
            self.all()
            return bool(condition())

        spin_until(holds, what)

    def states(self) -> dict[str, list[int]]:
        """Return the commands of each running node, now."""
        counts = {node: len(each.states) for node, each in self.running.items()}
        for each in self.running.values():
            each.send("state")
        self.wait_for(
            lambda: all(len(each.states) > counts[node] for node, each in self.running.items()),
            "states",
        )
        return {node: each.states[-1] for node, each in self.running.items()}

    def check(self) -> None:
        """Check what a group owes: histories that grow, and hold what was acknowledged."""
        for each in self.running.values():
            each.send("quiet")
        before: list[int] = []
        spin_until(self.agree, "equal histories with every acknowledged command")
        final = next(iter(self.states().values()))
        assert len(final) == len(set(final)), "a command is applied once"
        terms = [term for term, _ in self.leads()]
        assert len(terms) == len(set(terms)), "a term has one leader"
        for _, held in self.leads():
            assert held[: len(before)] == before, "history does not change"
            before = held
        assert final[: len(before)] == before

    def agree(self) -> bool:
        acks, states = self.acks(), list(self.states().values())
        return all(state == states[0] for state in states) and acks <= set(states[0])

    def close(self) -> None:
        for process in self.running.values():
            process.close()


@pytest.fixture
def group(tmp_path: Path) -> Iterator[Group]:
    with reserved(len(NODES)) as ports:
        made = Group(tmp_path, ports)
        try:
            yield made
        finally:
            made.close()


def test_all_killed_at_once_lose_nothing_that_was_acknowledged(group: Group) -> None:
    rng = random.Random(SEED)
    for _ in range(rounds(3, 50)):
        group.start(*NODES)
        group.wait_for_acks(rng.randrange(100, 700))
        group.kill(*NODES)
    acknowledged = group.acks()
    group.start(*NODES)
    group.wait_for_acks(1)
    assert acknowledged <= set(group.leads()[-1][1])
    group.check()
    assert len(acknowledged) >= 300


def test_killed_leader_is_replaced_and_comes_back(group: Group) -> None:
    group.start(*NODES)
    for _ in range(rounds(2, 50)):
        group.wait_for_acks(300)
        leader, terms = group.leader(), len(group.leads())
        group.kill(leader)
        group.wait_for(lambda terms=terms: len(group.leads()) > terms, "another leader")
        group.wait_for_acks(50)
        group.start(leader)
    group.check()


def test_node_behind_a_snapshot_gets_it_from_the_leader(group: Group) -> None:
    group.start(*NODES)
    group.wait_for_acks(50)
    follower = next(node for node in NODES if node != group.leader())
    group.kill(follower)
    least = len(group.acks())
    group.wait_for_acks(800)
    group.start(follower)
    group.wait_for(lambda: group.running[follower].restored > least, "a snapshot")
    group.check()


def test_lost_directory_is_filled_by_the_other_nodes(group: Group) -> None:
    group.start(*NODES)
    group.wait_for_acks(500)
    lost = group.leader()
    group.kill(*NODES)
    acknowledged = group.acks()
    shutil.rmtree(group.root / lost)
    group.start(lost, join=True)
    group.start(*(node for node in NODES if node != lost))
    group.wait_for_acks(1)
    assert acknowledged <= set(group.leads()[-1][1])
    group.check()


def test_damaged_tail_is_replaced_from_the_other_nodes(group: Group) -> None:
    group.start(*NODES)
    group.wait_for_acks(150)
    damaged = group.leader()
    group.kill(*NODES)
    acknowledged = group.acks()
    _damage_tail(group.root / damaged / "raft")
    group.start(*NODES)
    group.wait_for_acks(1)
    assert acknowledged <= set(group.leads()[-1][1])
    group.check()


def _damage_tail(log: Path) -> None:
    """Change the last byte of the last entry that was written."""
    contents = {each: each.read_bytes().rstrip(b"\0") for each in log.glob("open-*")}
    segment = max(contents, key=lambda each: len(contents[each]))
    assert len(contents[segment]) > 100
    with segment.open("r+b") as file:
        file.seek(len(contents[segment]) - 1)
        file.write(b"\xff")
