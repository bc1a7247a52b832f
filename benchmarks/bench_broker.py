"""A broker under clients: pipelined sends, one synchronous client, pulls of full batches, delayed
messages, messages that are sent back, idling.

    python -m benchmarks.bench_broker --address 127.0.0.1:10911 --pid PID [--count 20000]

The broker, of this library or RocketMQ's, is measured by its address and process id. One connection
sends messages of 1 KiB to queue 0 of a topic that the first of them makes, then pulls all of them;
then it sends messages that are delivered 5 s later, and sends the first message back repeatedly.
One figure is the time of a synchronous send while another connection has 1,000 sends in progress.
Processor time is the broker's alone, so that the cost of a message hardly depends on other load.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

from benchmarks.remoting_link import Link, Server
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame, encode
from rmqstore.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmqstore.remoting.headers.queries import GetMaxOffsetRequestHeader, OffsetResponseHeader
from rmqstore.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
)

__all__ = ["main", "measure"]

_PIPELINED = 256
_IN_PROGRESS = 1000
_READABLE_S = 30.0
_DELAY_LEVEL, _LATE_LEVEL = 2, 18
"""5 s, and 2 h."""
_PHYSICAL_OFFSET = 28
"""Where a record has its place in the log."""
_BODY = bytes(1024)
_PROPERTIES = "UNIQ_KEY\x01C000020267764E0E2F2A67BCF9970000\x02WAIT\x01true\x02TAGS\x01TagA\x02"


def measure(server: Server, *, topic: str, count: int, idle_s: float) -> dict[str, float]:
    """Return the figures of *server* with *count* messages, by name."""
    with closing(Link(server)) as link:
        return _measured(server, link, topic=topic, count=count, idle_s=idle_s)


def _measured(
    server: Server, link: Link, *, topic: str, count: int, idle_s: float
) -> dict[str, float]:
    rss_before_mib = server.rss_mib()
    send = _send(topic)
    figures: dict[str, float] = {}
    link.call(send)

    began, cpu_s = time.perf_counter(), server.cpu_s()
    sent = _pipelined(link, send, count)
    figures["sends_per_s"] = sent / (time.perf_counter() - began)
    figures["send_core_us"] = (server.cpu_s() - cpu_s) / sent * 1e6

    alone = _waits(link, send, min(count, 2000))
    figures["sync_send_p50_us"] = statistics.median(alone) * 1e6
    with _flooded(server, topic + "-flood"):
        beside = _waits(link, send, min(count, 500))
    figures["sync_send_beside_1000_p50_us"] = statistics.median(beside) * 1e6

    _wait_for_messages(link, topic, 1 + sent + len(alone) + len(beside))
    figures |= _pulls(server, link, topic, sent)
    figures["delivery_core_us"] = _deliveries(server, link, topic + "-later", count // 4)
    figures["send_back_core_us"] = _send_backs(server, link, topic, count // 4)
    time.sleep(1.0)
    began, cpu_s = time.perf_counter(), server.cpu_s()
    time.sleep(idle_s)
    figures["idle_core_percent"] = (server.cpu_s() - cpu_s) / (time.perf_counter() - began) * 100
    figures["rss_before_mib"] = rss_before_mib
    figures["rss_mib"] = server.rss_mib()
    figures["rss_without_files_mib"] = server.rss_mib() - server.rss_mib("RssFile")
    return figures


def _waits(link: Link, request: Frame, count: int) -> list[float]:
    """Send a request *count* times, and return how long each answer took, in seconds."""
    waits = []
    for _ in range(count):
        began = time.perf_counter()
        link.send(encode(request))
        link.skip(1)
        waits.append(time.perf_counter() - began)
    return waits


@contextmanager
def _flooded(server: Server, topic: str) -> Iterator[None]:
    """Have another process keep 1,000 sends of one connection in progress."""
    process = multiprocessing.get_context("spawn").Process(
        target=_flood, args=(server, topic), daemon=True
    )
    process.start()
    try:
        with closing(Link(server)) as link:
            _wait_for_messages(link, topic, _IN_PROGRESS)
        yield
    finally:
        process.terminate()
        process.join()


def _flood(server: Server, topic: str) -> None:
    piece = encode(_send(topic)) * (_IN_PROGRESS // 4)
    with closing(Link(server)) as link:
        for _ in range(4):
            link.send(piece)
        while True:
            link.skip(_IN_PROGRESS // 4)
            link.send(piece)


def _send(topic: str, properties: str = "") -> Frame:
    header = SendMessageRequestHeaderV2(
        producer_group="bench",
        topic=topic,
        default_topic="TBW102",
        default_topic_queues=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp_ms=1_700_000_000_000,
        flag=0,
        properties=_PROPERTIES + properties,
    )
    return Frame.request(RequestCode.SEND_MESSAGE_V2, header.to_fields(), _BODY)


def _pipelined(link: Link, request: Frame, count: int) -> int:
    """Send a request about *count* times, and return how often."""
    piece, pieces = encode(request) * _PIPELINED, max(count // _PIPELINED, 2)
    link.send(piece)
    for _ in range(pieces - 1):
        link.send(piece)
        link.skip(_PIPELINED)
    link.skip(_PIPELINED)
    return pieces * _PIPELINED


def _deliveries(server: Server, link: Link, topic: str, count: int) -> float:
    """Return the processor time of the delivery of a delayed message, in us."""
    link.call(_send(topic))
    sent = _pipelined(link, _send(topic, f"DELAY\x01{_DELAY_LEVEL}\x02"), count)
    cpu_s = server.cpu_s()
    _wait_for_messages(link, topic, 1 + sent, pause_s=0.1)
    return (server.cpu_s() - cpu_s) / sent * 1e6


def _send_backs(server: Server, link: Link, topic: str, count: int) -> float:
    """Return the processor time of a message that its consumer sends back, in us. None of them is
    delivered meanwhile."""
    asked = link.call(_pull(topic, 0))
    offset = int.from_bytes(asked.body[_PHYSICAL_OFFSET : _PHYSICAL_OFFSET + 8])
    header = ConsumerSendMsgBackRequestHeader(offset=offset, group="bench", delay_level=_LATE_LEVEL)
    request = Frame.request(RequestCode.CONSUMER_SEND_MSG_BACK, header.to_fields())
    link.call(request)
    cpu_s = server.cpu_s()
    sent = _pipelined(link, request, count)
    return (server.cpu_s() - cpu_s) / sent * 1e6


def _wait_for_messages(link: Link, topic: str, count: int, *, pause_s: float = 0.001) -> None:
    """Return once *count* messages can be pulled; a request is sent every *pause_s*. Raises
    RuntimeError for refused sends, which take no time and are no figure."""
    header = GetMaxOffsetRequestHeader(topic=topic, queue_id=0)
    request = Frame.request(RequestCode.GET_MAX_OFFSET, header.to_fields())
    deadline = time.monotonic() + _READABLE_S
    while (found := OffsetResponseHeader.from_fields(link.call(request).ext_fields).offset) < count:
        if time.monotonic() > deadline:
            raise RuntimeError(f"the broker refused {count - found} of {count} sends; see its log")
        time.sleep(pause_s)


def _pulls(server: Server, link: Link, topic: str, count: int) -> dict[str, float]:
    offset, received = 0, 0
    began, cpu_s = time.perf_counter(), server.cpu_s()
    while offset < count:
        answer = link.call(_pull(topic, offset))
        offset = PullMessageResponseHeader.from_fields(answer.ext_fields).next_offset
        received += len(answer.body)
    spent_s, core_s = time.perf_counter() - began, server.cpu_s() - cpu_s
    return {
        "pulled_mb_per_s": received / spent_s / 1e6,
        "pulled_mb_per_core_s": received / max(core_s, 1e-3) / 1e6,
    }


def _pull(topic: str, offset: int) -> Frame:
    header = PullMessageRequestHeader(
        consumer_group="bench",
        topic=topic,
        queue_id=0,
        queue_offset=offset,
        max_messages=32,
        sys_flag=PullFlag.SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_ms=0,
        subscription="*",
        subscription_version=0,
        expression_type="TAG",
    )
    return Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())


def main(arguments: list[str] | None = None) -> int:
    """Run with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--address", required=True, help="HOST:PORT of the broker")
    parser.add_argument("--pid", type=int, required=True, help="its process id")
    parser.add_argument("--topic", default="bench0", help="one that the broker does not have yet")
    parser.add_argument("--count", type=int, default=20_000, help="messages")
    parser.add_argument("--idle", type=float, default=10.0, help="seconds of idling")
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    given = parser.parse_args(arguments)

    host, _, port = given.address.rpartition(":")
    server = Server(host, int(port), given.pid)
    figures = measure(server, topic=given.topic, count=given.count, idle_s=given.idle)
    if given.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:28} {value:12,.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
