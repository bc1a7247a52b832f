"""The metrics of a broker, with RocketMQ's names where its broker has the same metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.config import BrokerConfig
from rmqstore.net.metrics import Family, RequestMetrics, counter, gauge, histogram
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.replication.group.status import Status

__all__ = ["BrokerMetrics", "Counts", "node_labels"]

_BOUNDS_MS = (1, 3, 5, 10, 100, 1000, 3000)
_RESPONSES = frozenset(ResponseCode)
_ROLES = {
    Standing.LEADING: 2,
    Standing.FOLLOWING: 1,
    Standing.STANDING_IN: 1,
    Standing.NONE: 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The present numbers of a broker."""

    permission: int
    topics: int
    groups: int
    dispatched_offset: int
    connections: int
    in_progress: Mapping[str, int]
    """Requests in progress, by family."""
    refused_connections: int
    absent_nameservers: int
    task_failures: int
    failing_services: int


def node_labels(config: BrokerConfig) -> dict[str, str]:
    """Return the labels of a broker, which all its metrics of RocketMQ have."""
    return {"cluster": config.cluster_name, "node_type": "broker", "node_id": config.name}


class BrokerMetrics:
    """The counters of a broker; the store and the tables have the other metrics."""

    def __init__(self) -> None:
        self._requests = RequestMetrics(_BOUNDS_MS)

    def observe(self, code: int, answer: int, seconds: float) -> None:
        """Count a request of a known code."""
        name = ResponseCode(answer).name if answer in _RESPONSES else "OTHER"
        self._requests.observe(RequestCode(code).name, name, seconds * 1000)

    def families(
        self, node: Mapping[str, str], counts: Counts, role: Role, status: Status | None
    ) -> Iterator[Family]:
        """Yield every metric, with the labels *node* of this broker."""

        def one(name: str, text: str, value: float) -> Family:
            return gauge(name, text, [(node, value)])

        yield one("rocketmq_broker_permission", "4 to read and 2 to write.", counts.permission)
        yield one("rocketmq_topic_number", "Topics.", counts.topics)
        yield one("rocketmq_consumer_group_number", "Groups of consumers.", counts.groups)
        yield one("rmqstore_role", "2 master, 1 slave, 0 not known.", _ROLES[role.standing])
        yield one(
            "rmqstore_master_waits",
            "1 while this broker, the master by its file, does not lead: slaves may hold more.",
            bool(role.waits_for),
        )
        yield one("rmqstore_master_epoch", "Epoch of the master.", max(role.epoch, 0))
        yield one("rmqstore_sync_state_set_size", "Members in sync.", len(role.members))
        if status is not None:
            yield from _of_log(node, counts, status)
        yield one(
            "rmqstore_absent_nameservers",
            "Nameservers that do not know this broker.",
            counts.absent_nameservers,
        )
        yield one("rmqstore_connections", "Open connections.", counts.connections)
        yield counter(
            "rmqstore_refused_connections_total",
            "Connections refused because too many were open.",
            [(node, counts.refused_connections)],
        )
        yield gauge(
            "rmqstore_requests_in_progress",
            "Requests that wait for their results, of families with a limit.",
            [({**node, "family": name}, count) for name, count in counts.in_progress.items()],
        )
        yield counter(
            "rmqstore_task_failures_total",
            "Tasks that ended with an error.",
            [(node, counts.task_failures)],
        )
        yield one(
            "rmqstore_failing_services",
            "Services that failed to start or to stop, and try again.",
            counts.failing_services,
        )
        yield histogram(
            "rocketmq_rpc_latency",
            "Time from a request to its answer, in milliseconds.",
            [
                (
                    {
                        **node,
                        "protocol_type": "remoting",
                        "request_code": code,
                        "response_code": answer,
                    },
                    latencies,
                )
                for (code, answer), latencies in self._requests.latencies.items()
            ],
        )


def _of_log(node: Mapping[str, str], counts: Counts, status: Status) -> Iterator[Family]:
    disk = {**node, "storage_type": "local", "storage_medium": "disk"}
    end = status.end_offset
    for name, text, value in (
        ("rocketmq_storage_size", "Bytes of the commit log.", end - status.start_offset),
        (
            "rocketmq_storage_flush_behind_bytes",
            "Bytes of the commit log that are not on the disk.",
            end - status.flushed_offset,
        ),
        (
            "rocketmq_storage_dispatch_behind_bytes",
            "Bytes of the commit log that are not in queues and index.",
            end - counts.dispatched_offset,
        ),
        (
            "rmqstore_confirm_behind_bytes",
            "Bytes of the commit log that the replicas have not confirmed.",
            end - status.confirm_offset,
        ),
    ):
        yield gauge(name, text, [(disk, value)])
    yield gauge(
        "rmqstore_slave_lag_bytes",
        "Bytes that each connected slave has not acknowledged.",
        [
            ({**node, "slave": str(each.broker_id)}, each.lag_bytes)
            for each in status.replicas
            if each.broker_id is not None
        ],
    )
