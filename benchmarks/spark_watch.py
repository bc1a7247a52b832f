"""What the processes below this one use: Spark's JVM and the Python workers below that."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

__all__ = ["Peak", "cpu_seconds"]

_POLL_S = 0.1
_TICKS = os.sysconf("SC_CLK_TCK")
_PPID, _UTIME, _CSTIME = 1, 11, 14  # of the fields behind the name in /proc/PID/stat


def _stats() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                text = Path("/proc", entry, "stat").read_text(encoding="utf-8")
            except OSError:  # it ended meanwhile
                continue
            yield int(entry), text.rpartition(")")[2].split()


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


def cpu_seconds() -> float:
    """Return the CPU time of all processes below this one, those that ended among them."""
    ticks = sum(
        sum(int(field) for field in fields[_UTIME : _CSTIME + 1])
        for fields in _descendants().values()
    )
    return ticks / _TICKS


class Peak:
    """Within its block, the highest resident memory of any one Python process below this one.

    It counts what the kernel calls VmHWM, shared pages of libraries among them.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak", daemon=True)

    def __enter__(self) -> Peak:
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
        while not self._over.wait(_POLL_S):
            for pid in _descendants():
                try:
                    status = Path("/proc", str(pid), "status").read_text(encoding="utf-8")
                except OSError:
                    continue
                name = re.search(r"^Name:\s*(\S+)", status)
                high = re.search(r"^VmHWM:\s*(\d+) kB", status, re.MULTILINE)
                if name and high and name[1].startswith("python"):
                    self.bytes = max(self.bytes, int(high[1]) << 10)
