"""Memory that is touched and freed before a run, so that no peer pays for being the first."""

from __future__ import annotations

import mmap
import time

__all__ = ["back_memory"]

_POPULATE_WRITE = 23  # MADV_POPULATE_WRITE


def back_memory(size: int) -> float:
    """Touch and free *size* bytes; return how long each page took, in nanoseconds.

    A virtual machine may lack memory that was free for a while, and the first process that
    touches it then waits for the host: a page takes some 300 ns if the host has it, and
    several microseconds if it does not.
    """
    with mmap.mmap(-1, size) as memory:
        began = time.perf_counter_ns()
        try:
            memory.madvise(_POPULATE_WRITE)
        except OSError:  # a kernel older than 5.14
            for at in range(0, size, mmap.PAGESIZE):
                memory[at] = 1
        return (time.perf_counter_ns() - began) / (size / mmap.PAGESIZE)
