"""Puts as users made them, and who sees what replicas do: between `replica` and `checker`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from rmqstore.message import Durability, PutStatus
from rmqstore.replication.events import Effect
from rmqstore.sim.disk import ModelRecord

if TYPE_CHECKING:
    from rmqstore.replication.frames import Frame
    from rmqstore.sim.network import End
    from rmqstore.sim.replica import Replica

__all__ = ["Put", "Witness"]


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


class Witness(Protocol):
    """Who sees what replicas do."""

    def on_moment(self, replica: Replica, what: str) -> None:
        """Learn that *what* is about to happen. May raise Died."""

    def on_frame(self, replica: Replica, frame: Frame, end: End) -> None:
        """Learn that a master is about to write *frame*."""

    def on_change(self, replica: Replica, effect: Effect) -> None:
        """Learn that *effect* is about to change the log. May raise Died."""

    def on_confirmed(self, replica: Replica) -> None:
        """Learn that the confirm offset, or the durable end, has moved."""

    def on_cut(self, replica: Replica, offset: int) -> None:
        """Learn that the log is about to be cut at *offset*, or given up for one from there on."""

    def on_master(self, replica: Replica) -> None:
        """Learn that a replica took office."""

    def on_answer(self, replica: Replica, put: Put, copies: int) -> None:
        """Learn that a put was answered."""

    def on_death(self, replica: Replica) -> None:
        """Learn that the process died in the middle of something."""

    def on_error(self, replica: Replica, error: Exception) -> None:
        """Learn that the product's code raised what it should not."""

    def say(self, text: str) -> None:
        """Write a line of the trace."""
