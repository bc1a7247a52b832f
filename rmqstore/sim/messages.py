"""Messages between replicas and an operator, and their bytes.

Every message is encoded when it is sent and decoded when it arrives. So it can be lost, doubled or
delayed, and shares no object with its sender. The first integer is the kind.
All integers are signed, of 64 bits, big-endian. With controllers, replicas exchange frames of the
remoting protocol instead (`controller_client`).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from operator import attrgetter

__all__ = ["Answer", "Ask", "Heartbeat", "Message", "Order", "decode", "encode"]


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A replica is alive, in its life *life*; *asked_ms* is its clock when it sent this."""

    number: int
    life: int
    epoch: int
    asked_ms: int


@dataclass(frozen=True, slots=True)
class Order:
    """The master of an epoch, for the life *life* of a replica, -1 for any life.

    *asked_ms* repeats that of the answered heartbeat; *order* increases with each election.
    """

    life: int
    epoch: int
    master: int
    asked_ms: int
    order: int


@dataclass(frozen=True, slots=True)
class Ask:
    """A replica is to be compared with others: a slave ends its role, a master where
    *ends_masters*."""

    life: int
    ballot: int
    ends_masters: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """The log of a replica that is compared."""

    number: int
    life: int
    ballot: int
    last_epoch: int
    end_offset: int
    is_master: bool


Message = Heartbeat | Order | Ask | Answer


def encode(message: Message) -> bytes:
    """Return the bytes of *message*."""
    kind = _KINDS.index(type(message))
    values = (kind, *_VALUES[kind](message))
    return struct.pack(f">{len(values)}q", *values)


def decode(data: bytes) -> Message:
    """Return the message that *data* encodes."""
    kind, *fields = struct.unpack(f">{len(data) // 8}q", data)
    match kind:
        case 0:
            return Heartbeat(*fields)
        case 1:
            return Order(*fields)
        case 2:
            life, ballot, ends_masters = fields
            return Ask(life, ballot, bool(ends_masters))
    assert kind == 3, "no message has this kind"
    number, life, ballot, last_epoch, end_offset, is_master = fields
    return Answer(number, life, ballot, last_epoch, end_offset, bool(is_master))


_KINDS: tuple[type[Message], ...] = (Heartbeat, Order, Ask, Answer)
_VALUES = tuple(attrgetter(*kind.__slots__) for kind in _KINDS)
