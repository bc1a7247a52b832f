"""A slow, readable model of the controller's replicated state: dictionaries and plain rules.

It shows only what a user of the state can observe, and keeps all former ids and masters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
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
)

_ELECTORATE = ("set", "departed", "terms", "is_settled")


@dataclass
class Past:
    """One group name, from the first broker on."""

    given_ids: list[int] = field(default_factory=list)
    masters: dict[int, int | None] = field(default_factory=dict)
    """By master epoch."""
    now: dict[str, Any] = field(default_factory=dict)


class Model:
    """All groups by name."""

    def __init__(self) -> None:
        self.past: dict[str, Past] = {}

    def view(self, name: str) -> dict[str, Any] | None:
        """Return the observable state of a group; None for an unknown group."""
        past = self.past.get(name)
        return past.now if past and past.now.get("brokers") else None

    def apply(self, command: Command) -> str:
        """Carry out *command* and return "applied", "unchanged" or "refused"."""
        now = self.view(command.group)
        if isinstance(command, AssignBrokerId):
            return self._assign(command)
        if now is None:
            return "refused"
        past = self.past[command.group]
        before = dict(now)
        kept = getattr(self, f"_{type(command).__name__}")(past, now, command)
        if kept is False:
            return "refused"
        return "unchanged" if now == before and not isinstance(command, AlterSet) else "applied"

    def _assign(self, command: AssignBrokerId) -> str:
        past = self.past.get(command.group)
        now = self.view(command.group)

        if now is not None and now["cluster"] != command.cluster:
            return "refused"
        if now is not None and command.broker_id in now["brokers"]:
            same = now["brokers"][command.broker_id][1] == command.check_code
            return "unchanged" if same else "refused"

        if past is None:
            if command.broker_id != 1:
                return "refused"
            past = self.past[command.group] = Past()
        elif not max(past.given_ids) < command.broker_id <= max(past.given_ids) + 1_000_001:
            return "refused"

        if now is None:
            epoch = max(past.masters, default=0)
            now = past.now = {
                "cluster": command.cluster,
                "brokers": {},
                "master": None,
                "life": None,
                "epoch": epoch,
                "has_elected": False,
                "set": set(),
                "set_epoch": past.now.get("set_epoch", 0),
                "departed": set(),
                "is_settled": False,
                "terms": None,
                "former": None,
                "awaits_lease": False,
                "incarnations": {},
            }

        past.given_ids.append(command.broker_id)
        now["brokers"] = {
            **now["brokers"],
            command.broker_id: (command.address, command.check_code),
        }

        return "applied"

    def _SetAddress(self, past: Past, now: dict[str, Any], command: SetAddress) -> bool:
        if command.broker_id not in now["brokers"]:
            return False
        code = now["brokers"][command.broker_id][1]
        now["brokers"] = {**now["brokers"], command.broker_id: (command.address, code)}
        return True

    def _AlterSet(self, past: Past, now: dict[str, Any], command: AlterSet) -> bool:
        members = set(command.members)
        is_of_master = (
            now["master"] is not None
            and command.master_id == now["master"]
            and command.master_epoch == now["epoch"]
            and command.set_epoch == now["set_epoch"]
        )
        is_set = members <= now["brokers"].keys() and now["master"] in members

        if not is_of_master or not is_set:
            return False
        if members == now["set"] and not command.accepts_same:
            return False

        now["departed"] = (now["departed"] | now["set"]) - members
        now["set"], now["set_epoch"] = members, now["set_epoch"] + 1
        now.update(is_settled=False, former=None)
        self._weaken(now, command.terms)
        return True

    def _ElectMaster(self, past: Past, now: dict[str, Any], command: ElectMaster) -> bool:
        if (command.master_epoch, command.set_epoch) != (now["epoch"], now["set_epoch"]):
            return False
        if command.new_epoch <= now["epoch"]:
            return False

        last = {name: now[name] for name in _ELECTORATE}
        if command.voids_last and now["former"] is not None:
            last = now["former"]

        chosen = command.master_id
        if chosen is None:
            if now["master"] is not None:
                has_changed = last["set"] != now["set"]
                now.update(master=None, life=None, epoch=command.new_epoch, former=None, **last)
                now["set_epoch"] += has_changed
                past.masters[command.new_epoch] = None
            return True

        if chosen not in now["brokers"]:
            return False
        is_voter = chosen in last["set"] | last["departed"]
        if now["has_elected"] and not is_voter and not command.is_override:
            return False

        assert command.new_epoch not in past.masters, "an epoch has one master"
        past.masters[command.new_epoch] = chosen
        is_ours, has_voters = command.master_life is not None, last["set"] | last["departed"]
        now["former"] = last if is_ours and has_voters else None
        if command.master_life is not None and command.master_boot is not None:
            now["incarnations"][chosen] = Incarnation(
                command.master_life, command.master_boot, command.acks_flushed
            )
        now.update(master=chosen, life=command.master_life, epoch=command.new_epoch)
        now.update(has_elected=True, set={chosen}, awaits_lease=command.awaits_lease)
        now.update(set_epoch=now["set_epoch"] + 1, departed=set(), terms=None, is_settled=False)
        return True

    def _RecordIncarnation(
        self, past: Past, now: dict[str, Any], command: RecordIncarnation
    ) -> bool:
        if now["master"] is None or command.master_epoch != now["epoch"]:
            return False
        if command.broker_id not in now["brokers"]:
            return False
        known, found = now["incarnations"], command.incarnation
        if known.get(command.broker_id) == found:
            return True
        now["incarnations"] = {**known, command.broker_id: found}
        return True

    def _ContinueEpoch(self, past: Past, now: dict[str, Any], command: ContinueEpoch) -> bool:
        if now["master"] is None or command.master_epoch != now["epoch"]:
            return False
        if command.master_life != now["life"]:
            now.update(life=command.master_life, set_epoch=now["set_epoch"] + 1)
        return True

    def _RecordTerms(self, past: Past, now: dict[str, Any], command: RecordTerms) -> bool:
        if now["master"] is None or command.master_epoch != now["epoch"]:
            return False
        before = now["terms"]
        self._weaken(now, command.terms)
        if now["terms"] != before:
            now["former"] = None
        return True

    def _SettleDeparted(self, past: Past, now: dict[str, Any], command: SettleDeparted) -> bool:
        if now["master"] is None or command.master_epoch != now["epoch"]:
            return False
        if command.set_epoch != now["set_epoch"]:
            return False
        terms = now["terms"]
        if terms is not None and len(now["set"]) < terms.in_sync:
            now["is_settled"] = bool(now["departed"])
        elif now["departed"]:
            now.update(departed=set(), is_settled=False)
        return True

    def _RemoveBrokers(self, past: Past, now: dict[str, Any], command: RemoveBrokers) -> bool:
        gone = now["brokers"].keys() if command.broker_ids is None else command.broker_ids
        now["brokers"] = {n: r for n, r in now["brokers"].items() if n not in gone}
        if now["master"] is not None and now["master"] not in now["brokers"]:
            now.update(master=None, life=None, epoch=now["epoch"] + 1)
            past.masters[now["epoch"]] = None
        members = now["set"] & now["brokers"].keys()
        if members != now["set"]:
            now["set"], now["set_epoch"] = members, now["set_epoch"] + 1
        now["departed"] = now["departed"] & now["brokers"].keys()
        kept = now["brokers"].keys()
        now["incarnations"] = {n: i for n, i in now["incarnations"].items() if n in kept}
        former = now["former"]
        if former is not None:
            former = {**former, "set": former["set"] & kept, "departed": former["departed"] & kept}
            now["former"] = former if former["set"] | former["departed"] else None
        return True

    @staticmethod
    def _weaken(now: dict[str, Any], terms: Any) -> None:
        if terms is not None:
            known = now["terms"]
            now["terms"] = terms if known is None else known.weaker(terms)
