"""RocketMQ's estimate of which records are in the memory of the machine."""

from __future__ import annotations

import os

__all__ = ["bytes_in_memory"]

_RATIO = 0.4
"""RocketMQ's accessMessageInMemoryMaxRatio."""


def bytes_in_memory() -> int:
    """Return the size of the part at the end of the log that is taken to be in memory."""
    return int(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * _RATIO)
