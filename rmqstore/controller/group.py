"""A group of brokers in the state of the controller, and its JSON form in snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from rmqstore.controller.commands import (
    Incarnation,
    Terms,
    decode_incarnation,
    decode_terms,
    encode_incarnation,
    encode_terms,
)

__all__ = ["BrokerRecord", "Electorate", "Group", "decode_group", "encode_group"]


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """A broker of a group."""

    address: str
    check_code: str
    incarnation: Incarnation | None = None
    """The process with which it was in sync last; None if it is not known."""


@dataclass(frozen=True, slots=True)
class Electorate:
    """The replicas that may hold acknowledged messages, and the number of their copies."""

    members: frozenset[int]
    departed: frozenset[int]
    terms: Terms | None
    is_settled: bool = False
    """Whether each member with a whole log holds all that the departed replicas hold."""

    @property
    def voters(self) -> frozenset[int]:
        """The replicas that may hold acknowledged messages."""
        return self.members | self.departed


@dataclass(frozen=True, slots=True)
class Group:
    """The replicas of one log: the brokers of one name."""

    cluster: str
    name: str
    brokers: Mapping[int, BrokerRecord] = field(default_factory=lambda: MappingProxyType({}))
    """Brokers by id; empty for a removed group, which keeps its counters."""
    next_broker_id: int = 1
    master_id: int | None = None
    master_life: int | None = None
    """The process of the master whose log was compared in the election; another process of the same
    broker may have lost the end of that log. None if it is not known."""
    master_epoch: int = 0
    founded_epoch: int = 0
    """The master epoch when the group was founded. While it equals the master epoch, no master was
    elected yet."""
    sync_state_set: frozenset[int] = frozenset()
    set_epoch: int = 0
    departed: frozenset[int] = frozenset()
    """Replicas that left the set and may hold acknowledged messages that a member lacks, or that a
    member may lose while there are fewer members than copies."""
    is_settled: bool = False
    """Whether each member holds all that the departed replicas hold, unless it loses it."""
    terms: Terms | None = None
    """The number of copies that puts of this epoch waited for; None if the master was not a broker
    of this library, or has not begun the epoch."""
    former: Electorate | None = None
    """The electorate of the last epoch that began for certain; None once the master has begun this
    epoch."""
    unproven_epoch: int = 0
    """In a group without a master, the epoch of the last one where the controller does not know
    whether it began; then `former` is the electorate of the one before. 0 otherwise."""
    awaits_lease: bool = False
    """Whether the master of an epoch that has not begun confirms and acknowledges nothing before
    its first lease."""

    @property
    def electorate(self) -> Electorate:
        """The electorate of this epoch."""
        return Electorate(self.sync_state_set, self.departed, self.terms, self.is_settled)

    @property
    def has_copies(self) -> bool:
        """Whether the set has as many members as puts wait for copies."""
        return self.terms is None or len(self.sync_state_set) >= self.terms.in_sync

    @property
    def voters(self) -> frozenset[int]:
        """The replicas that may hold acknowledged messages of this epoch."""
        return self.sync_state_set | self.departed

    @property
    def was_elected(self) -> bool:
        """Whether the group has had a master, or an attempt to elect one."""
        return self.master_epoch > self.founded_epoch

    @property
    def master_address(self) -> str | None:
        """The address of the master."""
        return None if self.master_id is None else self.brokers[self.master_id].address


def encode_group(group: Group) -> dict[str, Any]:
    """Return *group* as a JSON value; equal groups have equal values."""
    return {
        "cluster": group.cluster,
        "name": group.name,
        "brokers": [
            {
                "id": number,
                "address": record.address,
                "check_code": record.check_code,
                "incarnation": encode_incarnation(record.incarnation),
            }
            for number, record in sorted(group.brokers.items())
        ],
        "next_broker_id": group.next_broker_id,
        "master_id": group.master_id,
        "master_life": group.master_life,
        "master_epoch": group.master_epoch,
        "founded_epoch": group.founded_epoch,
        "sync_state_set": sorted(group.sync_state_set),
        "set_epoch": group.set_epoch,
        "departed": sorted(group.departed),
        "is_settled": group.is_settled,
        "terms": encode_terms(group.terms),
        "former": None if group.former is None else _encode_electorate(group.former),
        "unproven_epoch": group.unproven_epoch,
        "awaits_lease": group.awaits_lease,
    }


def _encode_electorate(electorate: Electorate) -> dict[str, Any]:
    return {
        "members": sorted(electorate.members),
        "departed": sorted(electorate.departed),
        "terms": encode_terms(electorate.terms),
        "is_settled": electorate.is_settled,
    }


def _decode_electorate(written: Any) -> Electorate | None:
    if written is None:
        return None
    members, departed = frozenset(written["members"]), frozenset(written["departed"])
    terms, is_settled = decode_terms(written["terms"]), bool(written["is_settled"])
    return Electorate(members, departed, terms, is_settled)


def decode_group(written: Any) -> Group:
    """Return the group of a JSON value. Raises KeyError, TypeError or ValueError.

    Fields that earlier releases did not write have their default values.
    """
    group = Group(
        cluster=written["cluster"],
        name=written["name"],
        brokers=MappingProxyType(
            {
                each["id"]: BrokerRecord(
                    each["address"],
                    each["check_code"],
                    decode_incarnation(each.get("incarnation")),
                )
                for each in written["brokers"]
            }
        ),
        next_broker_id=written["next_broker_id"],
        master_id=written["master_id"],
        master_life=written.get("master_life"),
        master_epoch=written["master_epoch"],
        founded_epoch=written["founded_epoch"],
        sync_state_set=frozenset(written["sync_state_set"]),
        set_epoch=written["set_epoch"],
        departed=frozenset(written["departed"]),
        is_settled=written.get("is_settled", False),
        terms=decode_terms(written["terms"]),
        former=_decode_electorate(written.get("former")),
        unproven_epoch=written.get("unproven_epoch", 0),
        awaits_lease=written.get("awaits_lease", False),
    )
    known = group.voters | ({group.master_id} if group.master_id is not None else set())
    if group.former is not None:
        known |= group.former.voters
    if not known <= group.brokers.keys():
        raise ValueError(f"group {group.name} names brokers that it does not have")
    return group
