"""The records of transactions in the log: half messages, notes, and ends that no note names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from rmqstore._native.core import Receipt
from rmqstore.broker.half_messages import (
    CHECK_TIMES,
    HALF_ORIGIN,
    NOTE_TAG,
    PREPARED_AT,
    PROGRESS,
    Half,
    Progress,
    ended_since,
    offsets_of,
)
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.records import appended, copied, packed_host, property_text
from rmqstore.broker.transactions import Transactions
from rmqstore.errors import CorruptionError
from rmqstore.topic_names import GIVEN_UP_TOPIC, HALF_TOPIC, NOTE_TOPIC

__all__ = ["TransactionLog"]

_GROUP = "CID_RMQ_SYS_TRANS"
"""The group whose offsets show RocketMQ how far transactions have come."""
_NOTE_BORN_HOST = packed_host(("127.0.0.1", 0))


class TransactionLog:
    """Reads and appends the records of transactions in the store of a master."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)

    # ---- reading

    @property
    def halves(self) -> tuple[int, int]:
        """The first half message, and the offset after the last that can be read."""
        return self._bounds(HALF_TOPIC)

    @property
    def next_half(self) -> int:
        """The offset that the next half message gets."""
        return self._view().next_offset(HALF_TOPIC, 0)

    def half_message(self, offset: int) -> Any:
        """Return the half message at *offset*, None for one that is damaged or deleted."""
        return self._record(HALF_TOPIC, offset)

    def half_messages(self, offsets: Iterable[int]) -> dict[int, Any]:
        """Return several half messages as `half_message` does."""
        return {offset: self.half_message(offset) for offset in offsets}

    def record_at(self, physical_offset: int) -> Any:
        """Return a record that was appended."""
        return self._view().record_at(physical_offset, False)

    def read(self) -> Transactions:
        """Return the transactions as the log shows them; it may block."""
        start, end = self._bounds(HALF_TOPIC)
        first_note, note_end = self._bounds(NOTE_TOPIC)
        progress = self._progress(start, end, first_note, note_end)
        notes = {
            offset: offsets_of(record.body)
            for offset in range(max(progress.note, first_note), note_end)
            if (record := self._record(NOTE_TOPIC, offset)) is not None
        }
        noted = frozenset().union(*notes.values())
        found = Transactions(progress, noted)
        for offset, named in notes.items():
            found.read_note(offset, named)

        found.begins_at(start)
        for offset in range(found.next, end):
            if not found.wants(offset):
                found.skip(offset)
            elif (record := self.half_message(offset)) is None:
                found.lost(offset)
            else:
                found.found(Half.of(record), noted)
        self._prove(found)
        return found

    def _progress(self, start: int, end: int, first_note: int, note_end: int) -> Progress:
        """Returns how far transactions have come by the last note, or, where RocketMQ wrote that
        one, by its offsets. The note is in the own log with all that it counts; the offsets may
        come from a master whose log had more."""
        if first_note == note_end:
            return Progress(start, first_note, 0)
        last = self._record(NOTE_TOPIC, note_end - 1)
        own = None if last is None else Progress.parse(last.properties.get(PROGRESS))
        offsets = self._core.metadata.offsets
        half = offsets.query(HALF_TOPIC, _GROUP, 0)
        note = offsets.query(NOTE_TOPIC, _GROUP, 0)
        if own is None and half is not None and note is not None:
            if half <= end and note <= note_end:
                return Progress(half, note, 0)
        return own or Progress(start, first_note, 0)

    def _prove(self, found: Transactions) -> None:
        """Ends the transactions whose ends the log shows, although no note does."""
        halves = {half.physical_offset: half for half in found}
        for half in found:
            # RocketMQ names the first record.
            for unit in self._view().units(HALF_TOPIC, 0, half.first, 1):
                if unit[0] == half.first:
                    halves[unit[1]] = half
        if not halves:
            return
        store = self._core.store.store
        since = max(found.progress.log_offset, min(halves), store.start_offset)
        for first in ended_since(store.scan_log(since, on_corrupt="skip"), halves):
            found.proved(first)

    def _bounds(self, topic: str) -> tuple[int, int]:
        return self._view().bounds(topic, 0) or (0, 0)

    def _record(self, topic: str, offset: int) -> Any:
        try:
            return self._view().record_in(topic, 0, offset)
        except CorruptionError as error:
            self._core.log.error("message %d of %s is lost: %s", offset, topic, error)
            return None

    # ---- appending

    async def put_note(self, found: Transactions) -> None:
        """Append the next note. Raises PutError."""
        offsets = found.note_offsets(self._core.config.transaction_note_bytes_max)
        at = self._view().next_offset(NOTE_TOPIC, 0)
        progress = found.noting(offsets, at, self._core.store.store.end_offset)
        properties = {"WAIT": "true", "TAGS": NOTE_TAG, PROGRESS: str(progress)}
        receipt = await appended(
            self._core,
            partial(
                self._view().put,
                NOTE_TOPIC,
                found.body_of(offsets),
                property_text(properties),
                queue=0,
                flag=0,
                sys_flag=0,
                born_timestamp=self._core.runtime.wall_ms(),
                born_host=_NOTE_BORN_HOST,
                reconsume_times=0,
            ),
        )
        found.noted(offsets, at, progress, receipt.end_offset)

    def save(self, progress: Progress) -> None:
        """Commit a progress that is safe, which RocketMQ reads."""
        offsets = self._core.metadata.offsets
        offsets.commit(HALF_TOPIC, _GROUP, 0, progress.half)
        offsets.commit(NOTE_TOPIC, _GROUP, 0, progress.note)

    async def put_back(self, found: Transactions, half: Half, record: Any, times: int) -> Half:
        """Append a new record of a half message, which was asked about *times* times; return it so.
        Raises PutError."""
        properties = record.properties
        properties.pop(PREPARED_AT, None)
        properties |= {CHECK_TIMES: str(times), HALF_ORIGIN: str(half.first)}
        receipt = await self._copy(record, HALF_TOPIC, properties)
        return found.put_back(
            half,
            receipt.queue_offset,
            receipt.physical_offset,
            times=times,
            stored_ms=self._core.runtime.wall_ms(),
        )

    async def give_up(self, record: Any) -> None:
        """Append a half message to those that are given up. Raises PutError."""
        await self._copy(record, GIVEN_UP_TOPIC, record.properties)

    async def _copy(self, record: Any, topic: str, properties: dict[str, str]) -> Receipt:
        times = record.reconsume_times
        put = copied(self._view(), record, topic, 0, properties, reconsume_times=times)
        return await appended(self._core, put)
