"""What pipelines have to say: reports as text for people and as JSON for programs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

__all__ = ["Damage", "Report", "bytes_text", "time_text"]


class Report:
    """The outcome of a pipeline."""

    __slots__ = ()

    @property
    def is_sound(self) -> bool:
        """Whether nothing was found that is not as it should be."""
        return True

    @abstractmethod
    def lines(self) -> Iterator[str]:
        """Yield the report as lines of text, findings first, the verdict last."""

    @abstractmethod
    def as_json(self) -> Iterator[dict[str, Any]]:
        """Yield the report as objects with a `type`, the one of type `summary` last."""

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a commit log that are not a record, between physical offsets."""

    path: str
    """The file they are in, or would have to."""

    start: int
    stop: int
    reason: str
    is_normal: bool = False
    """Whether it is what a store that runs or was not closed may have at its end."""

    @property
    def is_damage(self) -> bool:
        """Whether it is more than a note, as of a Finding."""
        return not self.is_normal

    def __str__(self) -> str:
        kind = "note" if self.is_normal else "damage"
        size = self.stop - self.start
        return f"{kind} {self.path}: {self.start} to {self.stop}, {size} bytes: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return the fields for `--json`."""
        return {
            "type": "note" if self.is_normal else "damage",
            "path": self.path,
            "start": self.start,
            "stop": self.stop,
            "reason": self.reason,
        }


def bytes_text(size: int) -> str:
    """Return a size with a unit that keeps it short."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{size} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def time_text(time_ms: int | None) -> str:
    """Return a store time as ISO 8601 in UTC; as digits when no calendar has it."""
    if time_ms is None:
        return "never"
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(time_ms)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"
