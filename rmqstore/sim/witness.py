"""Puts as users make them, and the interface by which replicas report what they do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

from rmqstore.message import Durability, PutStatus
from rmqstore.replication.protocol.events import Effect
from rmqstore.replication.protocol.frames import Frame
from rmqstore.sim.disk import ModelRecord
from rmqstore.sim.network import End

__all__ = ["Put", "Witness"]

R_contra = TypeVar("R_contra", contravariant=True)


@dataclass(slots=True)
class Put:
    """A message somebody wants stored, and what was said to that."""

    number: int
    durability: Durability
    copies: int | None
    queue: int
    size: int
    record: ModelRecord | None = None
    master: int = 0
    life: int = 0
    """Of the master that stored it."""
    status: PutStatus | None = None
    """None while nothing was said."""


class Witness(Protocol[R_contra]):
    """Receives what replicas of one type do."""

    def on_moment(self, replica: R_contra, what: str) -> None:
        """Learn that *what* is about to happen. May raise Died."""

    def on_frame(self, replica: R_contra, frame: Frame, end: End) -> None:
        """Learn that a replica is about to write *frame*."""

    def on_change(self, replica: R_contra, effect: Effect) -> None:
        """Learn that *effect* is about to change the log. May raise Died."""

    def on_confirmed(self, replica: R_contra) -> None:
        """Learn that the confirm offset, or the durable end, has moved."""

    def on_cut(self, replica: R_contra, offset: int) -> None:
        """Learn that the log is about to be cut at *offset*, or given up for one from there on."""

    def on_master(self, replica: R_contra) -> None:
        """Learn that a replica took office."""

    def on_obeyed(self, replica: R_contra, epoch: int) -> None:
        """Record that a replica has taken the role that it was ordered to, in *epoch*."""

    def on_role(self, replica: R_contra) -> None:
        """Learn that a replica serves clients by another role, or with another set."""

    def on_lease(self, replica: R_contra) -> None:
        """Learn that a master got a lease that it did not have before."""

    def on_answer(self, replica: R_contra, put: Put, copies: int) -> None:
        """Learn that a put was answered."""

    def on_death(self, replica: R_contra) -> None:
        """Learn that the process died in the middle of something."""

    def on_error(self, replica: R_contra, error: Exception) -> None:
        """Learn that the product's code raised what it should not."""

    def say(self, text: str) -> None:
        """Write a line of the trace."""
