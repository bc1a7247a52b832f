"""The permission of a broker and of a topic: a sum of bits, as RocketMQ's PermName has them."""

from __future__ import annotations

__all__ = [
    "PERM_ALL",
    "PERM_INHERIT",
    "PERM_READ",
    "PERM_READ_WRITE",
    "PERM_WRITE",
]

PERM_INHERIT = 1
"""A message to an unknown topic may make the topic from this one."""
PERM_WRITE = 2
"""Producers may send."""
PERM_READ = 4
"""Consumers may pull."""

PERM_READ_WRITE = PERM_READ | PERM_WRITE
PERM_ALL = PERM_READ_WRITE | PERM_INHERIT
