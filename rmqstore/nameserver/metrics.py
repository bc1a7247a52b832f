"""The metrics of a nameserver. RocketMQ's nameserver has none; names are those of its broker where
it has the same metric."""

from __future__ import annotations

from collections.abc import Iterator

from rmqstore.nameserver.routes import RouteTable
from rmqstore.net.metrics import Family, RequestMetrics, counter, gauge, histogram
from rmqstore.remoting.codes import RequestCode, ResponseCode

__all__ = ["NameserverMetrics"]

_BOUNDS_MS = (0.1, 0.3, 1, 3, 5, 10, 30, 100, 300, 1000, 3000, 10000)


class NameserverMetrics:
    """The counters of a nameserver; the table has the other metrics."""

    def __init__(self) -> None:
        self._requests = RequestMetrics(_BOUNDS_MS)

    def observe(self, code: int, answer: int, seconds: float) -> None:
        """Count a request of a known code."""
        name = ResponseCode(answer).name if answer in _RESPONSES else "OTHER"
        self._requests.observe(RequestCode(code).name, name, seconds * 1000)

    def families(
        self, table: RouteTable, *, connections: int, refused: int, task_failures: int
    ) -> Iterator[Family]:
        """Yield every metric, with the present state of the table."""
        info = table.cluster_info()
        brokers = [
            ({"cluster": cluster}, sum(len(info.brokers[each].addresses) for each in names))
            for cluster, names in sorted(info.clusters.items())
        ]
        topics = len(table.topics().topics)
        yield gauge("rocketmq_topic_number", "Topics with a route.", [({}, topics)])
        yield gauge("rmqstore_active_broker_num", "Live brokers of each cluster.", brokers)
        yield gauge("rmqstore_connections", "Open connections.", [({}, connections)])
        yield counter(
            "rmqstore_refused_connections_total",
            "Connections refused because too many were open.",
            [({}, refused)],
        )
        yield counter(
            "rmqstore_task_failures_total", "Tasks that ended with an error.", [({}, task_failures)]
        )
        yield histogram(
            "rocketmq_rpc_latency",
            "Time from a request to its answer, in milliseconds.",
            [
                (
                    {"protocol_type": "remoting", "request_code": code, "response_code": answer},
                    latencies,
                )
                for (code, answer), latencies in self._requests.latencies.items()
            ],
        )


_RESPONSES = frozenset(ResponseCode)
