"""Retention at work: rounds that look at files and disks, decide, and carry the decision out."""

from __future__ import annotations

import os
import time
import weakref
from pathlib import Path

from rmqstore import arguments
from rmqstore.config import StoreConfig
from rmqstore.errors import DiskError, disk_errors
from rmqstore.store.interface import StoreInterface
from rmqstore.store.logger import log
from rmqstore.store.retention import (
    CommitLogFile,
    DiskUse,
    RetentionDecision,
    RetentionPolicy,
    RetentionTimer,
    decide,
    share_used_ratio,
)

__all__ = ["Cleaner", "disk_use", "log_paths"]

_CLOCK_MS_MAX = 253_370_764_800_000
"""The year 9999, the last one that every C library breaks down."""


class Cleaner:
    """The rounds of retention of one store, by its timer or by hand.

    With *deletes* the timer's rounds remove files; without it they only look at the disks, and
    refuse messages while one is too full.
    """

    def __init__(self, store: StoreInterface, *, deletes: bool) -> None:
        # The rounds and the timer hold the store weakly.
        self._store = weakref.ref(store)
        self._config = store.config
        self._deletes = deletes
        self._are_writes_refused = False
        path = store.path
        self._timer = RetentionTimer(
            self._round_of_timer,
            interval_ms=store.config.clean_interval_ms,
            on_error=lambda error: log().error("%s: retention: %s", path, error),
        )
        weakref.finalize(store, self._timer.stop).atexit = False

    def start(self) -> None:
        """Begin the timer's rounds."""
        self._timer.start()

    def stop(self) -> None:
        """End the timer, waiting for a round in progress. A second call does nothing."""
        self._timer.stop()

    def _round_of_timer(self) -> None:
        store = self._store()
        if store is not None:
            self.round(store, deletes=self._deletes)

    def round_now(
        self, store: StoreInterface, *, hour: int | None, now_ms: int | None
    ) -> RetentionDecision:
        """Do a round by hand; *hour* and *now_ms* stand in for the clock, None for its reading."""
        if hour is not None:
            hour = arguments.integer("hour", hour, low=0, high=23)
        if now_ms is not None:
            now_ms = arguments.integer("now_ms", now_ms, low=0, high=_CLOCK_MS_MAX)
        return self.round(store, deletes=True, manual=True, hour=hour, now_ms=now_ms)

    def round(
        self,
        store: StoreInterface,
        *,
        deletes: bool,
        manual: bool = False,
        hour: int | None = None,
        now_ms: int | None = None,
    ) -> RetentionDecision:
        """Look at files and disks of *store*, decide, do it, and return the decision."""
        now_ms = time.time_ns() // 1_000_000 if now_ms is None else now_ms
        with disk_errors("looking at the commit log's files"):
            files = [
                CommitLogFile(start, size, int(os.stat(path).st_mtime * 1000))
                for path, start, size in store._files()
            ]

        policy = RetentionPolicy.from_config(self._config)
        disks = [disk_use(path) for path in log_paths(store.path, self._config)]

        decision = decide(
            files,
            policy,
            now_ms=now_ms,
            hour=time.localtime(now_ms / 1000).tm_hour if hour is None else hour,
            commit_log_disks=disks,
            share_used_ratio=share_used_ratio(files, policy, disks),
            queue_disk=disk_use(store.path),
            writes_refused=self._are_writes_refused,
            manual=manual,
            keep_from_offset=store.dispatched_offset,
        )

        if decision.refuse_writes != self._are_writes_refused:
            store._refuse("disk", decision.refuse_writes)
            self._are_writes_refused = decision.refuse_writes
            state = "full, writes refused" if decision.refuse_writes else "has room"
            log().warning("%s: disk %s", store.path, state)

        if deletes and decision.delete:
            store.expire_files(len(decision.delete))
        return decision


def log_paths(root: str, config: StoreConfig) -> tuple[str, ...]:
    """Return the directories of the commit log of a store at *root*."""
    return config.commit_log_paths or (os.path.join(root, "commitlog"),)


def disk_use(path: str) -> DiskUse:
    """Return how full the disk of a directory is. Raises DiskError."""
    import shutil

    existing = Path(path)
    try:
        usage = shutil.disk_usage(existing if existing.exists() else existing.parent)
    except OSError as error:
        raise DiskError(
            error.errno or 0, f"asking how full the disk of {path} is: {error}"
        ) from error
    return DiskUse.of(path, total=usage.total, used=usage.used, usable=usage.free)
