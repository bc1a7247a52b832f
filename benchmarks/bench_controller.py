"""A controller under brokers: changes of roles and of sync-state sets, heartbeats, memory.

    python -m benchmarks.bench_controller [--groups 1000] [--seconds 10] [--calls 500] [--nodes 3]
    python -m benchmarks.bench_controller --address 127.0.0.1:9878 --pid PID

Without --address a controller of this library is started, or a group of several nodes of which
the leader is measured. Any other, such as RocketMQ's, is measured by the address and the process
id of its leader. Each group has three
brokers, which send what brokers of RocketMQ send; all of them share one connection, and their
addresses lead to a socket that takes notices and drops them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster_processes import START_S, Cluster
from benchmarks.remoting_link import Link, Server, add_options, chosen
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame, encode
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    ElectMasterRequestHeader,
    GetControllerMetadataResponseHeader,
    MasterHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqstore.remoting.headers.registration import BrokerHeartbeatRequestHeader

__all__ = ["main", "measure"]

_CLUSTER = "bench"
_BROKERS = (1, 2, 3)
_PIPELINED = 64
_BEAT_S = 1.0


@contextlib.contextmanager
def _dropped_notices() -> Iterator[str]:
    """Listens for the block at the returned address, and drops what comes."""
    with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as ready:
        listener.setblocking(False)
        ready.register(listener, selectors.EVENT_READ)
        is_over = threading.Event()

        def drop() -> None:
            while not is_over.is_set():
                for key, _ in ready.select(timeout=0.1):
                    if key.fileobj is listener:
                        ready.register(listener.accept()[0], selectors.EVENT_READ)
                    elif not _read(key.fileobj):
                        ready.unregister(key.fileobj)

        thread = threading.Thread(target=drop, name="notices")
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()
            for key in list(ready.get_map().values()):
                if isinstance(key.fileobj, socket.socket):
                    key.fileobj.close()


def _read(connection: object) -> bytes:
    assert isinstance(connection, socket.socket)
    try:
        return connection.recv(1 << 16)
    except OSError:
        return b""


def _group(number: int) -> str:
    return f"broker-{number}"


def _beat(number: int, broker: int, address: str) -> Frame:
    header = BrokerHeartbeatRequestHeader(
        cluster_name=_CLUSTER,
        broker_address=address,
        broker_name=_group(number),
        broker_id=broker,
        epoch=1,
        max_offset=100,
        heartbeat_timeout_ms=60_000,
    )
    return Frame.request(RequestCode.BROKER_HEARTBEAT, header.to_fields())


def _join(link: Link, number: int, address: str) -> None:
    """Registers the brokers of a group and has the first one elected."""
    name = _group(number)
    for broker in _BROKERS:
        applied = ApplyBrokerIdRequestHeader(
            cluster_name=_CLUSTER,
            broker_name=name,
            broker_id=broker,
            check_code=f"{address};{broker}",
        )
        link.call(Frame.request(RequestCode.CONTROLLER_APPLY_BROKER_ID, applied.to_fields()))
        joined = RegisterBrokerToControllerRequestHeader(
            cluster_name=_CLUSTER, broker_name=name, broker_id=broker, broker_address=address
        )
        link.call(Frame.request(RequestCode.CONTROLLER_REGISTER_BROKER, joined.to_fields()))
        link.call(_beat(number, broker, address))
    link.call(_election(number, 1, is_designated=False))


def _election(number: int, broker: int, *, is_designated: bool) -> Frame:
    header = ElectMasterRequestHeader(
        cluster_name=_CLUSTER,
        broker_name=_group(number),
        broker_id=broker,
        is_designated=is_designated,
    )
    return Frame.request(RequestCode.CONTROLLER_ELECT_MASTER, header.to_fields())


def measure(server: Server, *, groups: int, seconds: float, calls: int) -> dict[str, float]:
    """Return the figures of a run."""
    figures = {"rss_before_MiB": server.rss_mib()}
    with _dropped_notices() as address, contextlib.closing(Link(server)) as link:
        began = time.perf_counter()
        for number in range(groups):
            _join(link, number, address)
        figures["join_group_ms"] = (time.perf_counter() - began) / groups * 1e3
        figures |= _change_roles(link, calls)
        figures |= _heartbeats(server, link, address, groups=groups, seconds=seconds)
        figures["rss_after_MiB"] = server.rss_mib()
    return figures


def _change_roles(link: Link, calls: int) -> dict[str, float]:
    """Elections requested by an administrator, each after two changes of the set."""
    elections: list[float] = []
    changes: list[float] = []
    elected = link.ask(_election(0, 1, is_designated=False))  # The answer names the master.
    for number in range(calls):
        _widen(link, MasterHeader.from_fields(elected.ext_fields), changes)
        wanted = _BROKERS[1 + number % 2]
        began = time.perf_counter()
        elected = link.call(_election(0, wanted, is_designated=True))
        elections.append(time.perf_counter() - began)
    return {
        "elect_p50_ms": statistics.median(elections) * 1e3,
        "elect_p99_ms": statistics.quantiles(elections, n=100)[98] * 1e3,
        "alter_set_p50_ms": statistics.median(changes) * 1e3,
        "alter_set_p99_ms": statistics.quantiles(changes, n=100)[98] * 1e3,
    }


def _widen(link: Link, master: MasterHeader, waits: list[float]) -> None:
    """Takes the other brokers into the set of group 0, one at a time."""
    assert master.master_broker_id is not None
    header = AlterSyncStateSetRequestHeader(
        broker_name=_group(0),
        master_broker_id=master.master_broker_id,
        master_epoch=master.master_epoch or 0,
    )
    members, set_epoch = {master.master_broker_id}, master.sync_state_set_epoch or 0
    for broker in _BROKERS:
        if broker in members:
            continue
        members.add(broker)
        body = SyncStateSetBody(frozenset(members), set_epoch).encode()
        request = Frame.request(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, header.to_fields(), body
        )
        began = time.perf_counter()
        answer = link.call(request)
        waits.append(time.perf_counter() - began)
        set_epoch = SyncStateSetBody.decode(answer.body).epoch


def _heartbeats(
    server: Server, link: Link, address: str, *, groups: int, seconds: float
) -> dict[str, float]:
    """Each broker of each group sends one a second."""
    frames = [
        encode(_beat(number, broker, address)) for number in range(groups) for broker in _BROKERS
    ]
    pieces = [frames[at : at + _PIPELINED] for at in range(0, len(frames), _PIPELINED)]
    began, cpu_s, rounds = time.perf_counter(), server.cpu_s(), 0
    while time.perf_counter() - began < seconds:
        for number, piece in enumerate(pieces):
            due = began + rounds * _BEAT_S + number * _BEAT_S / len(pieces)
            time.sleep(max(0.0, due - time.perf_counter()))
            link.send(b"".join(piece))
            link.skip(len(piece))
        rounds += 1
    spent_s = max(time.perf_counter() - began, rounds * _BEAT_S)
    return {
        "heartbeats_per_s": rounds * len(frames) / spent_s,
        "heartbeat_core_percent": (server.cpu_s() - cpu_s) / spent_s * 100,
    }


@contextlib.contextmanager
def _leader_of(nodes: int) -> Iterator[Server]:
    """Yields the leader of so many controllers, which end with the block."""
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory)) as cluster:
        cluster.add_controllers(nodes, {}, engine="ours")
        first = next(iter(cluster.controller_nodes))
        limit = time.monotonic() + START_S
        with contextlib.closing(Link(_server_at(cluster, first))) as link:
            while (address := _known_leader(link)) not in cluster.controller_nodes:
                if time.monotonic() > limit:
                    raise TimeoutError(f"{nodes} controllers have no leader after {START_S:.0f} s")
                time.sleep(0.01)
        yield _server_at(cluster, address)


def _known_leader(link: Link) -> str:
    answer = link.ask(Frame.request(RequestCode.CONTROLLER_GET_METADATA_INFO))
    return GetControllerMetadataResponseHeader.from_fields(answer.ext_fields).leader_address or ""


def _server_at(cluster: Cluster, address: str) -> Server:
    host, _, port = address.rpartition(":")
    return Server(host, int(port), cluster.controller_nodes[address].pid)


def main(arguments: list[str] | None = None) -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--groups", type=int, default=1000, help="of three brokers each")
    parser.add_argument("--seconds", type=float, default=10.0, help="of heartbeats")
    parser.add_argument("--calls", type=int, default=500, help="requested elections")
    parser.add_argument("--nodes", type=int, default=1, help="controllers of the group")
    add_options(parser)
    given = parser.parse_args(arguments)
    if given.nodes > 1 and given.address is not None:
        parser.error("give --nodes or --address")

    with (
        tempfile.TemporaryDirectory() as directory,
        _leader_of(given.nodes)
        if given.nodes > 1
        else chosen(parser, given, "controller", ["--store", directory]) as server,
    ):
        figures = measure(server, groups=given.groups, seconds=given.seconds, calls=given.calls)
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:12,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
