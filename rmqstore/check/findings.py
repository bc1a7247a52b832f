"""The result of a verification: findings, and the report that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rmqstore.check.log import Hole, LogFiles
from rmqstore.check.units import StoredQueue
from rmqstore.store.directory import Directory

__all__ = ["Finding", "Kind", "Level", "Report"]


class Kind(StrEnum):
    """The part of a store that a finding is about."""

    LOG = "log"
    QUEUE = "queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    CONFIG = "config"
    EPOCH = "epoch"


class Level(StrEnum):
    """How bad a finding is."""

    NOTE = "note"
    """Normal for a store that runs, was not closed, or is set up this way."""

    DAMAGE = "damage"
    """Something is not what was written."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is not as it should be."""

    kind: Kind
    place: str
    """File, queue or range, as text."""

    text: str
    cure: str = ""
    """What `rmqstore repair` does about it, and what it cannot bring back."""

    level: Level = Level.DAMAGE
    offset: int = -1
    """Physical offset; the first queue offset where *place* is a queue; -1 where there is none."""

    last_offset: int = -1
    """The last one, where the finding is about several queue offsets."""

    fault: str = ""
    """What is wrong, in one word for programs; "" where *text* alone says it."""

    @property
    def is_damage(self) -> bool:
        """Whether it is more than a note."""
        return self.level is Level.DAMAGE

    def __str__(self) -> str:
        cure = f"; {self.cure}" if self.cure else ""
        return f"{self.level} {self.kind} {self.place}: {self.text}{cure}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "level": str(self.level),
            "kind": str(self.kind),
            "place": self.place,
            "offset": self.offset,
            "lastOffset": self.last_offset,
            "fault": self.fault,
            "text": self.text,
            "cure": self.cure,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a verification found."""

    path: Path
    facts: Directory
    files: LogFiles
    records: int
    end: int
    """Offset after the last whole record."""

    last_byte: int
    """Offset after the last byte that is not zero; beyond `end`, the log ends in a torn record."""

    was_cut: bool
    """Whether RocketMQ cut the log and left bytes or queue units of what it cut."""

    holes: tuple[Hole, ...]
    queues: int
    units: int
    """Queue entries that were compared with their records."""

    keys: int
    """Keys that were looked up in the index."""

    bad_queues: frozenset[StoredQueue]
    """Queues with damage whose messages the log holds, so that they can be rebuilt."""

    orphan_queues: frozenset[StoredQueue]
    """Queues with damage whose messages are all expired: they keep where the queue continues."""

    has_light_queues: bool
    queue_file_size: int | None
    """The size most files of simple queues have, None without any."""

    extension_file_size: int | None
    """The same for the extensions of queues."""

    findings: tuple[Finding, ...]
    milliseconds: int

    @property
    def damage(self) -> tuple[Finding, ...]:
        """The findings that are more than notes."""
        return tuple(finding for finding in self.findings if finding.is_damage)

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it was written."""
        return not self.damage

    def as_json(self) -> dict[str, Any]:
        """Return the summary for `--json`, without the findings."""
        return {
            "path": str(self.path),
            "sound": self.is_sound,
            "wasClosed": self.facts.was_closed,
            "records": self.records,
            "startOffset": self.files.start,
            "endOffset": self.end,
            "wasCut": self.was_cut,
            "queues": self.queues,
            "unitsChecked": self.units,
            "keysChecked": self.keys,
            "damage": len(self.damage),
            "notes": len(self.findings) - len(self.damage),
            "milliseconds": self.milliseconds,
        }
