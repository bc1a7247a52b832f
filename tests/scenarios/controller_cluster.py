"""A controller that leads, and the brokers of one group whose heartbeats a test delivers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from rmqstore.controller.commands import Command, Terms
from rmqstore.controller.group import Group
from rmqstore.controller.leader import Election, Leader
from rmqstore.controller.liveness import Heartbeat, Liveness
from rmqstore.controller.state import ControllerState, Result
from rmqstore.replication.group.log_rank import LogRank

QUORUM = Terms(in_sync=2, min_in_sync=1, all_ack=False, lease_ms=1000)
ALL_ACK = Terms(in_sync=1, min_in_sync=1, all_ack=True, lease_ms=1000)


class Cluster:
    """One controller node that leads, and the brokers of group "g" as they report."""

    def __init__(self, *, allows_unclean: bool = False) -> None:
        self.now_ms = 100_000
        self.state = ControllerState()
        self.liveness = Liveness()
        self.allows_unclean = allows_unclean
        self.numbers = 0
        self.serves = False
        """Whether a doubted master answers."""
        self.lead()

    def lead(self) -> None:
        """Begin a term: leases of former terms are unknown."""
        self.leader = Leader(
            self.state, self.liveness, since_ms=self.now_ms, allows_unclean=self.allows_unclean
        )

    @property
    def group(self) -> Group:
        found = self.state.group("g")
        assert found is not None
        return found

    def register(self, *ids: int) -> None:
        for each in ids:
            wanted = self.leader.assign_broker_id("c", "g", each, f"host{each}:1;{each}")
            assert not isinstance(wanted, Result), wanted
            assert self.state.apply(wanted).is_applied

    def heartbeat(self, broker_id: int, *, connection: str | None = None, **fields: Any) -> None:
        """Deliver a heartbeat that is newer than those before, and without a review."""
        beat = Heartbeat(group="g", broker_id=broker_id, address=f"host{broker_id}:1", **fields)
        is_new = self.liveness.record(beat, connection or f"connection {broker_id}", self.now_ms)
        assert is_new, "the heartbeat was dropped"

    def beat(self, broker_id: int) -> Heartbeat:
        """Return the last heartbeat of a broker."""
        report = self.liveness.report("g", broker_id)
        assert report is not None
        return report.beat

    def java(self, broker_id: int, end: int = 0, *, epoch: int = -1) -> None:
        """Deliver a heartbeat of a Java broker."""
        self.heartbeat(broker_id, rank=LogRank(epoch, end), timeout_ms=3000)

    def ours(
        self,
        broker_id: int,
        end: int = 0,
        *,
        epoch: int = -1,
        terms: Terms = QUORUM,
        seen_ms: int | None = None,
        confirm: int = -1,
        refused: int = -1,
        life: int | None = None,
        **fields: Any,
    ) -> int:
        """Deliver a heartbeat of a broker of this library; return the lease that it gets.

        *seen_ms* is the controller's clock in the last answer that the broker received; None: now.
        *fields* are further ones of the heartbeat.
        """
        self.numbers += 1
        group = self.group
        life = (1 if refused < 0 else 2) if life is None else life
        is_master = group.master_id == broker_id and refused < 0

        self.heartbeat(
            broker_id,
            rank=LogRank(epoch, end),
            confirm_offset=confirm,
            timeout_ms=3000,
            life=life,
            number=self.numbers,
            seen_ms=self.now_ms if seen_ms is None else seen_ms,
            refused_epoch=refused,
            set_epoch=group.set_epoch if is_master else -1,
            terms=terms,
            **{"role_epoch": group.master_epoch if is_master else -1, **fields},
        )
        self.review()
        return self.leader.lease("g", broker_id, self.now_ms)

    def booted(self, broker_id: int, end: int = 0, *, boot: int = 1, **fields: Any) -> int:
        """Deliver a heartbeat that names the machine's boot, of a process that has caught up with
        the present master unless *fields* say otherwise."""
        fields = {"epoch": 1, "synced_epoch": self.group.master_epoch, **fields}
        return self.ours(broker_id, end, boot=f"{broker_id}.{boot}", **fields)

    def review(self) -> Command | Election | None:
        due = self.leader.review("g", self.now_ms)
        if isinstance(due, Election) and due.doubted is not None:
            self.answer(due.doubted)
            due = self.leader.review("g", self.now_ms)
        if isinstance(due, Election):
            self.settle(due)
        elif due is not None:
            assert self.state.apply(due).is_applied
        return due

    def answer(self, broker_id: int) -> None:
        """Ask a doubted master."""
        self.leader.answered("g", broker_id, serves=self.serves, now_ms=self.now_ms)

    def settle(self, election: Election) -> Group:
        if election.command is not None:
            self.leader.begin(election)
            result = self.state.apply(election.command)
            self.leader.end(election, result)
            assert result.is_applied, result
        return self.group

    def fail(self, election: Election, reason: str, *, is_unknown: bool) -> None:
        """Let the log refuse an election, or not answer in time."""
        self.leader.fail(election, reason, is_unknown=is_unknown, now_ms=self.now_ms)

    def elect(self, broker_id: int | None = None, *, designated: bool = False) -> Election:
        def attempt() -> Election:
            return self.leader.elect(
                "g", broker_id=broker_id, is_designated=designated, now_ms=self.now_ms
            )

        election = attempt()
        if election.doubted is not None:
            self.answer(election.doubted)
            election = attempt()
        self.settle(election)
        return election

    def propose(self, *members: int) -> Result:
        group = self.group
        assert group.master_id is not None
        wanted = self.leader.alter_set(
            "g",
            master_id=group.master_id,
            master_epoch=group.master_epoch,
            set_epoch=group.set_epoch,
            members=frozenset(members),
            now_ms=self.now_ms,
        )
        return wanted if isinstance(wanted, Result) else self.state.apply(wanted)

    def close(self, *ids: int) -> None:
        for each in ids:
            self.liveness.closed(f"connection {each}", self.now_ms)

    def java_group(self, *ids: int, members: Collection[int] = ()) -> None:
        """Make a group of Java brokers; the first is master, *members* are the set."""
        self.register(*ids)
        for each in ids:
            self.java(each)
        self.elect(ids[0])
        if members:
            assert self.propose(*members).is_applied

    def group_without_master(self) -> None:
        """Make a group of two Java brokers in the set that are both gone; no master is left."""
        self.java_group(1, 2, members=(1, 2))
        self.close(1, 2)
        self.now_ms += 1
        self.review()
        assert self.group.master_id is None

    def our_group(self, *ids: int, terms: Terms = QUORUM) -> None:
        """Make a group of our brokers; the first is master, all are in the set."""
        self.register(*ids)
        for each in ids:
            self.ours(each, terms=terms)
        self.elect(ids[0])
        for each in ids:
            self.ours(each, 100, epoch=1, terms=terms)
        assert self.propose(*ids).is_applied
        assert self.ours(ids[0], 100, epoch=1, terms=terms) == terms.lease_ms

    def booted_group(self, *ids: int, terms: Terms = QUORUM, **fields: Any) -> None:
        """Make a group of brokers that report their boots; the first is master, all are in the set
        with logs up to 100."""
        self.register(*ids)
        for each in ids:
            self.booted(each, epoch=-1, synced_epoch=-1, terms=terms, **fields)
        self.elect(ids[0])
        for each in ids:
            self.booted(each, 100, terms=terms, **fields)
            self.review()
        assert self.propose(*ids).is_applied
        assert self.booted(ids[0], 100, terms=terms, **fields) == terms.lease_ms

    def lose(self, *ids: int) -> None:
        """End the connections of brokers, and let the lease of the master end."""
        self.close(*ids)
        self.now_ms += 1200
