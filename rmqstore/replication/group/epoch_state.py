"""What a replica keeps about epochs beside its epoch list, and which epoch it may begin as master.

The epoch list is cut with the log. What a replica has promised about epochs must outlive every cut
and every restart, so it has a file of its own, `epochState` under the root of a store:

    knownEpoch=3            highest epoch known from an order, the log or a master; -1: none
    masterEpoch=1           epoch that this store itself began last as master; -1: none
    masterEndOffset=-1      end of the log when that epoch ended cleanly; -1: it has not
    hasReplicas=true        another replica holds, or has held, this log
    masterCopies=2          copies in memory that a put of that epoch waited for
    masterBoot=3f2b...      boot of the machine in which that epoch began
    begunAt=2048            the log begins here, and the master's began before
    crc=1234567890          CRC-32 of the lines above

The lines with masterCopies and masterBoot are there while a broker whose file makes it the master
(`fixed_master`) is one, begunAt on a replica that lacks the beginning of its master's log. A
release that does not know them reads the file of any other replica, so also after a clean end.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rmqstore.config.properties import format_properties, parse_properties
from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, CorruptionError, Fenced

__all__ = [
    "EPOCH_JUMP_MAX",
    "EpochLog",
    "EpochState",
    "check_epoch",
    "epoch_to_begin",
    "format_epoch_state",
    "is_interrupted",
    "is_resumable",
    "known_epoch",
    "parse_epoch_state",
]

EPOCH_JUMP_MAX = 1_000_000
"""An epoch may be this far above the highest known one without a flag; 2,147 such jumps use up all
epochs."""

_INT32_MAX, _INT64_MAX = 2**31 - 1, 2**63 - 1
_BOOLEANS = {"false": False, "true": True}


@dataclass(frozen=True, slots=True)
class EpochState:
    """The file's fields. Every operation returns another state."""

    known_epoch: int = -1
    master_epoch: int = -1
    master_end: int = -1
    has_replicas: bool = False
    master_copies: int = 0
    """How many copies in memory a put of the master's epoch waited for, this replica's included; 1
    where a put had none but this replica's, or the others' only once this disk had it. 0: this is
    not known."""
    master_boot: str = ""
    """The boot of the machine in which the master's epoch began, "" for none that is known."""
    begun_at: int = -1
    """Where this log began although its master's began before; -1: it did not."""

    def is_partial(self, log_start: int) -> bool:
        """Return whether a log that begins at *log_start* lacks what its master's began with.

        It does until retention has deleted a file of it: the master keeps its files no longer.
        """
        return log_start <= self.begun_at

    def learn(self, epoch: int) -> EpochState:
        """Return the state of a replica that knows *epoch*."""
        return replace(self, known_epoch=max(self.known_epoch, epoch))

    def begin(self, epoch: int, *, copies: int = 0, boot: str = "") -> EpochState:
        """Return the state of a replica that becomes master of *epoch*."""
        return replace(
            self.learn(epoch),
            master_epoch=epoch,
            master_end=-1,
            master_copies=copies,
            master_boot=boot,
        )

    def end(self, log_end: int) -> EpochState:
        """Return the state of a master whose role ended with its whole log, up to *log_end*, on
        the disk."""
        return replace(self, master_end=log_end, master_copies=0, master_boot="")

    def share(self) -> EpochState:
        """Return the state of a replica whose log another one holds as well."""
        return replace(self, has_replicas=True)

    def begin_log(self, offset: int, *, is_partial: bool) -> EpochState:
        """Return the state of a replica whose log restarts at *offset*."""
        return replace(self, begun_at=offset if is_partial else -1)

    def latest(self, epochs: Sequence[EpochEntry]) -> int:
        """Return the highest epoch known with the epoch list *epochs*, -1 for none."""
        return max(self.known_epoch, epochs[-1].epoch if epochs else -1)


class EpochLog(Protocol):
    """The part of a replica's log that the rules about epochs read."""

    @property
    def end_offset(self) -> int:
        """After the last byte held."""

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """The entries of the log's epoch list, as saved."""

    @property
    def epoch_state(self) -> EpochState:
        """The saved state of epochs beside the list."""


def known_epoch(log: EpochLog) -> int:
    """Return the highest epoch that the replica of *log* knows, -1 for none."""
    return log.epoch_state.latest(log.epochs)


def check_epoch(epoch: int, known: int, *, allow_jump: bool) -> None:
    """Check an epoch from a caller; *known* is the highest known epoch.

    Raises ArgumentError for an epoch that no list can hold, and for one that is more than
    EPOCH_JUMP_MAX above *known* unless *allow_jump*: after a typing error there might be no later
    epoch to give.
    """
    if isinstance(epoch, bool) or not isinstance(epoch, int) or not 0 <= epoch <= _INT32_MAX:
        raise ArgumentError(f"epoch {epoch!r}; epochs are integers from 0 to {_INT32_MAX}")
    jump = epoch - max(known, 0)
    if jump > EPOCH_JUMP_MAX and not allow_jump:
        so_far = f"epoch {known}, the highest known here" if known >= 0 else "no epoch at all"
        raise ArgumentError(
            f"epoch {epoch} comes after {so_far}: a jump of more than {EPOCH_JUMP_MAX} needs "
            "allow_epoch_jump=True (--allow-epoch-jump)"
        )


def epoch_to_begin(
    log: EpochLog,
    epoch: int | None,
    *,
    begun_epoch: int,
    others_asked: bool,
    allow_jump: bool,
    place: str,
) -> int:
    """Return the epoch that the replica of *log* begins as master when it is given *epoch*.

    *begun_epoch* is the one that this process began before, -1 for none. *others_asked*: the caller
    states that the other replicas were compared. *place* names the store in messages.

    Without an epoch the next one is chosen only where no other replica can have chosen it. A master
    that ended cleanly continues in its own epoch, which no other replica can have. A master that
    did not end cleanly may lack messages that the others acknowledged. Raises Fenced for an epoch
    that is over, ArgumentError for an epoch that is missing, impossible or too far, or without
    *others_asked* where that is needed.
    """
    state, known = log.epoch_state, known_epoch(log)
    has_begun = known == begun_epoch != -1
    resumes = is_resumable(log)

    if epoch is None:
        if has_begun or resumes:
            return known
        if not state.has_replicas:
            check_epoch(known + 1, known, allow_jump=False)
            return max(known + 1, 1)
        raise ArgumentError(_refusal(log, place))

    check_epoch(epoch, known, allow_jump=allow_jump)
    if epoch < known or (epoch == known and not (has_begun or resumes)):
        raise Fenced(
            f"epoch {epoch} is over: store {place} knows epoch {known}; become master in a later "
            "one",
            epoch=known,
        )

    if is_interrupted(log) and not (has_begun or others_asked):
        raise ArgumentError(_refusal(log, place))
    return epoch


def is_resumable(log: EpochLog) -> bool:
    """Return whether the log is that of a master whose role ended cleanly, and no later epoch is
    known."""
    state = log.epoch_state
    return (
        state.master_epoch == known_epoch(log)
        and bool(log.epochs)
        and log.epochs[-1].epoch == state.master_epoch
        and 0 <= state.master_end <= log.end_offset
    )


def is_interrupted(log: EpochLog) -> bool:
    """Return whether the log is that of a master whose role did not end cleanly, without a later
    master."""
    state = log.epoch_state
    last = log.epochs[-1].epoch if log.epochs else -1
    has_ended = 0 <= state.master_end <= log.end_offset
    return state.has_replicas and last <= state.master_epoch != -1 and not has_ended


def _refusal(log: EpochLog, place: str) -> str:
    next_epoch = max(known_epoch(log) + 1, 1)
    which = f"above every epoch given so far ({next_epoch} or more, as far as is known here)"

    if is_interrupted(log):
        return (
            f"store {place} was master of epoch {log.epoch_state.master_epoch} and was not closed "
            "cleanly: it may lack what other replicas acknowledged. Ask the other replicas (see "
            "'Which replica to promote' in docs/replication.md). If this one is the right one, "
            f"become master with an epoch {which} and others_asked=True (--epoch {next_epoch} "
            "--others-asked); otherwise become the slave of the right one"
        )
    return (
        f"store {place} shares its log with other replicas, and one of them may have been given "
        f"the next epoch already: become master with an epoch {which} (--epoch {next_epoch}), "
        "after the other replicas were asked (see 'Which replica to promote' in "
        "docs/replication.md)"
    )


def format_epoch_state(state: EpochState) -> str:
    """Return the text of the file."""
    fields = {
        "knownEpoch": str(state.known_epoch),
        "masterEpoch": str(state.master_epoch),
        "masterEndOffset": str(state.master_end),
        "hasReplicas": "true" if state.has_replicas else "false",
    }
    if state.master_copies > 0:
        fields["masterCopies"] = str(state.master_copies)
    if state.master_boot:
        fields["masterBoot"] = state.master_boot
    if state.begun_at >= 0:
        fields["begunAt"] = str(state.begun_at)
    text = format_properties(fields)
    return text + format_properties({"crc": str(zlib.crc32(text.encode()))})


def parse_epoch_state(text: str) -> EpochState:
    """Return the state that a file's *text* holds. Raises CorruptionError."""
    try:
        fields = parse_properties(text)
        state = EpochState(
            known_epoch=_number(fields["knownEpoch"], _INT32_MAX),
            master_epoch=_number(fields["masterEpoch"], _INT32_MAX),
            master_end=_number(fields["masterEndOffset"], _INT64_MAX),
            has_replicas=_BOOLEANS[fields["hasReplicas"]],
            master_copies=_number(fields.get("masterCopies", "0"), _INT32_MAX),
            master_boot=fields.get("masterBoot", ""),
            begun_at=_number(fields.get("begunAt", "-1"), _INT64_MAX),
        )
    except (KeyError, ValueError) as error:
        raise CorruptionError(f"epoch state: {error}", kind="epoch state") from error
    if text != format_epoch_state(state):
        raise CorruptionError("epoch state: the CRC does not match", kind="epoch state")
    return state


def _number(text: str, high: int) -> int:
    number = int(text)
    if not -1 <= number <= high:
        raise ValueError(f"{text} is not from -1 to {high}")
    return number
