"""What to delete when, and when to refuse writes: the policy, and the timer that asks it.

`decide` is pure: time, hour and disk use come in, a decision comes out. The rules are those of
RocketMQ's CleanCommitLogService; the percentages are brought into the ranges it allows.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmqstore.config import StoreConfig

__all__ = [
    "CommitLogFile",
    "DiskUse",
    "RetentionDecision",
    "RetentionPolicy",
    "RetentionTimer",
    "decide",
    "share_used_ratio",
]

FIRST_ROUND_DELAY_MS = 60_000
"""How long after opening RocketMQ cleans for the first time."""

_HOUR_MS = 3_600_000
_WARNING_RANGE = (0.35, 0.90)
_FORCIBLY_RANGE = (0.30, 0.85)
_USED_MAX_RANGE = (0.10, 0.95)


@dataclass(frozen=True, slots=True)
class CommitLogFile:
    """One file of the commit log as the policy sees it."""

    start_offset: int
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class DiskUse:
    """How full the disk of one path is: 0 to 1, negative where the system does not report it."""

    path: str
    used_ratio: float
    total_bytes: int = 0
    """The size of the disk, 0 where the system does not report it."""
    free_bytes: int = 0
    """What is left for this process."""

    @classmethod
    def of(cls, path: str, *, total: int, used: int, usable: int) -> DiskUse:
        """Return the use of a disk from its bytes in all, in use, and left for this process.

        As in RocketMQ, blocks that a file system reserves for root are not room.
        """
        room = used + usable
        return cls(path, used / room if room else -1.0, total, usable)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The settings of retention, as ratios of 0 to 1 within RocketMQ's allowed ranges."""

    reserved_ms: int
    delete_at_hours: frozenset[int]
    batch_max: int
    clean_forcibly_enable: bool
    used_ratio_max: float
    warning_ratio: float
    forcibly_ratio: float
    replicas_per_disk_partition: int = 1
    logical_used_ratio_max: float = 0.8

    @classmethod
    def from_config(cls, config: StoreConfig) -> RetentionPolicy:
        """Return the policy that *config* describes."""
        return cls(
            reserved_ms=config.file_reserved_hours * _HOUR_MS,
            delete_at_hours=frozenset(config.delete_at_hours),
            batch_max=config.delete_file_batch_max,
            clean_forcibly_enable=config.clean_file_forcibly_enable,
            used_ratio_max=_clamp(config.disk_used_percent_max / 100, _USED_MAX_RANGE),
            warning_ratio=_clamp(config.disk_warning_percent / 100, _WARNING_RANGE),
            forcibly_ratio=_clamp(config.disk_clean_forcibly_percent / 100, _FORCIBLY_RANGE),
            replicas_per_disk_partition=config.replicas_per_disk_partition,
            logical_used_ratio_max=config.logical_disk_used_ratio_max,
        )


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """What one round does."""

    delete: tuple[CommitLogFile, ...]
    """Files to delete, oldest first; stop at the first that cannot be deleted."""
    forced: bool
    """Whether files younger than the reserved time may be among them."""
    refuse_writes: bool
    full_paths: frozenset[str]
    """Commit log paths where no file should be made while another path has room."""
    reasons: tuple[str, ...]
    """Why this round deletes at all, in words; empty when it does not."""


def share_used_ratio(
    files: Sequence[CommitLogFile], policy: RetentionPolicy, disks: Sequence[DiskUse]
) -> float:
    """Return how full the store's share of the smallest of its *disks* is; 0 where none reports its
    size."""
    sizes = [disk.total_bytes for disk in disks if disk.total_bytes > 0]
    if not sizes:
        return 0.0
    share = min(sizes) / policy.replicas_per_disk_partition
    return sum(file.size_bytes for file in files) / share


def decide(
    files: Sequence[CommitLogFile],
    policy: RetentionPolicy,
    *,
    now_ms: int,
    hour: int,
    commit_log_disks: Sequence[DiskUse],
    queue_disk: DiskUse,
    writes_refused: bool = False,
    manual: bool = False,
    share_used_ratio: float = 0.0,
    keep_from_offset: int | None = None,
) -> RetentionDecision:
    """Return what a round at *now_ms*, in the local *hour*, deletes and whether writes are refused.

    *files* are in offset order; the last, which is written to, always stays, and so does every file
    that holds a byte at or after *keep_from_offset* (what dispatch has still to read).
    *writes_refused* is the outcome of the round before: between the forcibly and the warning ratio
    it does not change. *manual* asks for a round outside the hours. *share_used_ratio* is the
    store's size over its share of the disk, looked at when several replicas share a partition.
    """
    assert 0 <= hour <= 23
    assert commit_log_disks
    # A file can be placed on any path, so the emptiest one determines the free space.
    commit_log_ratio = min(disk.used_ratio for disk in commit_log_disks)
    pressure = _pressure(policy, commit_log_ratio, queue_disk.used_ratio, share_used_ratio)

    worst_ratio = max(commit_log_ratio, queue_disk.used_ratio)
    if worst_ratio > policy.warning_ratio:
        refuse_writes = True
    elif worst_ratio > policy.forcibly_ratio:
        refuse_writes = writes_refused
    else:
        refuse_writes = False

    reasons = [*pressure.reasons]
    if hour in policy.delete_at_hours:
        reasons.append(f"hour {hour:02d} is one of deleteWhen")
    if manual:
        reasons.append("asked for")
    forced = pressure.immediate and policy.clean_forcibly_enable
    return RetentionDecision(
        delete=_choose(files, policy, now_ms, forced, keep_from_offset) if reasons else (),
        forced=forced,
        refuse_writes=refuse_writes,
        full_paths=frozenset(
            disk.path for disk in commit_log_disks if disk.used_ratio > policy.forcibly_ratio
        ),
        reasons=tuple(reasons),
    )


@dataclass(frozen=True, slots=True)
class _Pressure:
    immediate: bool
    reasons: tuple[str, ...]


def _pressure(
    policy: RetentionPolicy, commit_log_ratio: float, queue_ratio: float, share_used_ratio: float
) -> _Pressure:
    """Evaluates the disks, the commit log's before the queues'."""
    disks = (("commit log", commit_log_ratio), ("consume queue", queue_ratio))
    for name, ratio in disks:
        if ratio > policy.forcibly_ratio:
            return _Pressure(True, (f"{name} disk is {ratio:.0%} full",))
    if policy.replicas_per_disk_partition > 1:
        text = f"the share of the disk is {share_used_ratio:.0%} full"
        immediate = share_used_ratio > policy.logical_used_ratio_max
        due = immediate or share_used_ratio > policy.used_ratio_max
        return _Pressure(immediate, (text,) if due else ())
    for name, ratio in disks:
        if ratio < 0:
            return _Pressure(False, (f"{name} disk does not report how full it is",))
        if ratio > policy.used_ratio_max:
            return _Pressure(False, (f"{name} disk is {ratio:.0%} full",))
    return _Pressure(False, ())


def _choose(
    files: Sequence[CommitLogFile],
    policy: RetentionPolicy,
    now_ms: int,
    forced: bool,
    keep_from_offset: int | None,
) -> tuple[CommitLogFile, ...]:
    chosen: list[CommitLogFile] = []
    for file in files[:-1][: policy.batch_max]:
        needed = (
            keep_from_offset is not None and file.start_offset + file.size_bytes > keep_from_offset
        )
        if needed or not (forced or now_ms >= file.modified_ms + policy.reserved_ms):
            break
        chosen.append(file)
    return tuple(chosen)


def _clamp(ratio: float, allowed: tuple[float, float]) -> float:
    return min(max(ratio, allowed[0]), allowed[1])


class RetentionTimer:
    """Calls a function in its own thread, every *interval_ms* until it is stopped.

    An exception of the function goes to *on_error* and the rounds go on: one failed round must not
    end retention for good. The thread is a daemon, so a store that is not closed does not keep a
    process alive.
    """

    def __init__(
        self,
        action: Callable[[], object],
        *,
        interval_ms: int,
        on_error: Callable[[Exception], object],
        first_delay_ms: int = FIRST_ROUND_DELAY_MS,
    ) -> None:
        self._action = action
        self._interval_ms = interval_ms
        self._first_delay_ms = first_delay_ms
        self._on_error = on_error
        self._stopped = threading.Event()
        context = contextvars.copy_context()
        self._thread = threading.Thread(
            target=context.run, args=(self._run,), name="rmqstore-retention", daemon=True
        )

    def start(self) -> None:
        """Begin; the first call comes after *first_delay_ms*."""
        self._thread.start()

    def stop(self) -> None:
        """End, waiting for a round in progress. May be called again, or before start."""
        self._stopped.set()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        delay_ms = self._first_delay_ms
        while not self._stopped.wait(delay_ms / 1000):
            try:
                self._action()
            except Exception as error:
                self._on_error(error)
            delay_ms = self._interval_ms
