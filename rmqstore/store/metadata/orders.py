"""consumerOrderInfo.json: the messages that orderly consumers have popped, by queue.

table {"topic@group": {queue: {...}}}

a        attempt of the consumer, whose repetition gets the same messages
cm       bits: message i of the pop is acknowledged
i        time in ms for which the messages are those of the consumer
l        time of the pop by the clock of the broker
o        offset of the first message, then the distance of each other one to it
oc       by offset, how often a message was popped before
ot       by offset, a time of its own from which on a message may be popped again
popTime  time of the pop, as the handles of the messages name it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from rmqstore.store.metadata.json_text import Printed
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.table import Table

__all__ = ["MESSAGES_MAX", "OrderState", "OrderTable"]

MESSAGES_MAX = 64
"""Messages of one pop: the bits of `cm`. RocketMQ's brokers pop 32 at most."""
_INT64_MAX = 2**63 - 1
_LIST_DEPTH = 5
"""Levels of the elements of `o` in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderState:
    """The last pop of a group from one queue."""

    popped_ms: int
    invisible_ms: int | None
    """None in files of early releases."""
    offsets: tuple[int, ...]
    """Of the messages, ascending."""
    acknowledged: int = 0
    """Bit i: the message at offsets[i] is acknowledged."""
    counts: Mapping[int, int] | None = None
    """By offset, how often a message was popped before; None for the first pop of a queue."""
    visible_ms: Mapping[int, int] | None = None
    """By offset, a time of its own from which on a message may be popped again."""
    used_ms: int = 0
    attempt_id: str | None = None

    @classmethod
    def of(cls, members: Members) -> OrderState:
        """Return the state of a JSON object. Raises ValueError naming the member at fault."""
        offsets = _offsets(members.take("o", []))
        counts, visible = members.take("oc", _ABSENT), members.take("ot", _ABSENT)
        return cls(
            popped_ms=members.take("popTime", 0),
            invisible_ms=members.take("i", 0) or None,
            offsets=offsets,
            # Java's long has a sign.
            acknowledged=members.take("cm", 0) & (1 << MESSAGES_MAX) - 1,
            counts=None if counts is _ABSENT else Members(counts, "oc").int_table(),
            visible_ms=None if visible is _ABSENT else Members(visible, "ot").int_table(),
            used_ms=members.take("l", 0),
            attempt_id=members.take("a", "") or None,
        )

    def members(self) -> dict[str, Any]:
        """Return the members of its JSON object, sorted by name."""
        first = self.offsets[0] if self.offsets else 0
        bits = self.acknowledged
        values: dict[str, Any] = {
            "a": self.attempt_id,
            "cm": bits if bits <= _INT64_MAX else bits - (1 << MESSAGES_MAX),
            "i": self.invisible_ms,
            "l": self.used_ms,
            "o": [*self.offsets[:1], *(each - first for each in self.offsets[1:])],
            "oc": None if self.counts is None else dict(self.counts),
            "ot": None if self.visible_ms is None else dict(self.visible_ms),
            "popTime": self.popped_ms,
        }
        return {name: value for name, value in values.items() if value is not None}


_ABSENT: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class OrderTable(Table):
    """config/consumerOrderInfo.json: states by "topic@group" and queue. The file has no version."""

    FILE_NAME: ClassVar[str] = "consumerOrderInfo.json"

    states: Mapping[str, Mapping[int, OrderState]] = field(default_factory=dict)

    @classmethod
    def _from_members(cls, members: Members) -> Self:
        return cls({key: states_of(queues) for key, queues in members.table("table")})

    def _members(self) -> dict[str, Any]:
        return {"table": {key: _by_queue(queues) for key, queues in self.states.items()}}

    def _printed_members(self) -> dict[str, Any]:
        table = self._members()["table"]
        for queues in table.values():
            for members in queues.values():
                members["o"] = _printed(members["o"])
        return {"table": table}


def states_of(members: Members) -> dict[int, OrderState]:
    """Return the states of a group on a topic, by queue. Raises ValueError."""
    found = {}
    for key, each in members.objects():
        if not (key.isascii() and key.isdigit()):
            raise ValueError(f"queue {key!r} of an orderly group is not a number")
        found[int(key)] = OrderState.of(each)
    return found


def _by_queue(queues: Mapping[int, OrderState]) -> dict[int, dict[str, Any]]:
    return {queue: each.members() for queue, each in queues.items()}


def _offsets(values: Sequence[Any]) -> tuple[int, ...]:
    if any(type(each) is not int for each in values) or len(values) > MESSAGES_MAX:
        raise ValueError(f"o is {values!r}, where up to {MESSAGES_MAX} integers are expected")
    return tuple(each if at == 0 else values[0] + each for at, each in enumerate(values))


def _printed(offsets: Sequence[int]) -> Printed:
    """Returns a list as fastjson 1.2 prints it: one element on each line."""
    if not offsets:
        return Printed("[]")
    indent = "\n" + "\t" * _LIST_DEPTH
    return Printed("[" + ",".join(f"{indent}{each}" for each in offsets) + indent[:-1] + "]")
