"""What the report of a replica is worth: whether its log may lack messages that it acknowledged.

An acknowledgement from memory lasts as long as the boot of its machine, and an acknowledgement from
the disk as long as the disk. So the log of a replica may have lost its end

- after another boot of its machine, if the replica acknowledged from memory,
- if its directory is a copy, or was restored: the directory does not name the process that was in
  sync,
- if it holds less than the replica reported, or than a member of the set held, in that epoch.

Such a replica may be elected with the log that it has. Its report does not count among the reports
that an election needs, until the replica has caught up with a master: the log of a master has all
acknowledged messages. Java brokers report none of this, so RocketMQ's rule holds for them.
"""

from __future__ import annotations

from rmqstore.controller.commands import Incarnation
from rmqstore.controller.liveness import Heartbeat
from rmqstore.replication.group.log_rank import LogRank

__all__ = ["doubt_of", "incarnation_of", "is_successor"]

NO_LOG = LogRank(-1, -1)


def incarnation_of(beat: Heartbeat) -> Incarnation | None:
    """Return the process that sent *beat*; None for a broker that does not report its boot."""
    if beat.life is None or beat.boot is None:
        return None
    return Incarnation(beat.life, beat.boot, beat.acks_flushed)


def is_successor(beat: Heartbeat, life: int) -> bool:
    """Return whether the sender of *beat* is the process *life*, or uses the directory after it."""
    return beat.life == life or life in beat.former_lives


def doubt_of(
    beat: Heartbeat,
    known: Incarnation | None,
    *,
    is_synced: bool,
    peak: LogRank,
    confirmed: LogRank = NO_LOG,
) -> str:
    """Return why the log of *beat* may have lost its end; empty if it has not.

    *known* is the process with which the replica was in sync last. *is_synced*: the sender has
    caught up with the present master. *peak* is the most that the replica may have acknowledged,
    *confirmed* what all members of the set held.
    """
    if beat.life is None or is_synced:
        return ""
    if known is not None and beat.boot is not None:
        if not is_successor(beat, known.life):
            return "its directory is a copy, or was restored: another process was in sync last"
        if beat.boot != known.boot and not _is_flushed(beat, known):
            return "its machine was started again, and it acknowledged messages from memory"
    found, held = beat.vouched, max(peak, confirmed)
    return f"its log ends at {_text(found)}, and it held {_text(held)}" if found < held else ""


def _is_flushed(beat: Heartbeat, known: Incarnation) -> bool:
    """Returns whether the disk has all that the replica acknowledged until the process of *beat*
    began. A process between the two, with another setting, may have acknowledged from memory."""
    is_next = bool(beat.former_lives) and beat.former_lives[-1] == known.life
    return is_next and (known.acks_flushed or beat.was_closed)


def _text(rank: LogRank) -> str:
    return f"{rank.end_offset} of epoch {rank.last_epoch}"
