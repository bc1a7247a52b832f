"""Decisions about a master's board: how the rule by which puts are resolved is changed.

The board (csrc/replica/ack_board.h) resolves puts and moves the confirm offset on whatever thread
an acknowledgement arrives. Its rule comes from the group. Every event of the master's node is a
step of a decision:

1. The board freezes: it only notes acknowledgements, and the confirm offset stays.
2. The group takes what the board noted.
3. The step runs; the group decides.
4. The board takes the acknowledgements that the step took, and thaws with the group's new rule.

Only then the caller applies the effects. So no set is proposed, and no connection closed, while
puts still resolve by the previous rule. The service runs this over a store, the simulator and the
scenarios over a model of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqstore.errors import StoreError
from rmqstore.replication.group.node import MasterNode, NodeEffect

__all__ = ["Board", "MasterBoard", "Step"]

Step = Callable[[int], list[NodeEffect]]
"""An event of the node; it gets the time in milliseconds."""


class Board(Protocol):
    """What a decision needs of an AckBoard."""

    def open_slot(self) -> int: ...
    def close_slot(self, slot: int) -> None: ...
    def ack(self, slot: int, offset: int, *, epoch: int) -> None: ...
    def acks(self) -> dict[int, tuple[int, int]]: ...
    def freeze(self) -> int: ...
    @property
    def thaw(self) -> Callable[..., None]: ...


class MasterBoard:
    """A master's node, and the board on which its replicas acknowledge."""

    def __init__(self, node: MasterNode, board: Board) -> None:
        self.node = node
        self.is_frozen = True
        self._board = board
        self._slots: dict[int, int] = {}
        self._handed_over: set[int] = set()

    def slot(self, connection: int) -> int:
        """Return the slot of a connection of the node."""
        return self._slots[connection]

    def hand_over(self, connection: int) -> None:
        """Let others acknowledge on the slot of a connection, on the board itself."""
        self._handed_over.add(connection)

    def take_back(self, connection: int) -> None:
        """Let the node's machine acknowledge for a connection again."""
        self._handed_over.discard(connection)

    def decide(self, step: Step, now_ms: int) -> tuple[list[NodeEffect], StoreError | None]:
        """Run *step* as a decision; return the effects, and the StoreError that the step raised.

        After any other exception the board stays frozen: nothing is acknowledged by a rule that may
        be wrong.
        """
        confirm_offset = self._board.freeze()
        self.is_frozen = True
        effects = self._read_board(confirm_offset, now_ms)

        failure: StoreError | None = None
        try:
            effects += step(now_ms)
        except StoreError as error:
            failure = error

        self._write_board()
        self._thaw()
        self.is_frozen = False
        self._close_slots()
        return effects, failure

    def _read_board(self, confirm_offset: int, now_ms: int) -> list[NodeEffect]:
        acks = self._board.acks()
        group = self.node.group
        # The end of the log is read after the acknowledgements, so none of them is past it.
        self.node.follow_log()
        group.confirm_offset = confirm_offset
        effects: list[NodeEffect] = []
        for replica in list(group.replicas):
            noted = acks[self._slots[replica.connection]]
            if noted[0] >= 0 and noted != (replica.ack_offset, replica.epoch):
                effects += self.node.apply(
                    group.acked(replica.connection, noted[0], now_ms, epoch=noted[1])
                )
        return effects

    def _write_board(self) -> None:
        for connection in self.node.connections:
            if connection not in self._slots:
                self._slots[connection] = self._board.open_slot()

        acks = self._board.acks()
        for replica in self.node.group.replicas:
            held = (replica.ack_offset, replica.epoch)
            slot = self._slots[replica.connection]
            is_ours = replica.connection not in self._handed_over
            if is_ours and replica.ack_offset >= 0 and held != acks[slot]:
                self._board.ack(slot, replica.ack_offset, epoch=replica.epoch)

    def _thaw(self) -> None:
        rule = self.node.rule()
        slots = {each.broker_id: self._slots[each.connection] for each in self.node.group.replicas}
        waited = rule.waited

        self._board.thaw(
            counted=[slots[each] for each in rule.counted],
            waited=None if waited is None else [slots[each] for each in waited if each in slots],
            is_missing=waited is not None and not slots.keys() >= set(waited),
            is_gated=rule.is_gated,
            is_flushed=rule.is_flushed,
            confirm_copies=rule.confirm_copies,
            epoch=rule.epoch,
            epoch_start=rule.epoch_start,
            status=rule.status,
            reason=rule.reason,
            copies=rule.copies,
            needs_all=rule.needs_all,
            present=rule.present,
            available=rule.available,
            lease_end_ms=rule.lease_end_ms,
            timeout_ms=rule.timeout_ms,
        )

    def _close_slots(self) -> None:
        """Close the slots of connections that are gone; the rule names them no longer."""
        for connection in self._slots.keys() - self.node.connections:
            self._board.close_slot(self._slots.pop(connection))
            self._handed_over.discard(connection)
