"""The present role of a broker, and the waits for another one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from rmqstore.broker.membership.roles import Role
from rmqstore.net.runtime import Event

__all__ = ["PresentRole"]


class PresentRole:
    """The roles of a broker from its start to its close, one at a time.

    *on_change* is called with each other role, before the iterations over roles see it.
    """

    def __init__(self, on_change: Callable[[Role], None]) -> None:
        self.role = Role()
        """The present role."""
        self._on_change = on_change
        self._waiting: set[Event] = set()
        self._is_over = False

    def take(self, role: Role) -> None:
        """Make *role* the present role."""
        if role == self.role:
            return
        self.role = role
        self._on_change(role)
        self._wake()

    def close(self) -> None:
        """End the iterations over roles."""
        self._is_over = True
        self._wake()

    async def changes(self) -> AsyncIterator[Role]:
        """Iterate over the roles from the present one on, until the broker closes. Of several
        changes in succession, only the last may be returned."""
        seen: Role | None = None
        changed = Event()
        self._waiting.add(changed)
        try:
            while not self._is_over:
                changed.clear()
                if self.role != seen:
                    seen = self.role
                    yield seen
                else:
                    await changed.wait()
        finally:
            self._waiting.discard(changed)

    def _wake(self) -> None:
        for waiting in self._waiting:
            waiting.set()
