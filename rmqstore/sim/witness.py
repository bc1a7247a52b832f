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
    """A message to store, and the answer."""

    number: int
    durability: Durability
    copies: int | None
    queue: int
    size: int
    record: ModelRecord | None = None
    master: int = 0
    life: int = 0
    """The epoch of the master that stored it."""
    status: PutStatus | None = None
    """None until it is answered."""


class Witness(Protocol[R_contra]):
    """Receives the events of replicas of one type."""

    def on_moment(self, replica: R_contra, what: str) -> None:
        """Called when *what* is about to happen. May raise Died."""

    def on_frame(self, replica: R_contra, frame: Frame, end: End) -> None:
        """Called when a replica is about to write *frame*."""

    def on_change(self, replica: R_contra, effect: Effect) -> None:
        """Called when *effect* is about to change the log. May raise Died."""

    def on_confirmed(self, replica: R_contra) -> None:
        """Called when the confirm offset or the durable end has changed."""

    def on_cut(self, replica: R_contra, offset: int) -> None:
        """Called when the log is about to be cut at *offset*, or replaced by a log that begins
        there."""

    def on_master(self, replica: R_contra) -> None:
        """Called when a replica became master."""

    def on_obeyed(self, replica: R_contra, epoch: int) -> None:
        """Record that a replica has taken the role that it was ordered to, in *epoch*."""

    def on_lease(self, replica: R_contra) -> None:
        """Called when a master got a lease that it did not have before."""

    def on_answer(self, replica: R_contra, put: Put, copies: int) -> None:
        """Called when a put was answered."""

    def on_death(self, replica: R_contra) -> None:
        """Called when the process died during its work."""

    def on_error(self, replica: R_contra, error: Exception) -> None:
        """Called when production code raised an unexpected error."""

    def say(self, text: str) -> None:
        """Write a line of the trace."""
