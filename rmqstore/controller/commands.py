"""Commands: the entries of the log of the controller.

A command names the state that it expects, and changes nothing where the state differs. Therefore a
repeated command changes nothing. A command contains no clock reading and no random value. The bytes
are JSON in UTF-8 with sorted keys: `type`, then the fields of the class by name; sets are ascending
lists, and fields that have their default value are left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any, TypeVar

from rmqstore.errors import CorruptionError

__all__ = [
    "AlterSet",
    "AssignBrokerId",
    "Command",
    "ContinueEpoch",
    "ElectMaster",
    "Incarnation",
    "RecordIncarnation",
    "RecordTerms",
    "RemoveBrokers",
    "SetAddress",
    "SettleDeparted",
    "Terms",
    "decode_command",
    "decode_incarnation",
    "decode_terms",
    "encode_command",
    "encode_incarnation",
    "encode_terms",
]


@dataclass(frozen=True, slots=True)
class Terms:
    """The number of copies that puts of a master wait for, reported by a broker of this library."""

    in_sync: int
    """Number of copies, including the master's own."""
    min_in_sync: int
    all_ack: bool
    """Every member of the sync-state set holds all acknowledged messages."""
    lease_ms: int
    """Duration of a lease that the controller grants; 0 for no leases."""

    def weaker(self, other: Terms) -> Terms:
        """Return the terms that hold for all puts, if some had these terms and some *other*."""
        return Terms(
            min(self.in_sync, other.in_sync),
            min(self.min_in_sync, other.min_in_sync),
            self.all_ack and other.all_ack,
            max(self.lease_ms, other.lease_ms),
        )


@dataclass(frozen=True, slots=True)
class Incarnation:
    """A process of a broker, and the boot of its machine. Messages that the process acknowledged
    are in the memory of that boot, or on the disk."""

    life: int
    """Number of the broker's process, which grows with each start."""
    boot: str
    acks_flushed: bool
    """Whether the process acknowledges only messages on its disk."""


@dataclass(frozen=True, slots=True)
class AssignBrokerId:
    """Assign an id to a broker; create its group if it does not exist."""

    group: str
    cluster: str
    broker_id: int
    address: str
    check_code: str
    """Identifies the attempt: the same id may be assigned again with the same code."""


@dataclass(frozen=True, slots=True)
class SetAddress:
    """Store the address of a broker."""

    group: str
    broker_id: int
    address: str


@dataclass(frozen=True, slots=True)
class AlterSet:
    """Replace version *set_epoch* of the set by the proposal of the master of *master_epoch*."""

    group: str
    master_id: int
    master_epoch: int
    set_epoch: int
    members: frozenset[int]
    accepts_same: bool
    """Whether an unchanged set becomes a new version; RocketMQ refuses it."""
    terms: Terms | None


@dataclass(frozen=True, slots=True)
class ElectMaster:
    """Make *master_id* master of *new_epoch*; None leaves the group without a master."""

    group: str
    master_epoch: int
    set_epoch: int
    master_id: int | None
    new_epoch: int
    is_override: bool
    """The operator accepts that messages may be lost: the master need not be a voter."""
    master_life: int | None = None
    """The process of the master that reported the log which was compared; None if it is not known,
    as for a Java broker."""
    master_boot: str | None = None
    """The boot of the machine of that process; None to leave the process that is recorded."""
    acks_flushed: bool = False
    """Whether that process acknowledges only messages on its disk."""
    awaits_lease: bool = False
    """Whether the master confirms and acknowledges nothing before its first lease."""
    voids_last: bool = False
    """The last epoch never began, so the replicas of the epoch before were compared."""


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """Store the number of copies that puts of the master of *master_epoch* wait for."""

    group: str
    master_epoch: int
    terms: Terms


@dataclass(frozen=True, slots=True)
class RecordIncarnation:
    """Store the process with which a broker caught up with the master of *master_epoch*."""

    group: str
    master_epoch: int
    broker_id: int
    incarnation: Incarnation


@dataclass(frozen=True, slots=True)
class ContinueEpoch:
    """Store the process that may continue as the master of *master_epoch*.

    It does so only if the role of the process before it ended cleanly, which its files show.
    """

    group: str
    master_epoch: int
    master_life: int


@dataclass(frozen=True, slots=True)
class SettleDeparted:
    """Record that the members of the set hold everything that the replicas hold which left the set
    before version *set_epoch*.

    The record of these replicas is removed once the set has as many members as puts wait for
    copies: a single member may lose the end of its log.
    """

    group: str
    master_epoch: int
    set_epoch: int


@dataclass(frozen=True, slots=True)
class RemoveBrokers:
    """Remove brokers from a group, or the whole group where *broker_ids* is None."""

    group: str
    broker_ids: frozenset[int] | None


Command = (
    AssignBrokerId
    | SetAddress
    | AlterSet
    | ElectMaster
    | RecordTerms
    | RecordIncarnation
    | ContinueEpoch
    | SettleDeparted
    | RemoveBrokers
)

_TYPES: Mapping[str, type[Command]] = {
    "assign-broker-id": AssignBrokerId,
    "set-address": SetAddress,
    "alter-set": AlterSet,
    "elect-master": ElectMaster,
    "record-terms": RecordTerms,
    "record-incarnation": RecordIncarnation,
    "continue-epoch": ContinueEpoch,
    "settle-departed": SettleDeparted,
    "remove-brokers": RemoveBrokers,
}
P = TypeVar("P", "Terms", "Incarnation")

_NAMES = {kind: name for name, kind in _TYPES.items()}
_MAY_BE_NULL = {"terms", "master_id", "master_life", "master_boot", "broker_ids"}
_SETS = {"members", "broker_ids"}


def encode_command(command: Command) -> bytes:
    """Return the bytes of *command*; equal commands have equal bytes."""
    written: dict[str, Any] = {"type": _NAMES[type(command)]}
    for each in fields(command):
        value = getattr(command, each.name)
        if value == each.default:
            continue
        if isinstance(value, frozenset):
            value = sorted(value)
        elif isinstance(value, Terms):
            value = encode_terms(value)
        elif isinstance(value, Incarnation):
            value = encode_incarnation(value)
        written[each.name] = value
    return json.dumps(written, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()


def decode_command(data: bytes) -> Command:
    """Return the command that *data* encodes.

    Raises CorruptionError for bytes that are not a command of this release.
    """
    try:
        written = json.loads(data)
        kind = _TYPES[written.pop("type")]
        names = {each.name for each in fields(kind)}
        needed = {each.name for each in fields(kind) if each.default is MISSING}
        if not needed <= written.keys() <= names:
            raise ValueError(f"its fields are {', '.join(sorted(written))}")
        return kind(**{name: _field(kind, name, value) for name, value in written.items()})
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptionError(
            f"a command in the controller's log cannot be read ({error}); start the release that "
            "wrote it, or restore the directory from a copy",
            kind="controller command",
        ) from error


def encode_terms(terms: Terms | None) -> dict[str, Any] | None:
    """Return *terms* as a JSON value."""
    return _encode_plain(terms)


def decode_terms(value: Any) -> Terms | None:
    """Return the terms of a JSON value. Raises ValueError or TypeError."""
    return _decode_plain(Terms, value)


def encode_incarnation(incarnation: Incarnation | None) -> dict[str, Any] | None:
    """Return *incarnation* as a JSON value."""
    return _encode_plain(incarnation)


def decode_incarnation(value: Any) -> Incarnation | None:
    """Return the incarnation of a JSON value. Raises ValueError or TypeError."""
    return _decode_plain(Incarnation, value)


def _encode_plain(value: Terms | Incarnation | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)


def _decode_plain(kind: type[P], value: Any) -> P | None:
    """Returns an object of *kind*, whose fields are texts, flags and whole numbers."""
    if value is None:
        return None
    names = [each.name for each in fields(kind)]
    if sorted(value) != sorted(names):
        raise ValueError(f"{kind.__name__} has the fields {', '.join(sorted(value))}")
    return kind(**{name: _plain(kind, name, value[name]) for name in names})


def _field(kind: type, name: str, value: Any) -> Any:
    if value is None and name in _MAY_BE_NULL:
        return None
    if name in _SETS:
        return frozenset(_integer(name, each) for each in value)
    if name == "terms":
        return decode_terms(value)
    if name == "incarnation":
        return decode_incarnation(value)
    return _plain(kind, name, value)


def _plain(kind: type, name: str, value: Any) -> Any:
    """Returns a text, a flag or a whole number. Raises ValueError for another type."""
    wanted = {each.name: each.type for each in fields(kind)}[name]
    if "str" in str(wanted) and isinstance(value, str):
        return value
    if wanted == "bool" and isinstance(value, bool):
        return value
    if "int" in str(wanted):
        return _integer(name, value)
    raise ValueError(f"{name} is {value!r}")


def _integer(name: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{name} is {value!r}")
    return value
