"""Replicas of one log: classic and auto-switch HA of RocketMQ, both sides, and quorum writes.

    from rmqstore.replication import Master, Quorum, Slave

    with rmqstore.open("a") as a, Master(a, listen="127.0.0.1:10912", quorum=Quorum(in_sync=2)):
        with rmqstore.open("b") as b, Slave(b, master="127.0.0.1:10912"):
            ...

Decisions are pure state machines in modules of their own (`node` wires them together);
`service` runs them over sockets. Importing this package imports none of them before they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rmqstore.replication.epoch import EpochEntry, EpochList
    from rmqstore.replication.events import HaOptions, HaState
    from rmqstore.replication.queue_lock import Grant, LockRequest, LockTable, QueueId, Release
    from rmqstore.replication.quorum import Lease, Mode, Quorum
    from rmqstore.replication.service import Master, ReplicatedStore, Slave
    from rmqstore.replication.status import MasterStatus, ReplicaStatus, Status
    from rmqstore.replication.sync_state_set import Proposal

__all__ = [
    "EpochEntry",
    "EpochList",
    "Grant",
    "HaOptions",
    "HaState",
    "Lease",
    "LockRequest",
    "LockTable",
    "Master",
    "MasterStatus",
    "Mode",
    "Proposal",
    "QueueId",
    "Quorum",
    "Release",
    "ReplicaStatus",
    "ReplicatedStore",
    "Slave",
    "Status",
]

_HOMES = {
    "epoch": ("EpochEntry", "EpochList"),
    "events": ("HaOptions", "HaState"),
    "queue_lock": ("Grant", "LockRequest", "LockTable", "QueueId", "Release"),
    "quorum": ("Lease", "Mode", "Quorum"),
    "service": ("Master", "ReplicatedStore", "Slave"),
    "status": ("MasterStatus", "ReplicaStatus", "Status"),
    "sync_state_set": ("Proposal",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{home}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
