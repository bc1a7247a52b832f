"""A service: what a broker does by itself, from the beginning of a role to its end.

docs/internals.md, "How to write a service", has an example and its tests.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import ClassVar

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.net.metrics import Family
from rmqstore.remoting.requests import Handler

__all__ = ["Service"]


class Service(ABC):
    """One service of a broker.

    `Services` starts and stops it, one call at a time. An exception of either is reported, and the
    call is made again after a pause; a start that failed is followed by a stop.
    """

    name: ClassVar[str]
    """For log and status."""
    standings: ClassVar[frozenset[Standing]] = frozenset(Standing)
    """Those in which it runs."""

    def term(self, role: Role) -> Hashable:
        """Return what a run of this service belongs to: when it changes, the service is stopped
        and started again. By default a run goes on through all *standings*."""
        return None

    @abstractmethod
    async def start(self, role: Role) -> None:
        """Begin to run; return when the service is at work."""

    @abstractmethod
    async def stop(self) -> None:
        """End everything that `start` began. It is called after a failed start, too."""

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handlers of its requests by code; they are called in any standing that the
        request table admits."""
        return {}

    def tables(self) -> Sequence[SharedTable]:
        """Return the tables of this service, which slaves copy and a master's files hold. A slave
        takes them although the service does not run there."""
        return ()

    def metrics(self) -> Iterable[Family]:
        """Return its present metrics."""
        return ()
