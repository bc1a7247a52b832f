"""A view of broker groups for `rmqstore top`: masters, epochs, sets, lag and leases.

    async with NameserverAdmin("10.0.0.1:9876") as nameserver:
        view = await observe(nameserver, None, ["broker-a"])

A nameserver names the live brokers, a controller the masters and sync-state sets, and each broker
reports the end of its log and its lease. Values that no server reports are None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from rmqstore import arguments
from rmqstore.admin.controller import ControllerAdmin
from rmqstore.admin.nameserver import NameserverAdmin
from rmqstore.admin.servers import ServerAdmin
from rmqstore.errors import ArgumentError, RemotingError
from rmqstore.remoting.bodies.cluster import ClusterInfo
from rmqstore.remoting.bodies.controller import ReplicasInfo

__all__ = ["HEADS", "SPARE_HEADS", "ReplicaRow", "View", "observe"]

HEADS = (
    *("broker name", "id", "address", "role", "alive", "epoch", "in sync", "set epoch"),
    *("end offset", "lag", "lease"),
)
"""The column heads."""
SPARE_HEADS = ("set epoch", "epoch", "end offset", "alive", "in sync", "lease", "lag", "role")
"""The columns that a narrow view leaves out, the first one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """A broker of a group."""

    broker_name: str
    broker_id: int
    """The controller's id if a controller answered, otherwise the nameserver's."""
    address: str
    is_master: bool
    is_alive: bool
    epoch: int | None = None
    """The group's epoch at the controller, else the last epoch in the broker's log."""
    is_in_sync: bool | None = None
    set_epoch: int | None = None
    end_offset: int | None = None
    lag_bytes: int | None = None
    """The bytes that the master has and this broker lacks, according to their reports."""
    lease_ms: int | None = None
    """Rest of the lease of a master of this library; 0 while it may not acknowledge."""

    def cells(self) -> tuple[object, ...]:
        """Return the cells of the row, in the order of HEADS."""
        words = {None: "-", True: "yes", False: "no"}
        numbers = (self.set_epoch, self.end_offset, self.lag_bytes)
        set_epoch, end, lag = ("-" if each is None else each for each in numbers)
        lease = "-" if self.lease_ms is None else f"{self.lease_ms} ms"
        return (
            *(self.broker_name, self.broker_id, self.address),
            "master" if self.is_master else "slave",
            words[self.is_alive],
            "-" if self.epoch is None else self.epoch,
            *(words[self.is_in_sync], set_epoch, end, lag, lease),
        )

    def to_fields(self) -> dict[str, object]:
        """Return the row as an object for JSON."""
        return {
            "brokerName": self.broker_name,
            "brokerId": self.broker_id,
            "brokerAddr": self.address,
            "role": "master" if self.is_master else "slave",
            "alive": self.is_alive,
            "epoch": self.epoch,
            "inSync": self.is_in_sync,
            "syncStateSetEpoch": self.set_epoch,
            "endOffset": self.end_offset,
            "lagBytes": self.lag_bytes,
            "leaseMillis": self.lease_ms,
        }


@dataclass(frozen=True, slots=True)
class View:
    """The groups at the time of one observation."""

    rows: Sequence[ReplicaRow]
    waits: Mapping[str, str]
    """Why groups have no master, or what is wrong with a group that has one, by name."""
    unknown: Sequence[str]
    """Names of groups that no server knows."""

    def to_fields(self) -> dict[str, object]:
        """Return the view as an object for JSON."""
        return {
            "brokers": [row.to_fields() for row in self.rows],
            "waitReasons": dict(sorted(self.waits.items())),
            "unknown": list(self.unknown),
        }


async def observe(
    nameserver: NameserverAdmin | None,
    controller: ControllerAdmin | None,
    names: Collection[str] | None = None,
    *,
    cluster: str | None = None,
) -> View:
    """Return the state of the groups *names*, by default of those with a live broker at the
    nameserver, or in one *cluster* there.

    A group that the controller does not know is shown with the nameserver's data. A broker that
    does not answer has no end offset. Raises ArgumentError if both names and a nameserver are
    missing, RemotingError if the nameserver or controller does not answer.
    """
    for name, value, kind in (
        ("nameserver", nameserver, NameserverAdmin),
        ("controller", controller, ControllerAdmin),
    ):
        if value is not None:
            arguments.instance(name, value, kind)
    if names is not None:
        names = [
            arguments.text("a name", each) for each in arguments.items("names", names, "names")
        ]
    server = nameserver or controller
    if server is None or (nameserver is None and not names):
        raise ArgumentError("give a nameserver, or a controller and the names of broker groups")
    if not names:
        assert nameserver is not None
        names = await nameserver.broker_names(cluster)
    groups = [] if controller is None else await controller.sync_state_sets(names)
    rows = [row for group in groups for row in _of_controller(group)]
    if nameserver is not None:
        others = set(names) - {group.broker_name for group in groups}
        rows += _of_nameserver(await nameserver.cluster_list(), others)

    reports = await asyncio.gather(*(_report_of(server, row) for row in rows))
    return View(
        _with_offsets(list(zip(rows, reports, strict=True))),
        {group.broker_name: group.wait_reason for group in groups if group.wait_reason},
        sorted(set(names) - {row.broker_name for row in rows}),
    )


def _of_controller(group: ReplicasInfo) -> list[ReplicaRow]:
    rows = [
        ReplicaRow(
            broker_name=group.broker_name,
            broker_id=each.broker_id,
            address=each.address,
            is_master=each.broker_id == group.master_id,
            is_alive=each.is_alive,
            epoch=group.master_epoch,
            is_in_sync=each in group.in_sync,
            set_epoch=group.set_epoch,
        )
        for each in (*group.in_sync, *group.not_in_sync)
    ]
    return sorted(rows, key=lambda row: row.broker_id)


def _of_nameserver(info: ClusterInfo, names: Collection[str]) -> list[ReplicaRow]:
    return [
        ReplicaRow(
            broker_name=name,
            broker_id=broker_id,
            address=address,
            is_master=broker_id == 0,
            is_alive=True,
        )
        for name in sorted(set(names) & info.brokers.keys())
        for broker_id, address in sorted(info.brokers[name].addresses.items())
    ]


@dataclass(frozen=True, slots=True)
class _Report:
    """A broker's report of its log and, for a master, of its lease."""

    end_offset: int
    last_epoch: int | None = None
    lease_ms: int | None = None


async def _report_of(server: ServerAdmin, row: ReplicaRow) -> _Report | None:
    if not row.is_alive:
        return None
    # A broker without epochs does not answer the first request, and a slave has no lease.
    report = await _epoch_report(server, row.address)
    if report is not None and not row.is_master:
        return report
    try:
        status = await server.broker_status(row.address)
        end_offset = int(status.get("commitLogMaxOffset", ""))
        lease = status.get("leaseRemainingMillis")
        lease_ms = None if lease is None else int(lease)
    except (RemotingError, ValueError):
        return report
    if report is None:
        return _Report(end_offset, lease_ms=lease_ms)
    return replace(report, lease_ms=lease_ms)


async def _epoch_report(server: ServerAdmin, address: str) -> _Report | None:
    try:
        cache = await server.epoch_cache(address)
    except (RemotingError, ValueError):
        return None
    return _Report(cache.end_offset, cache.entries[-1].epoch if cache.entries else None)


def _with_offsets(pairs: Sequence[tuple[ReplicaRow, _Report | None]]) -> list[ReplicaRow]:
    ends = {row.broker_name: found.end_offset for row, found in pairs if row.is_master and found}
    rows = []
    for row, found in pairs:
        if found is not None:
            master_end = ends.get(row.broker_name)
            row = replace(
                row,
                epoch=found.last_epoch if row.epoch is None else row.epoch,
                end_offset=found.end_offset,
                lag_bytes=None if master_end is None else max(0, master_end - found.end_offset),
                lease_ms=found.lease_ms,
            )
        rows.append(row)
    return rows
