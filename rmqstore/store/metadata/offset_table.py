"""Consumer offsets that change in place: a commit costs the same with one group and with 10,000."""

from __future__ import annotations

import threading
from collections.abc import Mapping

from rmqstore.data_version import DataVersion
from rmqstore.store.metadata.offsets import ConsumerOffsets, PrintedOffsets, offsets_key

__all__ = ["OffsetTable"]

_NONE: Mapping[int, int] = {}


class OffsetTable:
    """The offsets of *known*, as they change. Safe to use from any thread.

    Every *commits_per_version* commits the version takes a step.
    """

    def __init__(self, known: ConsumerOffsets, *, commits_per_version: int = 1) -> None:
        assert commits_per_version > 0
        self._lock = threading.Lock()
        self._commits_per_version = commits_per_version
        self._set(known)

    def _set(self, known: ConsumerOffsets) -> None:
        self._offsets: dict[str, Mapping[int, int]] = dict(known.offsets)
        self._printed: PrintedOffsets = {}
        self._others = known.others
        self._kind = type(known)
        self._snapshot: ConsumerOffsets | None = known
        self._begin(known.data_version)

    def _begin(self, version: DataVersion) -> None:
        # A commit counts alone; the version is made of the counts when it is read.
        self._base = version
        self._state_version = version.state_version
        self._commits = 0
        self._last_ms = version.timestamp_ms

    def replace(self, known: ConsumerOffsets) -> None:
        """Take the offsets and the version of *known* in place of all that are here."""
        with self._lock:
            self._set(self._kind.of_any(known))

    def is_at(self, known: ConsumerOffsets) -> bool:
        """Return whether `replace` with *known* would change nothing."""
        return self._kind.of_any(known) == self.snapshot()

    def lead(self, state_version: int) -> None:
        """Give the steps of the version a new *state_version*, the epoch of a master."""
        with self._lock:
            self._begin(self._counted())
            self._state_version = state_version

    def of(self, topic: str, group: str) -> Mapping[int, int]:
        """Return the offsets of one group on one topic by queue; empty when there are none."""
        return self._offsets.get(offsets_key(topic, group), {})

    def at(self, key: str) -> Mapping[int, int]:
        """Return the offsets of the key "topic@group" by queue; empty when there are none."""
        return self._offsets.get(key, {})

    def keys(self) -> tuple[str, ...]:
        """Return every "topic@group" that has offsets."""
        return tuple(self._offsets)

    def commit(self, key: str, queue: int, offset: int, *, now_ms: int) -> None:
        """Set the offset of "topic@group" on one queue."""
        with self._lock:
            # Replaced, not changed: a snapshot shares the offsets of every group.
            self._offsets[key] = {**self._offsets.get(key, _NONE), queue: offset}
            self._commits += 1
            self._last_ms = now_ms
            self._snapshot = None

    def set_key(self, key: str, offsets: Mapping[int, int]) -> None:
        """Set all offsets of "topic@group"; none removes the key. The version stays."""
        with self._lock:
            if offsets:
                self._offsets[key] = dict(offsets)
            else:
                self._offsets.pop(key, None)
            self._snapshot = None

    def remove(self, keys: tuple[str, ...], *, now_ms: int) -> None:
        """Remove the offsets of *keys*; the version takes a step."""
        with self._lock:
            for key in keys:
                self._offsets.pop(key, None)
            self._begin(self._counted().next(now_ms=now_ms, state_version=self._state_version))
            self._snapshot = None

    @property
    def version(self) -> DataVersion:
        """The present version."""
        with self._lock:
            return self._counted()

    @version.setter
    def version(self, version: DataVersion) -> None:
        with self._lock:
            self._begin(version)
            self._snapshot = None

    def snapshot(self) -> ConsumerOffsets:
        """Return the offsets of this moment; the same value until the next change."""
        with self._lock:
            if self._snapshot is None:
                self._snapshot = self._kind(
                    dict(self._offsets), self._counted(), self._others, self._printed
                )
            return self._snapshot

    def _counted(self) -> DataVersion:
        steps = self._commits // self._commits_per_version
        if not steps:
            return self._base
        return DataVersion(
            state_version=self._state_version,
            timestamp_ms=self._last_ms,
            counter=self._base.counter + steps,
        )
