"""What other processes use, according to /proc: processor time and memory."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

__all__ = [
    "Peak",
    "cpu_seconds",
    "cpu_seconds_below",
    "largest_python_KiB",
    "read_bytes",
    "status_KiB",
]

_TICKS = os.sysconf("SC_CLK_TCK")
# Of the fields after the name in /proc/PID/stat.
_PPID, _UTIME, _STIME, _CSTIME = 1, 11, 12, 14


def _stat(pid: int) -> list[str]:
    text = Path("/proc", str(pid), "stat").read_text(encoding="utf-8")
    return text.rpartition(")")[2].split()


def _seconds(fields: list[str], last: int) -> float:
    return sum(map(int, fields[_UTIME : last + 1])) / _TICKS


def _stats() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                yield int(entry), _stat(int(entry))
            except OSError:  # it ended meanwhile
                continue


def _descendants() -> dict[int, list[str]]:
    stats = dict(_stats())
    found: dict[int, list[str]] = {}
    new = {os.getpid()}
    while new:
        new = {
            pid for pid, fields in stats.items() if int(fields[_PPID]) in new and pid not in found
        }
        found.update((pid, stats[pid]) for pid in new)
    return found


def cpu_seconds(pid: int) -> float:
    """Return the processor time of all threads of a process."""
    return _seconds(_stat(pid), _STIME)


def cpu_seconds_below() -> float:
    """Return that of all processes below this one, those that ended among them."""
    return sum(_seconds(fields, _CSTIME) for fields in _descendants().values())


def status_KiB(pid: int, name: str) -> int | None:
    """Return a size of /proc/PID/status, None where there is no such line."""
    text = Path("/proc", str(pid), "status").read_text(encoding="utf-8")
    found = re.search(rf"^{name}:\s*(\d+) kB", text, re.MULTILINE)
    return int(found[1]) if found else None


def read_bytes(pid: int) -> int:
    """Return how much a process has read so far, from the page cache or beyond it."""
    text = Path("/proc", str(pid), "io").read_text(encoding="utf-8")
    found = re.search(r"^rchar: (\d+)", text, re.MULTILINE)
    assert found is not None
    return int(found[1])


def largest_python_KiB() -> int:
    """Return the most resident memory that any Python process below this one had so far: what the
    kernel calls VmHWM, shared pages of libraries among them."""
    sizes = [0]
    for pid in _descendants():
        try:
            name = Path("/proc", str(pid), "comm").read_text(encoding="utf-8")
            if name.startswith("python"):
                sizes.append(status_KiB(pid, "VmHWM") or 0)
        except OSError:  # it ended meanwhile
            continue
    return max(sizes)


class Peak:
    """The most that *look* answers within its block; it is asked every *poll_s* seconds."""

    def __init__(self, look: Callable[[], int], *, poll_s: float) -> None:
        self.value = look()
        self._look = look
        self._poll_s = poll_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(self._poll_s):
            self.value = max(self.value, self._look())
