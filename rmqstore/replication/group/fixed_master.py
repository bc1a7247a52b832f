"""Whether a replica that its file makes the master, without a controller, leads when it starts.

Nothing else elects in such a group, so the master continues wherever nothing can be
missing from its log. The page cache survives the death of a process, not that of its machine. So a
master whose puts waited for copies in memory may lack acknowledged messages once its machine was
started again: then its slaves are asked first.

A message that was acknowledged is on `copies - 1` slaves at least, of `total - 1`. If so many
slaves hold nothing beyond the end of this log that fewer than `copies - 1` are left, this log has
every such message. If a slave holds more, or too few answer, the replica waits: it serves reads,
and an operator decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.config import BrokerRole, FlushDiskType, ReplicaConfig, StoreConfig
from rmqstore.replication.group.epoch_state import is_interrupted, is_resumable, known_epoch
from rmqstore.replication.group.log_rank import reports_needed
from rmqstore.replication.protocol.events import LogView

__all__ = ["FixedMaster", "Lead", "SlaveReport", "Wait"]


@dataclass(frozen=True, slots=True)
class SlaveReport:
    """What a slave of the group holds; all reports of a round are of about one moment."""

    broker_id: int
    address: str
    end_offset: int


@dataclass(frozen=True, slots=True)
class Lead:
    """Become master in *epoch*, None for the one that `become_master` chooses."""

    epoch: int | None
    reason: str
    """Why nothing can be missing, or the setting that states it; "" after a clean end."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Serve reads, and ask again."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedMaster:
    """The settings of a replica that its file makes the master."""

    boot: str
    """The present boot of its machine; see `rmqstore.net.boot`."""
    copies: int
    """See `EpochState.master_copies`."""
    total: int
    """Number of replicas of the group, this one included; 1 if it is not known."""

    @classmethod
    def from_config(cls, store: StoreConfig, replica: ReplicaConfig, *, boot: str) -> FixedMaster:
        """Return the settings of a broker with *store* and *replica*."""
        in_sync = replica.in_sync_replicas
        waits = store.broker_role is BrokerRole.SYNC_MASTER and in_sync > 1
        if not waits or store.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            return cls(boot=boot, copies=1, total=replica.total_replicas)
        if replica.acting_master_enable and replica.auto_in_sync_replicas:
            # Puts waited for this number at least; with one copy no slave need have the message.
            in_sync = max(replica.min_in_sync_replicas, 2)
        return cls(boot=boot, copies=in_sync, total=replica.total_replicas)

    def next_step(
        self,
        log: LogView,
        *,
        word: int = -1,
        leader: str = "",
        reports: Sequence[SlaveReport] = (),
    ) -> Lead | Wait:
        """Return what to do with *log*, of a replica without a role.

        *word* is the epoch for which an operator states that the slaves were compared, *leader*
        the address of another master of the group.
        """
        state, epoch = log.epoch_state, max(known_epoch(log), 0) + 1
        if not is_interrupted(log):
            return Lead(None if is_resumable(log) or not state.has_replicas else epoch, "")
        copies = state.master_copies or self.copies
        if copies < 2:
            return Lead(epoch, "its puts waited for no copies in the memory of others")
        if state.master_boot == self.boot:
            return Lead(epoch, "its machine runs since then, so its log is whole")
        if word == epoch:
            return Lead(epoch, f"othersAskedEpoch={word} states that the slaves were compared")

        cause = (
            f"it led in epoch {state.master_epoch}, did not end cleanly, and its machine was "
            f"started again since then: slaves may hold messages that {copies} replicas had in "
            "memory and this one has lost"
        )
        otherwise = (
            f"or, if an operator has found this log to be the right one, set "
            f"othersAskedEpoch={epoch}"
        )
        if leader:
            return Wait(
                f"{cause}. The broker at {leader} is the master of the group now: make this one "
                f"its slave (brokerRole=SLAVE with a brokerId above 0), {otherwise}"
            )
        if ahead := max((*reports, None), key=_end_of):
            if ahead.end_offset > log.whole_end:
                return Wait(
                    f"{cause}. Slave {ahead.broker_id} at {ahead.address} has the log up to "
                    f"{ahead.end_offset}, this broker up to {log.whole_end}: stop both and "
                    "exchange brokerRole and brokerId of their files, so that the slave becomes "
                    f"the master, {otherwise}"
                )
        return self._count(log, epoch, copies, reports, cause, otherwise)

    def _count(
        self,
        log: LogView,
        epoch: int,
        copies: int,
        reports: Sequence[SlaveReport],
        cause: str,
        otherwise: str,
    ) -> Lead | Wait:
        """Return what follows from *reports* of slaves that hold nothing beyond this log."""
        slaves = self.total - 1
        if slaves < 1:
            return Wait(
                f"{cause}. totalReplicas is not set, so it is not known how many slaves there are: "
                f"compare them and set it, {otherwise}"
            )
        # An emptied slave holds nothing of what it acknowledged.
        whole = {each.broker_id for each in reports if each.end_offset > 0 or log.whole_end == 0}
        needed = reports_needed(slaves, copies=copies - 1)
        if len(whole) < needed:
            return Wait(
                f"{cause}. {len(whole)} of the {needed} slaves needed have answered, and hold "
                f"nothing more: start the others, {otherwise}"
            )
        return Lead(epoch, f"slaves {sorted(whole)} hold nothing beyond {log.whole_end}")


def _end_of(report: SlaveReport | None) -> int:
    return -1 if report is None else report.end_offset
