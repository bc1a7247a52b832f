"""The replicated state of the controller: a deterministic machine over commands.

Every node of a controller group applies the same commands in the same order and has the same state.
The machine validates each command again when it is applied, so that a command which was proposed
on an older state changes nothing.

docs/defects.md gives the reason for each difference from RocketMQ's ReplicasInfoManager:

- Ids and epochs are not reused after a group was cleaned.
- An id is assigned only above all earlier ids.
- An election without a candidate raises the epoch once.
- The removal of brokers never leaves a partial group.
- Replicas that left the set are kept until the members hold all messages of these replicas.
- The replicas of the previous epoch are kept until the elected master has begun its epoch, so that
  another can be elected in place of a master that never begins.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from rmqstore.controller.commands import (
    AlterSet,
    AssignBrokerId,
    Command,
    ContinueEpoch,
    ElectMaster,
    Incarnation,
    RecordIncarnation,
    RecordTerms,
    RemoveBrokers,
    SetAddress,
    SettleDeparted,
    Terms,
)
from rmqstore.controller.group import (
    BrokerRecord,
    Electorate,
    Group,
    decode_group,
    encode_group,
)
from rmqstore.errors import CorruptionError

__all__ = [
    "BROKER_ID_JUMP_MAX",
    "ControllerState",
    "Result",
    "Verdict",
    "alteration_fault",
    "assignment_fault",
    "decode_result",
    "encode_result",
]

BROKER_ID_JUMP_MAX = 1_000_000
"""Largest distance of an id that a broker chooses from the next free id."""
_SNAPSHOT_VERSION = 1


class Verdict(StrEnum):
    """The outcome of a command or a request."""

    APPLIED = "applied"
    UNCHANGED = "unchanged"
    """The state is already as requested."""
    UNKNOWN_GROUP = "unknown group"
    UNKNOWN_BROKER = "unknown broker"
    OTHER_CLUSTER = "other cluster"
    ID_INVALID = "id invalid"
    SAME_SET = "same set"
    NOT_MASTER = "not master"
    FENCED_MASTER_EPOCH = "fenced master epoch"
    FENCED_SET_EPOCH = "fenced set epoch"
    NOT_ALIVE = "not alive"
    MASTER_NOT_IN_SET = "master not in set"
    STALE = "stale"
    """The state has changed since the command was proposed."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a command. *group* is the group afterwards, None without a group."""

    verdict: Verdict
    remark: str = ""
    group: Group | None = None

    @property
    def is_applied(self) -> bool:
        """Whether the state is now as the command requests."""
        return self.verdict in (Verdict.APPLIED, Verdict.UNCHANGED)


class ControllerState:
    """All broker groups. A `Group` is immutable; commands replace it."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def group(self, name: str) -> Group | None:
        """Return a group; None for an unknown or a removed one."""
        found = self._groups.get(name)
        return found if found is not None and found.brokers else None

    def groups(self) -> list[Group]:
        """Return all groups by name, without removed ones."""
        return [self._groups[name] for name in sorted(self._groups) if self._groups[name].brokers]

    def next_broker_id(self, name: str) -> int:
        """Return the lowest id that was never assigned in the group; this reserves nothing."""
        found = self._groups.get(name)
        return 1 if found is None else found.next_broker_id

    def past_group(self, name: str) -> Group | None:
        """Return the record of a group, removed or not."""
        return self._groups.get(name)

    def apply(self, command: Command) -> Result:
        """Apply *command* if the state is as it expects; otherwise return the reason."""
        known = self.group(command.group)
        if known is None and not isinstance(command, AssignBrokerId):
            return Result(Verdict.UNKNOWN_GROUP, f"broker group {command.group} is not known")
        match command:
            case AssignBrokerId():
                return self._assign(command)
            case SetAddress():
                return self._set_address(_given(known), command)
            case AlterSet():
                return self._alter(_given(known), command)
            case ElectMaster():
                return self._elect(_given(known), command)
            case RecordTerms():
                return self._record(_given(known), command)
            case RecordIncarnation():
                return self._record_incarnation(_given(known), command)
            case ContinueEpoch():
                return self._continue(_given(known), command)
            case SettleDeparted():
                return self._settle(_given(known), command)
            case RemoveBrokers():
                return self._remove(_given(known), command)

    def _store(self, group: Group) -> Result:
        assert group.master_id is None or group.master_id in group.brokers
        assert group.voters <= group.brokers.keys()
        assert group.former is None or group.former.voters <= group.brokers.keys()
        self._groups[group.name] = group
        return Result(Verdict.APPLIED, group=group if group.brokers else None)

    def _assign(self, command: AssignBrokerId) -> Result:
        past = self.past_group(command.group)
        fault = assignment_fault(past, command)
        if fault is not None:
            return fault
        group = past or Group(command.cluster, command.group)
        if not group.brokers:
            group = replace(group, cluster=command.cluster, founded_epoch=group.master_epoch)
        record = BrokerRecord(command.address, command.check_code)
        return self._store(
            replace(
                group,
                brokers=_with(group.brokers, command.broker_id, record),
                next_broker_id=command.broker_id + 1,
            )
        )

    def _set_address(self, group: Group, command: SetAddress) -> Result:
        record = group.brokers.get(command.broker_id)
        if record is None:
            return _unknown_broker(group, command.broker_id)
        if record.address == command.address:
            return Result(Verdict.UNCHANGED, group=group)
        record = replace(record, address=command.address)
        return self._store(replace(group, brokers=_with(group.brokers, command.broker_id, record)))

    def _alter(self, group: Group, command: AlterSet) -> Result:
        fault = alteration_fault(group, command)
        if fault is not None:
            return fault
        left = group.sync_state_set - command.members
        return self._store(
            replace(
                group,
                sync_state_set=command.members,
                set_epoch=group.set_epoch + 1,
                departed=(group.departed | left) - command.members,
                is_settled=False,
                terms=_weakest(group.terms, command.terms),
                former=None,
            )
        )

    def _elect(self, group: Group, command: ElectMaster) -> Result:
        expected = (command.master_epoch, command.set_epoch)
        if expected != (group.master_epoch, group.set_epoch):
            return Result(
                Verdict.STALE,
                f"the election expects master epoch {command.master_epoch} and set epoch "
                f"{command.set_epoch}; they are {group.master_epoch} and {group.set_epoch}",
                group,
            )
        if command.new_epoch <= group.master_epoch:
            return Result(
                Verdict.STALE,
                f"epoch {command.new_epoch} is not above the present epoch {group.master_epoch}",
                group,
            )

        last, unproven = group.electorate, group.former
        if command.voids_last and group.former is not None:
            last, unproven = group.former, None
        chosen = command.master_id
        if chosen is None:
            if group.master_id is None:
                return Result(Verdict.UNCHANGED, group=group)
            return self._store(_without_master(group, command.new_epoch, last, unproven))

        if chosen not in group.brokers:
            return _unknown_broker(group, chosen)
        if group.was_elected and chosen not in last.voters and not command.is_override:
            return Result(
                Verdict.ID_INVALID,
                f"broker {chosen} may lack acknowledged messages: it is not among "
                f"{sorted(last.voters)}",
                group,
            )

        if command.master_life is not None and command.master_boot is not None:
            # Recorded before its first message: its next report may be of another boot.
            found = Incarnation(command.master_life, command.master_boot, command.acks_flushed)
            group = _with_incarnation(group, chosen, found)

        return self._store(
            replace(
                group,
                master_id=chosen,
                master_life=command.master_life,
                master_epoch=command.new_epoch,
                sync_state_set=frozenset((chosen,)),
                set_epoch=group.set_epoch + 1,
                departed=frozenset(),
                is_settled=False,
                terms=None,
                former=None if command.master_life is None or not last.voters else last,
                unproven_epoch=0,
                awaits_lease=command.awaits_lease,
            )
        )

    def _record(self, group: Group, command: RecordTerms) -> Result:
        if group.master_id is None or command.master_epoch != group.master_epoch:
            return _fenced(group, command.master_epoch)
        terms = _weakest(group.terms, command.terms)
        if terms == group.terms:
            return Result(Verdict.UNCHANGED, group=group)
        return self._store(replace(group, terms=terms, former=None))

    def _record_incarnation(self, group: Group, command: RecordIncarnation) -> Result:
        if group.master_id is None or command.master_epoch != group.master_epoch:
            return _fenced(group, command.master_epoch)
        record = group.brokers.get(command.broker_id)
        if record is None:
            return _unknown_broker(group, command.broker_id)
        if record.incarnation == command.incarnation:
            return Result(Verdict.UNCHANGED, group=group)
        return self._store(_with_incarnation(group, command.broker_id, command.incarnation))

    def _continue(self, group: Group, command: ContinueEpoch) -> Result:
        if group.master_id is None or command.master_epoch != group.master_epoch:
            return _fenced(group, command.master_epoch)
        if command.master_life == group.master_life:
            return Result(Verdict.UNCHANGED, group=group)
        # Proposals of the former process, which this one does not know, must not take effect.
        set_epoch = group.set_epoch + 1
        return self._store(replace(group, master_life=command.master_life, set_epoch=set_epoch))

    def _settle(self, group: Group, command: SettleDeparted) -> Result:
        if group.master_id is None or command.master_epoch != group.master_epoch:
            return _fenced(group, command.master_epoch)
        if command.set_epoch != group.set_epoch:
            return _fenced_set(group, command.set_epoch)
        if not group.departed or (group.is_settled and not group.has_copies):
            return Result(Verdict.UNCHANGED, group=group)
        if not group.has_copies:
            return self._store(replace(group, is_settled=True))
        return self._store(replace(group, departed=frozenset(), is_settled=False))

    def _remove(self, group: Group, command: RemoveBrokers) -> Result:
        ids = command.broker_ids
        kept = {} if ids is None else {n: r for n, r in group.brokers.items() if n not in ids}
        if len(kept) == len(group.brokers):
            return Result(Verdict.UNCHANGED, group=group)
        members = group.sync_state_set & kept.keys()
        lost_master = group.master_id is not None and group.master_id not in kept
        removed = replace(
            group,
            brokers=MappingProxyType(kept),
            master_id=None if lost_master else group.master_id,
            master_life=None if lost_master else group.master_life,
            master_epoch=group.master_epoch + lost_master,
            sync_state_set=members,
            set_epoch=group.set_epoch + (members != group.sync_state_set),
            departed=group.departed & kept.keys(),
            terms=group.terms if kept else None,
            former=_without(group.former, kept.keys()) if kept else None,
        )
        return self._store(removed)

    def snapshot(self) -> bytes:
        """Return the whole state; equal states have equal bytes."""
        written = {
            "version": _SNAPSHOT_VERSION,
            "groups": [encode_group(self._groups[name]) for name in sorted(self._groups)],
        }
        return _json(written)

    def restore(self, data: bytes) -> None:
        """Replace this state by the bytes that `snapshot` returned. Raises CorruptionError."""
        try:
            written = json.loads(data)
            if written["version"] != _SNAPSHOT_VERSION:
                raise ValueError(f"its version is {written['version']!r}")
            groups = [decode_group(each) for each in written["groups"]]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CorruptionError(
                f"a snapshot of the controller cannot be read ({error}); start the release that "
                "wrote it, or restore the directory from a copy",
                kind="controller snapshot",
            ) from error
        self._groups = {each.name: each for each in groups}


def assignment_fault(past: Group | None, command: AssignBrokerId) -> Result | None:
    """Return why an id cannot be assigned, or that it already is; None if it can be assigned.
    *past* is the record of the group, removed or not."""
    wanted, name = command.broker_id, command.group
    known = past if past is not None and past.brokers else None

    if known is not None and known.cluster != command.cluster:
        return Result(
            Verdict.OTHER_CLUSTER,
            f"broker group {name} is in cluster {known.cluster}, not in {command.cluster}; a "
            "controller identifies a group only by its name, so give it another brokerName",
            known,
        )
    if known is not None and wanted in known.brokers:
        if known.brokers[wanted].check_code == command.check_code:
            return Result(Verdict.UNCHANGED, group=known)
        return Result(
            Verdict.ID_INVALID,
            f"broker id {wanted} of {name} is assigned to another broker; get the next id",
            known,
        )

    lowest = 1 if past is None else past.next_broker_id
    if past is None and wanted != 1:
        return Result(
            Verdict.ID_INVALID,
            f"Broker-set: {name} hasn't been registered in controller, but broker try to apply "
            f"brokerId: {wanted}",
        )
    if not lowest <= wanted <= lowest + BROKER_ID_JUMP_MAX:
        return Result(
            Verdict.ID_INVALID,
            f"broker id {wanted} of {name} cannot be assigned: ids below {lowest} were assigned "
            f"before, and ids above {lowest + BROKER_ID_JUMP_MAX} are too far; get the next id",
            known,
        )
    return None


def alteration_fault(
    group: Group, command: AlterSet, *, unfit: Callable[[int], str] | None = None
) -> Result | None:
    """Return why a proposed set is refused, with RocketMQ's order of checks; None if it is
    accepted. *unfit* returns why a joining broker is not a member yet, or an empty text. It comes
    from the leader, because reports are not part of the state."""
    members = command.members
    if members == group.sync_state_set and not command.accepts_same:
        text = f"the sync-state set of {group.name} is {sorted(members)} already"
        return Result(Verdict.SAME_SET, text, group)
    if group.master_id is None or command.master_id != group.master_id:
        return Result(
            Verdict.NOT_MASTER,
            "Rejecting alter syncStateSet request because the current leader is:"
            f"{{{'null' if group.master_id is None else group.master_id}}}, not "
            f"{{{command.master_id}}}",
            group,
        )
    if command.master_epoch != group.master_epoch:
        return _fenced(group, command.master_epoch)
    if command.set_epoch != group.set_epoch:
        return _fenced_set(group, command.set_epoch)

    for each in sorted(members):
        if each not in group.brokers:
            return _unknown_broker(group, each)
        reason = unfit(each) if unfit is not None and each not in group.sync_state_set else ""
        if reason:
            return Result(Verdict.NOT_ALIVE, f"broker {each} of {group.name} {reason}", group)

    if command.master_id not in members:
        text = f"the set {sorted(members)} lacks the master, {command.master_id}"
        return Result(Verdict.MASTER_NOT_IN_SET, text, group)
    return None


def _unknown_broker(group: Group, broker_id: int) -> Result:
    return Result(
        Verdict.UNKNOWN_BROKER,
        f"BrokerId: {broker_id} hasn't been registered in broker-set: {group.name}",
        group,
    )


def _fenced(group: Group, master_epoch: int) -> Result:
    text = f"the master epoch of {group.name} is {group.master_epoch}, not {master_epoch}"
    return Result(Verdict.FENCED_MASTER_EPOCH, text, group)


def _fenced_set(group: Group, set_epoch: int) -> Result:
    text = f"the set epoch of {group.name} is {group.set_epoch}, not {set_epoch}"
    return Result(Verdict.FENCED_SET_EPOCH, text, group)


def _weakest(known: Terms | None, other: Terms | None) -> Terms | None:
    """Returns terms that hold for all puts of an epoch, including puts under earlier terms."""
    if known is None or other is None:
        return known or other
    return known.weaker(other)


def _without_master(group: Group, epoch: int, last: Electorate, former: Electorate | None) -> Group:
    """Returns *group* in *epoch*, which has no master and the electorate *last*; that of the epoch
    before is *former*, if the last one may not have begun."""
    return replace(
        group,
        master_id=None,
        master_life=None,
        master_epoch=epoch,
        sync_state_set=last.members,
        set_epoch=group.set_epoch + (last.members != group.sync_state_set),
        departed=last.departed,
        is_settled=last.is_settled,
        terms=last.terms,
        former=former,
        unproven_epoch=0 if former is None else group.master_epoch,
    )


def _with_incarnation(group: Group, broker_id: int, incarnation: Incarnation) -> Group:
    record = replace(group.brokers[broker_id], incarnation=incarnation)
    return replace(group, brokers=_with(group.brokers, broker_id, record))


def _without(electorate: Electorate | None, kept: Set[int]) -> Electorate | None:
    """Returns *electorate* with the brokers of *kept* only; None if no broker remains."""
    if electorate is None:
        return None
    members, departed = electorate.members & kept, electorate.departed & kept
    return replace(electorate, members=members, departed=departed) if members | departed else None


def _with(
    brokers: Mapping[int, BrokerRecord], broker_id: int, record: BrokerRecord
) -> Mapping[int, BrokerRecord]:
    return MappingProxyType({**brokers, broker_id: record})


def _given(group: Group | None) -> Group:
    assert group is not None, "the group was looked up"
    return group


def encode_result(result: Result) -> bytes:
    """Return the bytes of *result*, which the proposer of a command gets."""
    group = None if result.group is None else encode_group(result.group)
    return _json({"verdict": result.verdict.value, "remark": result.remark, "group": group})


def decode_result(data: bytes) -> Result:
    """Return the result that `encode_result` wrote."""
    written = json.loads(data)
    group = None if written["group"] is None else decode_group(written["group"])
    return Result(Verdict(written["verdict"]), written["remark"], group)


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode()
