"""The status of replication: the plain values that `ReplicatedStore.status` returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rmqstore.epochs import EpochEntry
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import HaState

__all__ = ["MasterStatus", "ReplicaStatus", "Status"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One connection of a master."""

    broker_id: int | None
    """None before it has named itself."""
    address: tuple[str, int]
    state: HaState
    is_learner: bool
    ack_offset: int
    """Physical offset up to which it holds the log; -1 before it said anything."""
    lag_bytes: int
    is_counted: bool
    """Whether its copies count for puts."""
    connected_ms: int
    """Clock reading (monotonic) of its connection."""
    caught_up_ms: int | None
    """Clock reading (monotonic) when it last held all that the master had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterStatus:
    """The master of a slave, as the slave sees it."""

    address: tuple[str, int]
    state: HaState
    acked_offset: int
    """What was acknowledged to it last on this connection, -1 for nothing."""
    master_end: int
    """Physical offset up to which it is known to hold bytes, -1 for unknown."""
    lag_bytes: int
    last_error: str
    """Why the last connection ended or did not come about, "" for no reason; it stays while a later
    one works."""
    halted_reason: str | None
    """Why the slave stopped for an operator to act, None while it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """All of a replicated store at one moment. Offsets are physical ones."""

    role: Literal["master", "slave"] | None
    broker_id: int
    epoch: int
    """The highest epoch known from an order, the log or a master, -1 for none."""
    synced_epoch: int
    """The epoch of the last master whose log this process held up to its end, or in which it was
    master itself; -1 for none."""
    epochs: tuple[EpochEntry, ...]
    address: tuple[str, int] | None
    """Where slaves connect, None where none may."""
    start_offset: int
    is_partial: bool
    """Whether the log lacks the beginning that its master's had when this one began: it began with
    the master's last file. It ends with the deletion of the first file."""
    end_offset: int
    whole_end: int
    """End of the last whole record that was checked; `end_offset` but for the part of a record that
    a slave has not received whole. An election compares replicas by this one."""
    flushed_offset: int
    confirm_offset: int
    sync_state_set: frozenset[int] | None
    """The set confirmed last, None without one."""
    sync_state_set_epoch: int
    proposals: tuple[Proposal, ...]
    """Changes of the set that wait for an answer."""
    replicas: tuple[ReplicaStatus, ...]
    master: MasterStatus | None
    failure: str | None
    """Why the last role ended by itself, None when it did not."""
