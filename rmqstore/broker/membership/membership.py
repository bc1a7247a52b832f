"""The interface of a broker to its membership in a group."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader

__all__ = ["Membership"]


class Membership(Protocol):
    """Opens the replica of a broker and gives the broker its roles, one after another
    (`Host.set_role`): standing, epoch, master and members. What only the replica knows at each
    moment is asked for here."""

    async def start(self) -> None:
        """Begin. Where a file decides, the role has begun on return. Raises ConfigError,
        CorruptionError, and the errors of a replica."""

    async def close(self) -> None:
        """Take no further role; the present one stays."""

    @property
    def leader(self) -> str | None:
        """The leading controller as "host:port"; None without one."""

    @property
    def trouble(self) -> str:
        """Why the role is not what it should be; empty where it is."""

    @property
    def is_hidden(self) -> bool:
        """Whether nameservers must not know this broker: another may be the master."""

    @property
    def leads(self) -> bool:
        """Whether the replica of this master still is the master. Its role ends some time before
        that of the broker: the log is synced meanwhile."""

    @property
    def lease_end_ms(self) -> int | None:
        """The end of the lease of this master unless it is renewed; None without a lease."""

    @property
    def possible_members(self) -> frozenset[int]:
        """Brokers that may be elected instead of this master, itself included."""

    @property
    def members_without_reports(self) -> frozenset[int]:
        """Possible members that are Java brokers, which report no changes of topics."""

    @property
    def puts_need_members(self) -> bool:
        """Whether puts wait for other members of a sync-state set."""

    def admit(self, broker_ids: Collection[int]) -> None:
        """Allow only these brokers to join the sync-state set of this master."""

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Take the master that a nameserver names."""

    def configured(self) -> None:
        """Take the present settings: they have changed."""

    def notified(self, request: Frame) -> None:
        """Take a decision of a controller. Raises RequestRefused where none decides, and
        RemotingFrameError for a request that cannot be read."""
