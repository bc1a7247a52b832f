"""The acknowledgement board, written to be read: every answer is computed again from plain lists.

It says what csrc/replica/ack_board.c has to do, and is compared with it call by call. Nothing here
is fast, sorted, remembered or locked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from rmqstore.message import PutStatus

__all__ = ["Log", "ReferenceBoard", "Wait"]

DEFAULTS: dict[str, Any] = {
    "counted": (),
    "waited": None,
    "is_missing": False,
    "confirm_copies": 1,
    "epoch": -1,
    "epoch_start": 0,
    "is_gated": True,
    "status": PutStatus.PUT_OK,
    "reason": "",
    "copies": 1,
    "needs_all": False,
    "is_flushed": False,
    "lease_end_ms": None,
    "waiting_max": 1 << 20,
    "timeout_ms": 3000,
    "available": None,
    "present": None,
}


class Log(Protocol):
    """The log of the master, and its clock."""

    @property
    def end_offset(self) -> int: ...
    @property
    def flushed_offset(self) -> int: ...
    @property
    def now_ms(self) -> int: ...


@dataclass
class Wait:
    """A put: what it was admitted to need, and once it is resolved how it ended."""

    term: int
    copies: int
    needs_all: bool
    end_offset: int = 0
    outcome: tuple[PutStatus, int] | None = None


@dataclass
class ReferenceBoard:
    """What replicas hold, the confirm offset, and the puts that wait."""

    log: Log
    bound: float
    """The confirm offset; infinite where all that is in the log is confirmed."""
    rule: dict[str, Any] = field(
        default_factory=lambda: {
            **DEFAULTS,
            "status": PutStatus.SERVICE_NOT_AVAILABLE,
            "waited": (),
            "is_missing": True,
        }
    )
    acks: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By slot: the acknowledged offset, and the last epoch that was stored; -1 for neither."""
    waits: list[Wait] = field(default_factory=list)
    term: int = 1
    is_frozen: bool = True

    # -- what replicas hold

    def held(self, slot: int) -> int:
        """A copy counts once the present epoch is stored, and all that was there before it.

        A replica that has not stored it loses an election to a replica that was master in between,
        and is cut (Raft's figure 8). An empty log stores no epochs.
        """
        offset, epoch = self.acks[slot]
        knows = epoch >= self.rule["epoch"] or offset == 0
        return offset if knows and offset >= self.rule["epoch_start"] else -1

    def own_end(self) -> int:
        end = self.log.end_offset
        return min(self.log.flushed_offset, end) if self.rule["is_flushed"] else end

    def counted(self) -> list[int]:
        return [each for each in set(self.rule["counted"]) if each in self.acks]

    def copies_of(self, end_offset: int) -> int:
        return 1 + sum(self.held(each) >= end_offset for each in self.counted())

    def end_of_copies(self, copies: int) -> int:
        offsets = sorted((self.held(each) for each in self.counted()), reverse=True)
        offsets = [self.own_end(), *(min(each, self.own_end()) for each in offsets)]
        return offsets[copies - 1] if copies <= len(offsets) else -1

    def end_of_all(self) -> int:
        waited = self.rule["waited"]
        if waited is None:
            return self.own_end()
        if self.rule["is_missing"] or not set(waited) <= self.acks.keys():
            return -1
        return min([self.own_end(), *(self.held(each) for each in waited)])

    # -- the decision

    def freeze(self) -> int:
        self.is_frozen = True
        return self.hold()

    def thaw(self, **rule: Any) -> None:
        self.hold()
        self.rule = {**DEFAULTS, **rule}
        self.is_frozen = False
        self.evaluate()

    def abandon(self) -> None:
        """The role ends."""
        if not self.is_frozen:
            self.freeze()
        self.term += 1
        self.rule["status"] = PutStatus.SERVICE_NOT_AVAILABLE
        for wait in self.waits:
            self.resolve(wait, PutStatus.FLUSH_SLAVE_TIMEOUT)

    def open_slot(self, slot: int) -> None:
        self.acks[slot] = (-1, -1)

    def close_slot(self, slot: int) -> None:
        self.acks.pop(slot, None)

    def ack(self, slot: int, offset: int, epoch: int) -> None:
        if slot in self.acks and self.acks[slot] != (offset, epoch):
            self.acks[slot] = (offset, epoch)
            self.evaluate()

    def flushed(self) -> None:
        """More of the master's log is on the disk."""
        if self.rule["is_flushed"]:
            self.evaluate()

    # -- the confirm offset

    @property
    def confirm_offset(self) -> int:
        return int(min(self.bound, self.log.end_offset))

    def hold(self) -> int:
        self.bound = self.confirm_offset
        return self.confirm_offset

    def end_to_confirm(self) -> float:
        rule = self.rule
        if not rule["is_gated"]:
            end, needs_itself_only = self.own_end(), True
        elif rule["waited"] is None:
            end = self.end_of_copies(rule["confirm_copies"])
            needs_itself_only = rule["confirm_copies"] == 1
        else:
            end = self.end_of_all()
            needs_itself_only = not rule["waited"] and not rule["is_missing"]
        # What is in the log is confirmed then, whenever it comes.
        return math.inf if needs_itself_only and not rule["is_flushed"] else end

    def evaluate(self) -> None:
        if self.is_frozen or (self.rule["is_gated"] and not self.has_lease()):
            return
        self.bound = max(self.bound, self.end_to_confirm())
        self.waits = self.waiting
        for wait in self.waits:
            if self.has_lease() and self.has_copies(wait):
                self.resolve(wait, PutStatus.PUT_OK)

    # -- puts

    def has_lease(self) -> bool:
        end_ms = self.rule["lease_end_ms"]
        return end_ms is None or self.log.now_ms < end_ms

    def has_copies(self, wait: Wait) -> bool:
        has_all = not wait.needs_all or self.end_of_all() >= wait.end_offset
        return self.end_of_copies(wait.copies) >= wait.end_offset and has_all

    def resolve(self, wait: Wait, status: PutStatus) -> None:
        if wait.outcome is None:
            wait.outcome = status, self.copies_of(wait.end_offset)

    @property
    def waiting(self) -> list[Wait]:
        return [each for each in self.waits if each.outcome is None]

    def admit(self, copies: int | None, *, is_replicated: bool = True) -> PutStatus | Wait:
        rule = self.rule
        needed = rule["copies"] if copies is None else copies
        if not self.has_lease():
            return PutStatus.SERVICE_NOT_AVAILABLE
        if not is_replicated:
            return Wait(self.term, 1, needs_all=False)
        if len(self.waiting) >= rule["waiting_max"]:
            return PutStatus.OS_PAGE_CACHE_BUSY
        if rule["present"] is not None and rule["present"] < needed:
            return PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        if rule["status"] is not PutStatus.PUT_OK:
            return rule["status"]
        return Wait(self.term, needed, rule["needs_all"])

    def begin(self, admission: Wait, end_offset: int) -> Wait:
        """Let a put wait that was appended by this admission."""
        wait = replace(admission, end_offset=end_offset)
        self.waits.append(wait)
        needs_itself_only = wait.copies == 1 and not wait.needs_all
        has_copies = needs_itself_only or (not self.is_frozen and self.has_copies(wait))
        if wait.term != self.term:
            self.resolve(wait, PutStatus.FLUSH_SLAVE_TIMEOUT)
        elif has_copies and self.has_lease():
            self.resolve(wait, PutStatus.PUT_OK)
        return wait

    def withdraw(self, wait: Wait) -> bool:
        """The time of a put is up."""
        available = self.rule["available"]
        if wait.outcome is not None:
            return False
        is_hopeless = available is not None and available < wait.copies
        self.resolve(
            wait,
            PutStatus.SLAVE_NOT_AVAILABLE if is_hopeless else PutStatus.FLUSH_SLAVE_TIMEOUT,
        )
        return True

    def acknowledge(self, wait: Wait) -> PutStatus:
        in_office = wait.term == self.term and self.has_lease()
        return PutStatus.PUT_OK if in_office else PutStatus.FLUSH_SLAVE_TIMEOUT
