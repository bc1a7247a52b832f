"""The board of production and the reference, side by side: each call goes to both, and they agree.

Takes the places of VirtualLog, AckBoard and AckInbox (`compare_boards`), so that whole histories of
groups and simulated worlds compare them.
"""

from __future__ import annotations

from typing import Any

import pytest

from rmqstore._native import core
from rmqstore.errors import PutError
from rmqstore.message import PutStatus
from rmqstore.sim import board as virtual
from tests.reference.ack_board import ReferenceBoard, Wait

__all__ = ["ComparedBoard", "ComparedInbox", "ComparedLog", "compare_boards"]


def compare_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every board in virtual time be compared with the reference."""
    monkeypatch.setattr(virtual, "VirtualLog", ComparedLog)
    monkeypatch.setattr(virtual, "AckBoard", ComparedBoard)
    monkeypatch.setattr(virtual, "AckInbox", ComparedInbox)


class ComparedLog:
    """A VirtualLog that lets the reference know of a flush."""

    def __init__(self, **offsets: int) -> None:
        self.core = core.VirtualLog(**offsets)
        self.bound = offsets.get("confirm_offset", 0)
        self.boards: list[ReferenceBoard] = []

    @property
    def end_offset(self) -> int:
        return self.core.end_offset

    @end_offset.setter
    def end_offset(self, offset: int) -> None:
        self.core.end_offset = offset

    @property
    def flushed_offset(self) -> int:
        return self.core.flushed_offset

    @flushed_offset.setter
    def flushed_offset(self, offset: int) -> None:
        self.core.flushed_offset = offset
        for each in self.boards:
            each.flushed()

    @property
    def now_ms(self) -> int:
        return self.core.now_ms

    @now_ms.setter
    def now_ms(self, now_ms: int) -> None:
        self.core.now_ms = now_ms


class ComparedAdmission:
    """Leave of both boards to append a put."""

    def __init__(self, board: ComparedBoard, ours: core.Admission, reference: Wait) -> None:
        self.board, self.core, self.reference = board, ours, reference
        assert (ours.copies, ours.needs_all) == (reference.copies, reference.needs_all)

    @property
    def copies(self) -> int:
        return self.core.copies

    @property
    def needs_all(self) -> bool:
        return self.core.needs_all

    def acknowledge(self) -> PutStatus:
        status = self.core.acknowledge()
        assert status is self.board.reference.acknowledge(self.reference)
        return status


class ComparedInbox:
    """An AckInbox whose puts have the outcomes of the reference."""

    def __init__(self, *, has_descriptor: bool = True) -> None:
        self.core = core.AckInbox(has_descriptor=has_descriptor)
        self.waiting: dict[int, Wait] = {}

    def take(self) -> list[core.AckWait]:
        taken = self.core.take()
        for wait in taken:
            assert (wait.status, wait.copies) == self.waiting.pop(id(wait)).outcome
        assert all(each.outcome is None for each in self.waiting.values())
        return taken


class ComparedBoard:
    """An AckBoard, and the reference."""

    def __init__(self, log: ComparedLog) -> None:
        self.core = core.AckBoard(log.core)
        self.reference = ReferenceBoard(log, log.bound)
        self.inboxes: dict[int, ComparedInbox] = {}
        log.boards.append(self.reference)

    def compare(self) -> None:
        reference = self.reference
        assert self.core.confirm_offset == reference.confirm_offset
        assert self.core.waiting == len(reference.waiting)
        assert self.core.acks() == reference.acks

    @property
    def confirm_offset(self) -> int:
        self.compare()
        return self.core.confirm_offset

    def open_slot(self) -> int:
        slot = self.core.open_slot()
        assert slot not in self.reference.acks
        self.reference.open_slot(slot)
        return slot

    def close_slot(self, slot: int) -> None:
        self.core.close_slot(slot)
        self.reference.close_slot(slot)
        self.compare()

    def ack(self, slot: int, offset: int, *, epoch: int) -> None:
        self.core.ack(slot, offset, epoch=epoch)
        self.reference.ack(slot, offset, epoch)
        self.compare()

    def acks(self) -> dict[int, tuple[int, int]]:
        self.compare()
        return self.core.acks()

    def copies_of(self, end_offset: int) -> int:
        copies = self.core.copies_of(end_offset)
        assert copies == self.reference.copies_of(end_offset)
        return copies

    def freeze(self) -> int:
        confirmed = self.core.freeze()
        assert confirmed == self.reference.freeze()
        return confirmed

    def thaw(self, **rule: Any) -> None:
        self.core.thaw(**rule)
        self.reference.thaw(**rule)
        self.compare()

    def abandon(self) -> None:
        self.core.abandon()
        self.reference.abandon()
        self.compare()

    def admit(self, copies: int | None = None, *, is_replicated: bool = True) -> ComparedAdmission:
        expected = self.reference.admit(copies, is_replicated=is_replicated)
        if isinstance(expected, PutStatus):
            with pytest.raises(PutError) as refused:
                self.core.admit(copies, is_replicated=is_replicated)
            assert (refused.value.status, refused.value.stored) == (expected, False)
            raise refused.value
        admitted = self.core.admit(copies, is_replicated=is_replicated)
        return ComparedAdmission(self, admitted, expected)

    def begin(
        self, inbox: ComparedInbox, admission: ComparedAdmission, end_offset: int, token: object
    ) -> core.AckWait:
        wait = self.core.begin(inbox.core, admission.core, end_offset, token)
        inbox.waiting[id(wait)] = self.reference.begin(admission.reference, end_offset)
        self.inboxes[id(wait)] = inbox
        self.compare()
        return wait

    def withdraw(self, wait: core.AckWait) -> bool:
        waiting = self.inboxes[id(wait)].waiting
        is_late = self.core.withdraw(wait)
        if is_late:
            reference = waiting.pop(id(wait))
            assert self.reference.withdraw(reference)
            assert (wait.status, wait.copies) == reference.outcome
        else:
            # It was resolved, and is in its inbox or was taken from there.
            assert id(wait) not in waiting or waiting[id(wait)].outcome is not None
        self.compare()
        return is_late
