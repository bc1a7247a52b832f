"""Groups of brokers, of this library and of RocketMQ, in turn: fail-over, and a broker's work.

    python -m benchmarks.bench_cluster [--rounds 3] [--only failover broker] [--kills 3]

`failover` kills the master of a group of two with SIGKILL, whose members both acknowledge each
message, and measures the time until the nameserver names the new master, and until the new master
acknowledges a message to a client that asks the nameserver after each failure. `broker` measures
one broker of each kind as bench_broker does. Each round measures all kinds, one after another; the
figures are medians over rounds. Java's processes run with the JVM's own choices, those of
PEER_JAVA_OPTS added; ROCKETMQ_VERSION names the release.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import bench_broker, java
from benchmarks.cluster_processes import GROUP, TIMINGS, Cluster
from rmqstore.admin.controller import ControllerAdmin
from rmqstore.cli.demo.cluster_writer import ClusterClient
from rmqstore.controller.engines import raft
from rmqstore.errors import RemotingError

__all__ = ["KINDS", "Kind", "main", "measure_broker", "measure_failover"]

_WAIT_S = 180.0
_LOOK_S = 0.005
_AT_ONCE = 2
_SEND_S = 1.0
_BEFORE = 50
"""Messages that are acknowledged before each kill."""
_BROKERS = 2
_REFERENCE = "java"


@dataclass(frozen=True, slots=True)
class Kind:
    """A group: its brokers, its controllers and their times."""

    brokers: str
    engine: str
    controllers: int
    timing: str

    @property
    def name(self) -> str:
        """The name in tables."""
        nodes = "" if self.engine != "ours" else f" x{self.controllers}"
        return f"{self.brokers} brokers, {self.engine}{nodes}, {self.timing}"

    @property
    def needs_java(self) -> bool:
        """Whether it has a Java process."""
        return self.brokers == "java" or self.engine != "ours"


KINDS: Sequence[Kind] = [
    *(
        Kind("java", engine, 1, time)
        for engine in ("dledger", "jraft")
        for time in ("default", "3 s")
    ),
    *(Kind("java", "ours", count, time) for count in (1, 3) for time in ("default", "3 s")),
    *(Kind("our", "ours", count, time) for count in (1, 3) for time in TIMINGS),
]


async def measure_failover(cluster: Cluster, kills: int) -> list[dict[str, float]]:
    """Return the figures of each kill of a master."""
    found = []
    client = ClusterClient(cluster.nameserver, at_once=_AT_ONCE, send_s=_SEND_S)
    async with ControllerAdmin(cluster.controllers, timeout=1.0) as admin:
        try:
            client.start()
            for _ in range(kills):
                found.append(await _lose_master(cluster, admin, client))
        finally:
            await client.close()
    return found


async def _lose_master(
    cluster: Cluster, admin: ControllerAdmin, client: ClusterClient
) -> dict[str, float]:
    master = await _whole(admin)
    wanted = len(client.acknowledged) + _BEFORE
    await _until(lambda: len(client.acknowledged) >= wanted, "acknowledged messages")

    answers = len(client.answered)
    began = time.monotonic()
    await asyncio.to_thread(cluster.brokers[master].kill)
    route_s = None
    deadline = began + _WAIT_S
    while len(client.answered) == answers or route_s is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"no new master within {_WAIT_S:.0f} s")
        if route_s is None and await _routed(client) not in (None, master):
            route_s = time.monotonic() - began
        await asyncio.sleep(_LOOK_S)
    at, _ = client.answered[answers]
    await asyncio.to_thread(cluster.brokers[master].start)
    return {"route_s": route_s, "acknowledged_s": at - began}


async def _routed(client: ClusterClient) -> str | None:
    """Returns the master that the nameserver names."""
    with contextlib.suppress(RemotingError):
        route = await client.route()
        return route.brokers[0].addresses.get(0) if route and route.brokers else None
    return None


async def _whole(admin: ControllerAdmin) -> str:
    """Returns the master once all brokers are in the set."""
    deadline = time.monotonic() + _WAIT_S
    while time.monotonic() < deadline:
        with contextlib.suppress(RemotingError):
            groups = await admin.sync_state_sets([GROUP])
            if groups and groups[0].master_id is not None and len(groups[0].in_sync) == _BROKERS:
                return groups[0].master_address
        await asyncio.sleep(_LOOK_S)
    raise TimeoutError(f"the group is not whole within {_WAIT_S:.0f} s")


async def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {_WAIT_S:.0f} s for {what}")
        await asyncio.sleep(_LOOK_S)


def _failovers(root: Path, kind: Kind, kills: int) -> list[dict[str, float]]:
    of_brokers, of_controllers = TIMINGS[kind.timing]
    with Cluster(root) as cluster:
        cluster.add_nameserver(is_java=kind.engine != "ours")
        cluster.add_controllers(kind.controllers, of_controllers, engine=kind.engine)
        for _ in range(_BROKERS):
            cluster.add_broker(of_brokers, is_java=kind.brokers == "java")
        return asyncio.run(measure_failover(cluster, kills))


def measure_broker(
    root: Path, rounds: int, *, count: int, idle_s: float, kinds: Sequence[str]
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield the name and the figures of each kind of broker, in turn, so many times.

    All run throughout. The first round of each is not given: Java compiles in it.
    """
    with contextlib.ExitStack() as stack:
        servers = {}
        for kind in kinds:
            cluster = stack.enter_context(Cluster(root / kind))
            cluster.add_nameserver()
            servers[kind] = cluster.add_broker({}, is_java=kind == "java")
        for number in range(rounds + 1):
            for kind, server in servers.items():
                figures = bench_broker.measure(
                    server,
                    topic=f"bench{number}",
                    count=count,
                    idle_s=idle_s if number else 0.1,
                )
                if number:
                    yield kind, figures


def _print_failovers(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    print(f"{'seconds from SIGKILL of the master to':40} {'the route':>22} {'the first ack':>22}")
    for name, runs in found.items():
        cells = []
        for figure in ("route_s", "acknowledged_s"):
            values = [each[figure] for each in runs]
            cells.append(
                f"{statistics.median(values):6.2f} ({min(values):.2f} to {max(values):.2f})"
            )
        print(f"{name:40} {cells[0]:>22} {cells[1]:>22}")


def _print_brokers(found: Mapping[str, Sequence[Mapping[str, float]]]) -> None:
    names = list(found)
    print(f"{'a broker':24}" + "".join(f"{name:>14}" for name in names) + f"{'ratio':>10}")
    for figure in next(iter(found.values()))[0]:
        medians = [statistics.median(each[figure] for each in found[name]) for name in names]
        ratio = f"{medians[0] / medians[1]:10.2f}" if len(medians) > 1 and medians[1] else ""
        print(f"{figure:24}" + "".join(f"{each:14,.2f}" for each in medians) + ratio)


def main(arguments: list[str] | None = None) -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=("failover", "broker"), help="default: both")
    parser.add_argument("--kinds", nargs="+", default=[""], help="groups whose names begin so")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=3, help="of a master, in each round")
    parser.add_argument("--count", type=int, default=20_000, help="messages to a broker")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of idling")
    parser.add_argument("--json", action="store_true", help="print lines of JSON as well")
    given = parser.parse_args(arguments)
    parts = given.only or ["failover", "broker"]

    why = java.missing()
    if why:
        print(f"without Java: {why}", file=sys.stderr)
    else:
        java.build()
    kinds = [
        each
        for each in KINDS
        if each.name.startswith(tuple(given.kinds))
        and not (why and each.needs_java)
        and (raft.is_built() or each.controllers == 1)
    ]

    def note(name: str, figures: Mapping[str, float]) -> None:
        if given.json:
            print(json.dumps({"of": name, **figures}), flush=True)

    failovers: dict[str, list[dict[str, float]]] = {}
    brokers: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as directory:
        for number in range(given.rounds if "failover" in parts else 0):
            for kind in kinds:
                root = Path(directory, f"{number} {kind.name}".replace(" ", "-").replace(",", ""))
                root.mkdir()
                for figures in _failovers(root, kind, given.kills):
                    failovers.setdefault(kind.name, []).append(figures)
                    note(kind.name, figures)
        if "broker" in parts:
            names = ["our"] if why else ["our", _REFERENCE]
            for name, figures in measure_broker(
                Path(directory), given.rounds, count=given.count, idle_s=given.idle, kinds=names
            ):
                brokers.setdefault(name, []).append(figures)
                note(name, figures)
    if failovers:
        _print_failovers(failovers)
    if brokers:
        _print_brokers(brokers)
    return 0


if __name__ == "__main__":
    sys.exit(main())
