"""The progress of consumers that broadcast: each one reads all queues, and keeps its own offsets.

A client that moves between a broker and a proxy has no offsets there; the broker knows what it
pulled last. For clients that come later, the lowest progress of a group is committed as that of
the group NAME@broadcast, as by RocketMQ.

Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["BroadcastOffsets", "Reader", "group_of_progress", "name_of_progress"]

_SUFFIX = "@broadcast"


def name_of_progress(group: str) -> str:
    """Return the name under which the lowest progress of a group that broadcasts is committed."""
    return group + _SUFFIX


def group_of_progress(name: str) -> str:
    """Return the group whose progress is committed under *name*, *name* itself for a group."""
    return name.removesuffix(_SUFFIX)


class Reader(NamedTuple):
    """A client of a group that broadcasts, as it reads a topic."""

    topic: str
    group: str
    client_id: str
    is_proxied: bool
    """Whether a proxy pulls for the client."""


@dataclass(slots=True)
class _Progress:
    """What one client has pulled of a topic."""

    is_proxied: bool
    heard_ms: int
    offsets: dict[int, int] = field(default_factory=dict)
    """By queue, the highest offset that the client pulled from."""


class BroadcastOffsets:
    """What each client that broadcasts has pulled.

    Clients that are not online are forgotten after *offline_ms* without a pull, others after
    *online_ms*.
    """

    def __init__(self, *, offline_ms: int, online_ms: int) -> None:
        self._offline_ms = offline_ms
        self._online_ms = online_ms
        self._clients: dict[tuple[str, str], dict[str, _Progress]] = {}
        """By topic and group, then by the id of the client."""

    def pulled(self, reader: Reader, queue: int, offset: int, *, now_ms: int) -> None:
        """Record that a client has everything of a queue before *offset*."""
        clients = self._clients.setdefault((reader.topic, reader.group), {})
        progress = clients.get(reader.client_id)
        if progress is None:
            progress = clients[reader.client_id] = _Progress(reader.is_proxied, now_ms)
        progress.is_proxied, progress.heard_ms = reader.is_proxied, now_ms
        progress.offsets[queue] = max(offset, progress.offsets.get(queue, 0))

    def needs_offset(self, reader: Reader, offset: int) -> bool:
        """Return whether a client that pulls from *offset* has no progress of its own: it came to
        or from a proxy, or a proxy pulls for it for the first time."""
        if reader.is_proxied and offset < 0:
            return True
        known = self._clients.get((reader.topic, reader.group), {}).get(reader.client_id)
        return known is not None and known.is_proxied != reader.is_proxied

    def offset(self, reader: Reader, queue: int) -> int | None:
        """Return the offset that a client pulled last from in a queue, None without one."""
        known = self._clients.get((reader.topic, reader.group), {}).get(reader.client_id)
        return None if known is None else known.offsets.get(queue)

    def lowest(
        self, is_online: Callable[[str, str], bool], *, now_ms: int
    ) -> Iterator[tuple[str, str, Mapping[int, int]]]:
        """Yield topic, group and the lowest offset by queue of its clients; forget the silent ones.
        *is_online* returns, by group and id, whether a client is online."""
        for (topic, group), clients in tuple(self._clients.items()):
            found: dict[int, int] = {}
            for client_id, progress in tuple(clients.items()):
                silent_ms = now_ms - progress.heard_ms
                online = is_online(group, client_id)
                if online or silent_ms < self._offline_ms:
                    for queue, offset in progress.offsets.items():
                        found[queue] = min(offset, found.get(queue, offset))
                if silent_ms >= (self._online_ms if online else self._offline_ms):
                    del clients[client_id]
            if not clients:
                del self._clients[topic, group]
            if found:
                yield topic, group, found
