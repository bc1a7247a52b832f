"""Serves metrics to Prometheus: GET /metrics over HTTP, on the loop of the server they describe.

prometheus-client, which the extra `metrics` brings, writes the text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from rmqstore.config import BrokerConfig, ControllerConfig, MetricsExporter, NameserverConfig
from rmqstore.errors import MissingExtraError
from rmqstore.net import descriptors
from rmqstore.net.addresses import Address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.metrics import Family, Histogram
from rmqstore.net.sockets import listen_on

__all__ = ["MetricsEndpoint"]

_HEAD_BYTES_MAX = 16 * 1024
_TIMEOUT_S = 10.0
_CONNECTIONS_MAX = 64

_log = IdentityLog("rmqstore.metrics")


class MetricsEndpoint:
    """Answers GET /metrics at *place* with the metrics that *collect* returns for each request.

    The constructor raises MissingExtraError without prometheus-client.
    """

    @classmethod
    def from_config(
        cls,
        config: NameserverConfig | ControllerConfig | BrokerConfig,
        collect: Callable[[], Iterable[Family]],
    ) -> MetricsEndpoint | None:
        """Return the endpoint of a server with these settings, None unless the exporter is PROM."""
        if config.metrics_exporter is MetricsExporter.DISABLE:
            return None
        if config.metrics_exporter is not MetricsExporter.PROM:
            _log.warning("metricsExporterType=%s has no effect here", config.metrics_exporter)
            return None
        host = config.metrics_host or config.bind_address
        return cls((host, config.metrics_port), collect)

    def __init__(self, place: Address, collect: Callable[[], Iterable[Family]]) -> None:
        self._place = place
        self._collect = collect
        self._prometheus = _import()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def address(self) -> Address:
        """Host and port at which the endpoint listens."""
        assert self._server is not None, "the endpoint is started"
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self) -> None:
        """Listen. Raises ArgumentError where the address cannot be used."""
        self._server = await asyncio.start_server(
            self._serve, sock=listen_on(self._place), limit=_HEAD_BYTES_MAX
        )

    async def close(self) -> None:
        """Stop listening and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for writer in tuple(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = writer.get_extra_info("socket").fileno()
        if len(self._open) >= _CONNECTIONS_MAX or descriptors.refusal(number, is_client=False):
            writer.transport.abort()
            return
        self._open.add(writer)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            # TimeoutError is an OSError: the client sent no request, or does not read.
            writer.transport.abort()
        finally:
            self._open.discard(writer)

    def _answer(self, head: bytes) -> bytes:
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response("405 Method Not Allowed", b"use GET\n")
        if path != b"/metrics":
            return _response("404 Not Found", b"see /metrics\n")
        try:
            text = self._text()
        except Exception:
            _log.exception("metrics cannot be collected")
            return _response("500 Internal Server Error", b"see the log\n")
        kind = self._prometheus.CONTENT_TYPE_LATEST
        return _response("200 OK", text if method == b"GET" else b"", kind)

    def _text(self) -> bytes:
        core = self._prometheus.core
        makers = {
            "counter": core.CounterMetricFamily,
            "gauge": core.GaugeMetricFamily,
            "histogram": core.HistogramMetricFamily,
        }
        families = [_converted(makers[each.kind], each) for each in self._collect()]

        class Collected:
            def collect(self) -> Iterator[Any]:
                return iter(families)

        text: bytes = self._prometheus.generate_latest(Collected())
        return text


def _converted(maker: Any, family: Family) -> Any:
    names = sorted({name for labels, _ in family.samples for name in labels})
    made = maker(family.name, family.help, labels=names)
    for labels, value in family.samples:
        values = [labels.get(name, "") for name in names]
        if isinstance(value, Histogram):
            made.add_metric(values, buckets=_buckets(value), sum_value=value.sum)
        else:
            made.add_metric(values, value)
    return made


def _buckets(histogram: Histogram) -> list[tuple[str, int]]:
    total, found = 0, []
    for bound, count in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += count
        found.append(("+Inf" if bound is None else f"{float(bound)}", total))
    return found


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + body


def _import() -> ModuleType:
    try:
        import prometheus_client
        import prometheus_client.core
    except ImportError as error:
        raise MissingExtraError(
            "metricsExporterType=PROM needs prometheus-client; pip install 'rmqstore[metrics]'"
        ) from error
    return prometheus_client
