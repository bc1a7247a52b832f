"""A nameserver under brokers and clients: registrations, routes, heartbeats, memory.

    python -m benchmarks.bench_nameserver [--brokers 100] [--topics 1000] [--seconds 3] [--rounds 3]
    python -m benchmarks.bench_nameserver --address 127.0.0.1:9876 --pid PID

Without --address a nameserver of this library is started. Any other, such as RocketMQ's, is
measured by its address; its process id gives processor time and memory. Frames are made before the
clock starts and answers are not decoded, so that the client costs little. Rates are also given per
second of the server's processor time: those do not depend on how fast the client is.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence

from benchmarks.remoting_link import Link, Server, add_options, chosen
from rmqstore.data_version import DataVersion
from rmqstore.errors import RemotingError
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame, encode
from rmqstore.remoting.headers.registration import (
    BrokerHeartbeatRequestHeader,
    RegisterBrokerRequestHeader,
)
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader

__all__ = ["main", "measure"]

_PIPELINED = 32
_ONE_BY_ONE = 2000
_LARGE_TABLE = 10_000
_TICKS = os.sysconf("SC_CLK_TCK")


def measure(server: Server, *, brokers: int, topics: int, seconds: float) -> dict[str, float]:
    """Return the figures of one round."""
    figures = {"rss_before_MiB": server.rss_mib()}
    links = [Link(server) for _ in range(brokers)]
    try:
        figures |= _register(server, links, topics)
        figures |= _query(server, links[0], brokers=brokers, topics=topics, seconds=seconds)
        figures |= _heartbeats(server, links[0], brokers=brokers, seconds=seconds)
        figures |= _register_large(server, links[0])
        figures["rss_after_MiB"] = server.rss_mib()
    finally:
        for link in links:
            link.close()
    _wait_empty(server)
    return figures


def _address(number: int) -> str:
    return f"10.0.{number // 250}.{number % 250}:10911"


def _registration(number: int, topics: int, version: int) -> Frame:
    configs = {f"topic-{each}": TopicConfig(f"topic-{each}", 8, 8, 6) for each in range(topics)}
    table = TopicTable(DataVersion(counter=version, timestamp_ms=1_700_000_000_000), configs)
    header = RegisterBrokerRequestHeader(
        broker_name=f"broker-{number}",
        broker_address=_address(number),
        cluster_name="bench",
        ha_address=_address(number),
        broker_id=0,
        enable_acting_master=False,
    )
    body = RegisterBrokerBody(table, ()).encode()
    return Frame.request(RequestCode.REGISTER_BROKER, header.to_fields(), body)


def _register(server: Server, links: Sequence[Link], topics: int) -> dict[str, float]:
    requests = [_registration(number, topics, 1) for number in range(len(links))]
    began, cpu_s = time.perf_counter(), server.cpu_s()
    for link, request in zip(links, requests, strict=True):
        link.call(request)
    each = (time.perf_counter() - began) / len(links)
    again = time.perf_counter()
    for link, request in zip(links, requests, strict=True):
        link.call(request)
    return {
        "register_ms": each * 1e3,
        "register_again_ms": (time.perf_counter() - again) / len(links) * 1e3,
        "register_cpu_ms": (server.cpu_s() - cpu_s) / 2 / len(links) * 1e3,
    }


def _query(
    server: Server, link: Link, *, brokers: int, topics: int, seconds: float
) -> dict[str, float]:
    """Routes one by one, and pipelined."""
    requests = [
        Frame.request(
            RequestCode.GET_ROUTEINFO_BY_TOPIC,
            GetRouteInfoRequestHeader(topic=f"topic-{number}").to_fields(),
        )
        for number in range(topics)
    ]
    route = TopicRoute.decode(link.call(requests[-1]).body)
    if (len(route.brokers), len(route.queues)) != (brokers, brokers):
        raise AssertionError(f"a route has {len(route.brokers)} brokers, not {brokers}")
    frames = [encode(each) for each in requests]

    waits = []
    for number in range(_ONE_BY_ONE):
        began = time.perf_counter()
        link.send(frames[number % topics])
        link.skip(1)
        waits.append(time.perf_counter() - began)

    per_s, per_cpu_s = _pipelined(server, link, frames, seconds)
    return {
        "route_p50_us": statistics.median(waits) * 1e6,
        "route_p99_us": statistics.quantiles(waits, n=100)[98] * 1e6,
        "routes_per_s": per_s,
        "routes_per_cpu_s": per_cpu_s,
    }


def _heartbeats(server: Server, link: Link, *, brokers: int, seconds: float) -> dict[str, float]:
    frames = [
        encode(
            Frame.request(
                RequestCode.BROKER_HEARTBEAT,
                BrokerHeartbeatRequestHeader(
                    cluster_name="bench",
                    broker_address=_address(number),
                    broker_name=f"broker-{number}",
                ).to_fields(),
            )
        )
        for number in range(brokers)
    ]
    per_s, per_cpu_s = _pipelined(server, link, frames, seconds)
    return {"heartbeats_per_s": per_s, "heartbeats_per_cpu_s": per_cpu_s}


def _pipelined(
    server: Server, link: Link, frames: Sequence[bytes], seconds: float
) -> tuple[float, float]:
    """Send *frames* again and again; return requests per second, of time and of the server's
    processor."""
    began, cpu_s, count = time.perf_counter(), server.cpu_s(), 0
    while time.perf_counter() - began < seconds:
        chosen = [frames[(count + each) % len(frames)] for each in range(_PIPELINED)]
        link.send(b"".join(chosen))
        link.skip(_PIPELINED)
        count += _PIPELINED
    spent_s, spent_cpu_s = time.perf_counter() - began, server.cpu_s() - cpu_s
    return count / spent_s, count / max(spent_cpu_s, 1 / _TICKS)


def _register_large(server: Server, link: Link) -> dict[str, float]:
    request = _registration(0, _LARGE_TABLE, 2)
    began, cpu_s = time.perf_counter(), server.cpu_s()
    link.call(request)
    return {
        "register_10000_topics_ms": (time.perf_counter() - began) * 1e3,
        "register_10000_topics_cpu_ms": (server.cpu_s() - cpu_s) * 1e3,
    }


def _wait_empty(server: Server) -> None:
    """Wait until the brokers are gone, which they are soon after their connections."""
    request = Frame.request(RequestCode.GET_BROKER_CLUSTER_INFO)
    link = Link(server)
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            # Java's nameserver refuses now and then while brokers leave.
            with contextlib.suppress(RemotingError):
                if b"broker-" not in link.call(request).body:
                    return
            time.sleep(0.01)
    finally:
        link.close()
    raise AssertionError("brokers stay registered without a connection")


def main(arguments: list[str] | None = None) -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--brokers", type=int, default=100)
    parser.add_argument("--topics", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=3.0, help="of pipelined queries")
    parser.add_argument("--rounds", type=int, default=3)
    add_options(parser)
    given = parser.parse_args(arguments)

    with chosen(parser, given, "namesrv") as server:
        rounds = []
        for number in range(given.rounds):
            figures = measure(
                server, brokers=given.brokers, topics=given.topics, seconds=given.seconds
            )
            rounds.append(figures)
            if given.json:
                print(json.dumps({"round": number + 1, **figures}), flush=True)
    if not given.json:
        for name in rounds[0]:
            values = [each[name] for each in rounds]
            print(
                f"{name:28} {statistics.median(values):12,.1f}   {min(values):,.1f} to "
                f"{max(values):,.1f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
