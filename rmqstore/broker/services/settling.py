"""The close of services that append to the log, and count what every member and its disk have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rmqstore.broker.membership.roles import Role
from rmqstore.broker.operations.core import Core

__all__ = ["is_closing", "settled"]

_SETTLE_S = 1.0
"""Longest wait for replicas, after which the last records do not count."""
_LOOK_S = 0.05


class Counted(Protocol):
    """The records that a service has appended."""

    @property
    def is_settled(self) -> bool:
        """Whether all of them count."""


def is_closing(core: Core, served: Role | None) -> bool:
    """Return whether a service that is stopped in the role *served* stops because the broker
    closes, and not because another role has begun."""
    role = core.role
    return served is not None and (role.standing, role.epoch) == (served.standing, served.epoch)


async def settled(core: Core, counted: Callable[[], Counted | None]) -> None:
    """Return when everything counts, or soon after it is on the disk."""
    runtime = core.runtime
    found = counted()
    if found is not None and not found.is_settled:
        await runtime.in_thread(core.store.store.flush)
    end_ms = runtime.now_ms() + int(_SETTLE_S * 1000)
    while (found := counted()) and not found.is_settled and runtime.now_ms() < end_ms:
        await runtime.sleep(_LOOK_S)
