"""Messages between replicas and the elector of masters, and their bytes.

Every message is encoded when it is sent and decoded when it arrives, so it can be lost, doubled,
delayed or kept back, and nobody shares an object with its sender. The first integer is the kind.
All integers are signed, of 64 bits, big-endian; a set is its size and its members in order.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = [
    "Answer",
    "Ask",
    "Heartbeat",
    "Message",
    "Order",
    "Propose",
    "Refuse",
    "View",
    "decode",
    "encode",
]


@dataclass(frozen=True, slots=True)
class View:
    """Who is master, and the sync-state set."""

    epoch: int
    master: int
    members: frozenset[int]
    set_epoch: int
    asked_ms: int = -1
    """Echoes the question that this answers."""
    order: int = 0
    """Greater in each view that names a master, whatever its epoch."""
    asked: frozenset[int] = frozenset()
    """Who was compared before *master* was chosen; empty where a set says who may be."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A replica lives, in its life *life*; *asked_ms* is its clock when it sent this."""

    number: int
    life: int
    end_offset: int
    epoch: int
    asked_ms: int


@dataclass(frozen=True, slots=True)
class Propose:
    """The master of *epoch* asks for a set. *call* is another number in each attempt."""

    number: int
    life: int
    epoch: int
    call: int
    proposal: int
    set_epoch: int
    members: frozenset[int]
    joined: frozenset[int]


@dataclass(frozen=True, slots=True)
class Refuse:
    """The attempt *call* at a proposal takes effect neither now nor later."""

    life: int
    epoch: int
    call: int
    proposal: int


@dataclass(frozen=True, slots=True)
class Order:
    """The view as it is, for the life *life* of a replica, -1 for whichever it lives."""

    life: int
    view: View


@dataclass(frozen=True, slots=True)
class Ask:
    """A replica is to be compared with others: a slave ends its role, a master where
    *ends_masters*."""

    life: int
    ballot: int
    ends_masters: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a replica that was asked holds."""

    number: int
    life: int
    ballot: int
    last_epoch: int
    end_offset: int
    is_master: bool


Message = Heartbeat | Propose | Refuse | Order | Ask | Answer


def encode(message: Message) -> bytes:
    """Return the bytes of *message*."""
    match message:
        case Heartbeat(number, life, end_offset, epoch, asked_ms):
            return _pack(0, number, life, end_offset, epoch, asked_ms)
        case Propose(number, life, epoch, call, proposal, set_epoch, members, joined):
            sets = (*_set(members), *_set(joined))
            return _pack(1, number, life, epoch, call, proposal, set_epoch, *sets)
        case Refuse(life, epoch, call, proposal):
            return _pack(2, life, epoch, call, proposal)
        case Order(life, view):
            sets = (*_set(view.members), *_set(view.asked))
            fields = (view.epoch, view.master, view.set_epoch, view.asked_ms, view.order)
            return _pack(3, life, *fields, *sets)
        case Ask(life, ballot, ends_masters):
            return _pack(4, life, ballot, ends_masters)
        case Answer(number, life, ballot, last_epoch, end_offset, is_master):
            return _pack(5, number, life, ballot, last_epoch, end_offset, is_master)


def decode(data: bytes) -> Message:
    """Return the message that *data* encodes."""
    kind, *fields = struct.unpack(f">{len(data) // 8}q", data)

    match kind:
        case 0:
            return Heartbeat(*fields)
        case 1:
            number, life, epoch, call, proposal, set_epoch, *rest = fields
            members, rest = _taken(rest)
            joined = _taken(rest)[0]
            return Propose(number, life, epoch, call, proposal, set_epoch, members, joined)
        case 2:
            return Refuse(*fields)
        case 3:
            life, epoch, master, set_epoch, asked_ms, order, *rest = fields
            members, rest = _taken(rest)
            asked = _taken(rest)[0]
            return Order(life, View(epoch, master, members, set_epoch, asked_ms, order, asked))
        case 4:
            life, ballot, ends_masters = fields
            return Ask(life, ballot, bool(ends_masters))

    assert kind == 5, "no message has this kind"
    number, life, ballot, last_epoch, end_offset, is_master = fields
    return Answer(number, life, ballot, last_epoch, end_offset, bool(is_master))


def _pack(*values: int) -> bytes:
    return struct.pack(f">{len(values)}q", *values)


def _set(members: frozenset[int]) -> tuple[int, ...]:
    return (len(members), *sorted(members))


def _taken(fields: list[int]) -> tuple[frozenset[int], list[int]]:
    """Return the set that *fields* begin with, and the fields after it."""
    count = fields[0]
    return frozenset(fields[1 : 1 + count]), fields[1 + count :]
