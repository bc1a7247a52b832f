"""The service that copies topics, groups and offsets from the master."""

from __future__ import annotations

from collections.abc import Hashable

from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.following import Follower
from rmqstore.broker.metadata.link import Host, MasterCalls
from rmqstore.broker.services.service import Service
from rmqstore.net.addresses import format_address

__all__ = ["MetadataCopies"]


class MetadataCopies(Service):
    """Follows the tables of the master, while the broker follows a master that is known."""

    name = "metadata of the master"
    standings = frozenset({Standing.FOLLOWING})

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = host.runtime.tasks(self.name)
        self._follower: Follower | None = None

    @property
    def rounds(self) -> int:
        """Answers of the present master that were taken."""
        return 0 if self._follower is None else self._follower.rounds

    @property
    def trouble(self) -> str:
        """Why the present master gives no metadata; empty where it does."""
        failure = "" if self._follower is None else self._follower.failure
        return failure and f"no metadata from the master: {failure}"

    def term(self, role: Role) -> Hashable:
        return role.followed, role.other_places

    async def start(self, role: Role) -> None:
        if role.followed is None:
            return
        address, broker_id, _ = role.followed
        name = format_address(address)
        master = MasterCalls(self._host, address, role.other_places)
        self._follower = Follower(master, self._host.metadata, master=name, broker_id=broker_id)
        self._tasks.start(self._follower.run(), name=f"metadata of {name}")

    async def stop(self) -> None:
        await self._tasks.close()
        self._follower = None
