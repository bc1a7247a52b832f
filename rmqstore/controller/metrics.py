"""The metrics of a controller, under RocketMQ's names where RocketMQ has the same metric."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from rmqstore.controller.group import Group
from rmqstore.controller.leader import Waiting
from rmqstore.controller.liveness import Liveness
from rmqstore.net.metrics import Family, RequestMetrics, counter, gauge, histogram
from rmqstore.remoting.codes import RequestCode, ResponseCode

__all__ = ["ControllerMetrics"]

_LEADER, _FOLLOWER = 3, 2
_BOUNDS_US = (
    *(step * 10**power for power in range(7) for step in (1, 3, 5)),
    10_000_000,
)
"""RocketMQ's bounds: 1 us to 10 s."""
_PREFIX = "CONTROLLER_"
_ELECTION_RESULTS = ("new_master_elected", "keep_current_master", "no_master_elected")


class ControllerMetrics:
    """The counters of a node; the state has the other metrics."""

    def __init__(self) -> None:
        self._requests = RequestMetrics(_BOUNDS_US)
        self._commits = RequestMetrics(_BOUNDS_US)
        self._elections = dict.fromkeys(_ELECTION_RESULTS, 0)
        self._risky = 0

    def observe(self, code: int, answer: int, seconds: float) -> None:
        """Count a request of a known code; a server error in the answer counts as a failure."""
        name = RequestCode(code).name
        kind = name if name.startswith(_PREFIX) else f"{_PREFIX}{name}"
        status = "failed" if answer == ResponseCode.SYSTEM_ERROR else "success"
        self._requests.observe(kind.lower(), status, seconds * 1e6)

    def committed(self, status: str, seconds: float) -> None:
        """Count a command for the log: success, failed or timeout."""
        self._commits.observe("append", status, seconds * 1e6)

    def elected(self, master_id: int | None, *, is_risky: bool = False) -> None:
        """Count an election that took effect; *is_risky*: acknowledged messages may be lost."""
        self._elections["no_master_elected" if master_id is None else "new_master_elected"] += 1
        self._risky += is_risky

    def kept(self) -> None:
        """Count an election after which the present master remains."""
        self._elections["keep_current_master"] += 1

    def families(
        self,
        node: Mapping[str, str],
        groups: Collection[Group],
        liveness: Liveness,
        waiting: Mapping[str, Waiting],
        *,
        is_leader: bool,
        term: int,
        task_failures: int,
        disk_bytes: int | None,
        now_ms: int,
    ) -> Iterator[Family]:
        """Yield every metric; *node* holds the labels of all metrics, *disk_bytes* the size of the
        log's directory if it has one."""
        role = _LEADER if is_leader else _FOLLOWER
        yield gauge("role", "Role of this node: 3 leads, 2 follows.", [(node, role)])
        yield gauge("rmqstore_term", "Term of the log.", [(node, term)])
        yield counter(
            "rmqstore_task_failures_total",
            "Tasks that ended with an error.",
            [(node, task_failures)],
        )
        yield gauge(
            "dledger_disk_usage",
            "Bytes of the files of the log.",
            [] if disk_bytes is None else [(node, disk_bytes)],
        )
        yield from self._groups(node, groups, liveness, waiting, now_ms)
        yield counter(
            "election_total",
            "Elections by their result.",
            [
                ({**node, "election_result": result}, count)
                for result, count in self._elections.items()
            ],
        )
        yield counter(
            "rmqstore_risky_elections_total",
            "Elections after which acknowledged messages may be missing.",
            [(node, self._risky)],
        )
        yield from _requests(
            "request", self._requests, node, "request_type", "request_handle_status"
        )
        yield from _requests(
            "dledger_op", self._commits, node, "dledger_operation", "dLedger_operation_status"
        )

    def _groups(
        self,
        node: Mapping[str, str],
        groups: Collection[Group],
        liveness: Liveness,
        waiting: Mapping[str, Waiting],
        now_ms: int,
    ) -> Iterator[Family]:
        labelled = [
            ({**node, "cluster": group.cluster, "broker_set": group.name}, group)
            for group in groups
        ]
        yield gauge(
            "active_broker_num",
            "Brokers that send heartbeats.",
            [
                (labels, sum(1 for _ in liveness.living(group.name, group.brokers, now_ms)))
                for labels, group in labelled
            ],
        )
        yield gauge(
            "rmqstore_master_epoch",
            "Epoch of the master.",
            [(labels, group.master_epoch) for labels, group in labelled],
        )
        yield gauge(
            "rmqstore_sync_state_set_size",
            "Members of the sync-state set.",
            [(labels, len(group.sync_state_set)) for labels, group in labelled],
        )
        yield gauge(
            "rmqstore_has_master",
            "1 for a group with a master, else 0.",
            [(labels, int(group.master_id is not None)) for labels, group in labelled],
        )
        yield gauge(
            "rmqstore_waits_for_replicas",
            "1 for each replica that must report before a master can be elected.",
            [
                ({**labels, "broker_id": str(each)}, 1)
                for labels, group in labelled
                if group.name in waiting
                for each in sorted(waiting[group.name].waits_for)
            ],
        )


def _requests(
    name: str, metrics: RequestMetrics, node: Mapping[str, str], kind: str, status: str
) -> Iterator[Family]:
    found = [
        ({**node, kind: each, status: result}, latencies)
        for (each, result), latencies in metrics.latencies.items()
    ]
    yield counter(
        f"{name}_total",
        "Requests." if name == "request" else "Commands for the log.",
        [(labels, sum(latencies.counts)) for labels, latencies in found],
    )
    yield histogram(f"{name}_latency", "Duration in microseconds.", found)
