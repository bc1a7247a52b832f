"""The status of a replica, as lines for people and for programs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from rmqstore.cli.output import print_json
from rmqstore.measure.traffic import Counts
from rmqstore.net.addresses import format_address
from rmqstore.replication.group.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.protocol.events import HaState
from rmqstore.replication.watch import in_sync_count

__all__ = ["StatusPrinter"]

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class _Moment:
    seconds: float
    end_offset: int
    acknowledged: int


class StatusPrinter:
    """Prints a line for each status on a terminal, elsewhere a line for each changed status.

    *counts* are those of the messages that the command itself puts, None without such messages.
    """

    def __init__(self, *, as_json: bool, counts: Counts | None) -> None:
        self._as_json = as_json
        self._counts = counts
        self._last: tuple[Status, Counts | None] | None = None
        self._before: _Moment | None = None

    def show(self, status: Status) -> None:
        """Print *status*."""
        counts = self._counts
        now = _Moment(time.monotonic(), status.end_offset, counts.acknowledged if counts else 0)
        seen = _without_times(status), counts and replace(counts)
        if seen == self._last and not sys.stdout.isatty():
            self._before = now
            return

        rates = self._rates(now)
        self._last, self._before = seen, now
        if self._as_json:
            print_json(_as_json(status, counts, rates))
        else:
            print(_line(status, counts, rates))
        sys.stdout.flush()

    def _rates(self, now: _Moment) -> tuple[float, float]:
        """Bytes of the log and acknowledged messages, each a second."""
        before = self._before
        if before is None or now.seconds <= before.seconds:
            return 0.0, 0.0
        seconds = now.seconds - before.seconds
        grown = max(now.end_offset - before.end_offset, 0)
        return grown / seconds, (now.acknowledged - before.acknowledged) / seconds


def _without_times(status: Status) -> Status:
    replicas = (replace(each, connected_ms=0, caught_up_ms=None) for each in status.replicas)
    return replace(status, replicas=tuple(replicas))


# ---- text


def _line(status: Status, counts: Counts | None, rates: tuple[float, float]) -> str:
    epoch = "unknown" if status.epoch < 0 else status.epoch
    parts = [
        time.strftime("%H:%M:%S"),
        f"{status.role or 'no role'} {status.broker_id}, epoch {epoch}",
        f"log {status.start_offset} to {status.end_offset}",
        f"confirmed {status.confirm_offset}",
        f"{rates[0] / _MIB:.1f} MiB/s",
        *_set_texts(status),
        *_count_texts(counts, rates[1]),
        *map(_replica_text, status.replicas),
    ]

    if status.master is not None:
        parts.append(_master_text(status.master))
    if status.failure is not None:
        parts.append(f"the role ended: {status.failure}")

    return "  ".join(parts)


def _set_texts(status: Status) -> Iterator[str]:
    if status.role != "master":
        return
    if status.sync_state_set is None:
        yield f"in sync {in_sync_count(status)}"
    else:
        members = ", ".join(map(str, sorted(status.sync_state_set)))
        yield f"set {{{members}}} of epoch {status.sync_state_set_epoch}"
    for each in status.proposals:
        yield f"proposed {{{', '.join(map(str, sorted(each.members)))}}}"


def _count_texts(counts: Counts | None, a_second: float) -> Iterator[str]:
    if counts is None:
        return
    yield f"put {counts.acknowledged}, {a_second:.0f} a second"
    if counts.late:
        yield f"late {counts.late}"
    if counts.refused:
        yield f"refused {counts.refused}"


def _replica_text(replica: ReplicaStatus) -> str:
    name = format_address(replica.address) if replica.broker_id is None else str(replica.broker_id)
    kind = "learner" if replica.is_learner else "slave"
    counts = "" if replica.is_counted else ", not counted"
    return (
        f"[{kind} {name} {replica.state.name} at {replica.ack_offset}, lag {replica.lag_bytes}"
        f"{counts}]"
    )


def _master_text(master: MasterStatus) -> str:
    lag = "unknown" if master.master_end < 0 else str(master.lag_bytes)
    text = f"[master {format_address(master.address)} {master.state.name}, lag {lag}"
    if master.halted_reason is not None:
        return f"{text}, halted: {master.halted_reason}]"
    if master.last_error and master.state is not HaState.TRANSFER:
        return f"{text}, {master.last_error}]"
    return f"{text}]"


# ---- JSON


def _as_json(status: Status, counts: Counts | None, rates: tuple[float, float]) -> dict[str, Any]:
    members = status.sync_state_set
    return {
        "type": "status",
        "timestamp": time.time_ns() // 1_000_000,
        "role": status.role,
        "brokerId": status.broker_id,
        "epoch": status.epoch,
        "address": format_address(status.address) if status.address else None,
        "startOffset": status.start_offset,
        "endOffset": status.end_offset,
        "flushedOffset": status.flushed_offset,
        "confirmOffset": status.confirm_offset,
        "bytesPerSecond": round(rates[0]),
        "inSync": in_sync_count(status) if status.role == "master" else None,
        "syncStateSet": None if members is None else sorted(members),
        "syncStateSetEpoch": status.sync_state_set_epoch,
        "proposals": [sorted(each.members) for each in status.proposals],
        "replicas": [_replica_json(each) for each in status.replicas],
        "master": _master_json(status.master),
        "put": _counts_json(counts, rates[1]),
        "failure": status.failure,
    }


def _replica_json(replica: ReplicaStatus) -> dict[str, Any]:
    return {
        "brokerId": replica.broker_id,
        "address": format_address(replica.address),
        "state": replica.state.name,
        "isLearner": replica.is_learner,
        "isCounted": replica.is_counted,
        "ackOffset": replica.ack_offset,
        "lagBytes": replica.lag_bytes,
    }


def _master_json(master: MasterStatus | None) -> dict[str, Any] | None:
    if master is None:
        return None
    return {
        "address": format_address(master.address),
        "state": master.state.name,
        "ackedOffset": master.acked_offset,
        "masterEnd": master.master_end,
        "lagBytes": master.lag_bytes,
        "lastError": master.last_error,
        "halted": master.halted_reason,
    }


def _counts_json(counts: Counts | None, a_second: float) -> dict[str, Any] | None:
    if counts is None:
        return None
    return {
        "acknowledged": counts.acknowledged,
        "late": counts.late,
        "refused": counts.refused,
        "messagesPerSecond": round(a_second),
    }
