"""A slave's requests to its master for metadata.

Between two brokers of this library one request is held by the master until something changes, and
answered with the changes. A master of RocketMQ answers at once with its topics; the slave then
takes all tables, again and again.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.keeper import Metadata
from rmqstore.broker.metadata.takeover import first_page_of_topics, take_tables
from rmqstore.broker.roles import Role
from rmqstore.errors import DiskError, RemotingError
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.supervisor import Supervisor
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.metadata import ChangesRequestHeader, ChangesResponseHeader

__all__ = ["Host", "MetadataLink"]

_WAIT_MS = 5000
_TIMEOUT_S = 10.0
_AGAIN_S = 1.0
"""After a failure."""
_EVERY_S = 3.0
"""RocketMQ's period for a master of RocketMQ."""


class Host(Protocol):
    """What the link needs of its broker."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    @property
    def metadata(self) -> Metadata:
        """The tables of this broker."""

    async def call(self, address: str | Address, frame: Frame, timeout: float) -> Frame:
        """Return the answer to a request; raises as `RemotingClient.call`."""


class MetadataLink:
    """Follows the metadata of the master while the broker is a slave."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._tasks = Supervisor("metadata of the master", log=host.log)
        self._task: asyncio.Task[None] | None = None
        self._followed: tuple[Address, int, int] | None = None
        self._failure = ""
        self.rounds = 0
        """Answers of the master that were taken, since the start."""

    def take_role(self, role: Role) -> None:
        """Follow the master of *role*, or nobody."""
        wanted = None
        if role.name == "slave" and role.master_address is not None:
            wanted = (role.master_address, role.broker_id, role.epoch)
        if wanted == self._followed:
            return
        self._followed = wanted
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if wanted is not None:
            address, broker_id, _ = wanted
            self._task = self._tasks.start(
                self._follow(address, broker_id), name=f"metadata of {format_address(address)}"
            )

    async def close(self) -> None:
        """Follow nobody."""
        self._followed = None
        await self._tasks.close()

    async def _follow(self, address: Address, broker_id: int) -> None:
        changes_id, number = "", 0
        while True:
            try:
                answer = await self._poll(address, broker_id, changes_id, number)
                header = ChangesResponseHeader.from_fields(answer.ext_fields)
                if header.changes_id is None:
                    await self._take_all(address, with_timer=True)
                elif answer.body:
                    await self._take_changes(answer.body)
                else:
                    await self._take_all(address, with_timer=False)
            except (RemotingError, DiskError, OSError) as error:
                self._report(address, error)
                changes_id = ""
                await asyncio.sleep(_AGAIN_S)
                continue

            self._failure = ""
            self.rounds += 1
            changes_id, number = header.changes_id or "", header.number
            if header.changes_id is None:
                await asyncio.sleep(_EVERY_S)

    async def _poll(self, address: Address, broker_id: int, changes_id: str, number: int) -> Frame:
        page = first_page_of_topics()
        header = ChangesRequestHeader(
            topic_number=page.topic_number,
            topics_max=page.topics_max,
            data_version=page.data_version,
            changes_id=changes_id,
            since=number,
            broker_id=broker_id,
            wait_ms=_WAIT_MS,
        )
        request = Frame.request(RequestCode.GET_ALL_TOPIC_CONFIG, header.to_fields())
        return (await self._host.call(address, request, _TIMEOUT_S)).raise_for_code()

    async def _take_changes(self, body: bytes) -> None:
        metadata = self._host.metadata
        changed = ChangeBody.decode(body).apply(metadata.tables)
        await metadata.save_taken(changed)

    async def _take_all(self, address: Address, *, with_timer: bool) -> None:
        async def call(request: Frame) -> Frame:
            return await self._host.call(address, request, _TIMEOUT_S)

        metadata = self._host.metadata
        taken = await take_tables(call, with_timer=with_timer)
        changed = taken.put_in_place(metadata.tables)
        await metadata.save_taken(changed)
        if with_timer:
            await metadata.save_timer(taken.timer_checkpoint, taken.timer_metrics)
        if changed:
            self._host.log.info(
                "metadata of %s taken: %s", format_address(address), ", ".join(sorted(changed))
            )

    def _report(self, address: Address, error: Exception) -> None:
        text = str(error)
        if text != self._failure:
            self._failure = text
            self._host.log.warning("no metadata from %s: %s", format_address(address), text)
