"""Replicas of one log: classic and auto-switch HA of RocketMQ, both sides, and quorum writes.

    from rmqstore.replication import Master, Quorum, Slave

    with rmqstore.open("a") as a, Master(a, listen="127.0.0.1:10912", quorum=Quorum(in_sync=2)):
        with rmqstore.open("b") as b, Slave(b, master="127.0.0.1:10912"):
            ...

Decisions are pure state machines in `protocol` and `group` (`group.node` wires them together);
`runtime` runs them over sockets. Importing this package imports none of them before they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmqstore.exports import lazily

if TYPE_CHECKING:
    from rmqstore.epochs import EpochEntry, EpochList
    from rmqstore.replication.facade import Master, ReplicatedStore, Slave
    from rmqstore.replication.group.queue_lock import (
        Grant,
        LockRequest,
        LockTable,
        QueueId,
        Release,
    )
    from rmqstore.replication.group.quorum import Lease, Mode, Quorum
    from rmqstore.replication.group.status import MasterStatus, ReplicaStatus, Status
    from rmqstore.replication.group.sync_state_set import Proposal
    from rmqstore.replication.protocol.events import HaOptions, HaState
    from rmqstore.replication.runtime.replica import Replica

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
    "Replica",
    "ReplicaStatus",
    "ReplicatedStore",
    "Slave",
    "Status",
]

__getattr__ = lazily(
    __name__,
    {
        "rmqstore.epochs": ("EpochEntry", "EpochList"),
        "rmqstore.replication.facade": ("Master", "ReplicatedStore", "Slave"),
        "rmqstore.replication.group.queue_lock": (
            "Grant",
            "LockRequest",
            "LockTable",
            "QueueId",
            "Release",
        ),
        "rmqstore.replication.group.quorum": ("Lease", "Mode", "Quorum"),
        "rmqstore.replication.group.status": ("MasterStatus", "ReplicaStatus", "Status"),
        "rmqstore.replication.group.sync_state_set": ("Proposal",),
        "rmqstore.replication.protocol.events": ("HaOptions", "HaState"),
        "rmqstore.replication.runtime.replica": ("Replica",),
    },
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
