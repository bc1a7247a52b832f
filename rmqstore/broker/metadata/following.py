"""The way in which a slave copies its master's tables: requests, and effects of the answers.

A master of this library delays the answer until something changes, and answers with the changes. A
master of RocketMQ answers immediately with its topics; then the slave requests all tables
periodically.
"""

from __future__ import annotations

from typing import Protocol

from rmqstore.broker.metadata.change_body import ChangeBody
from rmqstore.broker.metadata.queue_starts import starts_of_master
from rmqstore.broker.metadata.shared import SharedTables
from rmqstore.broker.metadata.takeover import first_page_of_topics, take_tables
from rmqstore.errors import DiskError, RemotingError, UnsupportedStoreError
from rmqstore.net.identity_log import IdentityLog
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.metadata import ChangesRequestHeader, ChangesResponseHeader

__all__ = ["Follower", "Host"]

_WAIT_MS = 5000
_TIMEOUT_MS = 10_000
_AGAIN_MS, _AGAIN_MS_MAX = 50, 1000
"""After a failure, and after several."""
_REPORTED_MAX = 16
_EVERY_MS = 3000
"""RocketMQ's period for a master of RocketMQ."""


class Host(Protocol):
    """The slave, as it follows one master."""

    @property
    def log(self) -> IdentityLog:
        """The log of this broker."""

    async def call(self, frame: Frame, timeout_ms: int) -> Frame:
        """Return the answer of the master; raises RemotingError."""

    async def sleep(self, ms: int) -> None:
        """Return after a time."""


class Follower:
    """Follows the master named *master* for the slave *broker_id*, until `run` is ended."""

    def __init__(self, host: Host, tables: SharedTables, *, master: str, broker_id: int) -> None:
        self._host = host
        self._tables = tables
        self._master = master
        self._broker_id = broker_id
        self._reported: set[str] = set()
        """Failures since the last answer, which are reported once each."""
        self.failure = ""
        """Why the master did not answer; empty after an answer."""
        self._asked_at = 0
        self.rounds = 0
        """Answers of the master that were taken."""
        self._begun_after: int | None = None
        """Cuts of the log when its empty queues were begun."""

    async def run(self) -> None:
        """Copy the tables repeatedly."""
        changes_id, number, pause_ms = "", 0, _AGAIN_MS
        while True:
            try:
                answer = await self._poll(changes_id, number)
                header = ChangesResponseHeader.from_fields(answer.ext_fields)
                if header.changes_id is None:
                    await self._take_all(with_timer=True)
                elif answer.body:
                    await self._take_changes(answer.body)
                else:
                    await self._take_all(with_timer=False)
                await self._begin_queues()
            except (RemotingError, UnsupportedStoreError, DiskError, OSError) as error:
                self._report(error)
                changes_id = ""
                await self._host.sleep(pause_ms)
                pause_ms = min(2 * pause_ms, _AGAIN_MS_MAX)
                continue

            self.failure, pause_ms = "", _AGAIN_MS
            self._reported.clear()
            self.rounds += 1
            changes_id, number = header.changes_id or "", header.number
            if header.changes_id is None:
                await self._host.sleep(_EVERY_MS)

    async def _poll(self, changes_id: str, number: int) -> Frame:
        # Topics that the answer names as deleted have no message before this offset that is later
        # than their deletion.
        self._asked_at = self._tables.dispatched_offset()
        page = first_page_of_topics()
        header = ChangesRequestHeader(
            topic_number=page.topic_number,
            topics_max=page.topics_max,
            data_version=page.data_version,
            changes_id=changes_id,
            since=number,
            broker_id=self._broker_id,
            wait_ms=_WAIT_MS,
        )
        request = Frame.request(RequestCode.GET_ALL_TOPIC_CONFIG, header.to_fields())
        return (await self._host.call(request, _TIMEOUT_MS)).raise_for_code()

    async def _call(self, request: Frame) -> Frame:
        return await self._host.call(request, _TIMEOUT_MS)

    async def _take_changes(self, body: bytes) -> None:
        changes = ChangeBody.decode(body)
        changed = changes.apply(self._tables.tables)
        await self._tables.save_taken(changed, changes.changed_topics)
        await self._tables.remove_queues(changes.deleted_topics, self._asked_at)

    async def _take_all(self, *, with_timer: bool) -> None:
        tables = self._tables.tables
        taken = await take_tables(self._call, tables.all, with_timer=with_timer)
        changed = taken.put_in_place(tables)
        topics = taken.topics.topics if "topic" in changed else ()
        await self._tables.save_taken(changed, topics)
        if with_timer:
            await self._tables.save_timer(taken.timer_checkpoint, taken.timer_metrics)
        if changed:
            self._host.log.info(
                "metadata of %s taken: %s", self._master, ", ".join(sorted(changed))
            )

    async def _begin_queues(self) -> None:
        """Let queues whose messages lie before the start of the log continue as on the master. The
        next request reports that this slave has all changes, so that it may be elected."""
        cuts = self._tables.log_cuts
        if cuts == self._begun_after:
            return

        empty = self._tables.empty_queues()
        if empty:
            starts = await starts_of_master(self._call, empty)
            self._tables.begin_queues(starts)
        self._begun_after = cuts

    def _report(self, error: Exception) -> None:
        self.failure = text = str(error)
        if text not in self._reported and len(self._reported) < _REPORTED_MAX:
            self._reported.add(text)
            self._host.log.warning("no metadata from %s: %s", self._master, text)
