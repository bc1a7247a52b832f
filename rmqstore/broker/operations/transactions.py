"""The ends of transactions: a half message is committed, or rolled back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from rmqstore._native.core import Record
from rmqstore.broker.half_messages import (
    CHECK_TIMES,
    HALF_ORIGIN,
    PREPARED_AT,
    PRODUCER_GROUP,
    Half,
)
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.operations.lookups import LookupOperations
from rmqstore.broker.operations.records import appended, copied, queue_named
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.transactions import Transactions
from rmqstore.errors import (
    ArgumentError,
    CorruptionError,
    NotFoundError,
    OffsetOutOfRange,
    RequestRefused,
)
from rmqstore.message import parse_message_id
from rmqstore.remoting.codes import ResponseCode
from rmqstore.store.delay import REAL_QUEUE, REAL_TOPIC
from rmqstore.topic_names import GIVEN_UP_TOPIC, HALF_TOPIC

__all__ = ["Decision", "End", "TransactionBook", "TransactionOperations", "has_place", "place_of"]

_ENDING_S, _ENDING_LOOK_S = 3.0, 0.01
"""Longest wait for another end of the same transaction."""


class Decision(Enum):
    """How a transaction ends, with the number that clients send."""

    COMMIT = 8
    ROLLBACK = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """The end of a transaction."""

    group: str
    """The producer group."""
    queue_offset: int
    """Of a record of the half message."""
    physical_offset: int
    """Of the same record."""
    decision: Decision


class TransactionBook(Protocol):
    """The transactions of the master, and its notes."""

    async def transactions(self) -> Transactions:
        """Return the transactions, soon after the begin of the role. Raises RequestRefused."""

    async def noted(self) -> None:
        """Return once the half messages that are passed are noted in the log. Raises PutError."""

    def count(self, decision: Decision) -> None:
        """Count an end."""


class TransactionOperations:
    """Ends transactions, and asks again about half messages that were given up."""

    def __init__(self, core: Core, book: TransactionBook, waiting: WaitingPlaces) -> None:
        """*waiting* has the places of committed messages that are delivered later."""
        self._core = core
        self._waiting = waiting
        self._view = ViewOf(core)
        self._book = book
        self._lookups = LookupOperations(core)

    async def end(self, end: End) -> None:
        """Return once the end is in the log. The first end of a transaction counts.

        A committed message is in the log with the place of its half message, which proves the
        commit; a rollback is proved by its note. Raises RequestRefused, and PutError where the
        half message stays undecided, or the note of a rollback may be lost.
        """
        self._refuse_slave()
        record = self._half_message(end)
        transactions = await self._book.transactions()
        half = await self._begun(transactions, record)
        is_decided = False
        try:
            if end.decision is Decision.COMMIT:
                await self._put(record, half)
            is_decided = True
        finally:
            transactions.end(half, is_decided=is_decided)
        self._book.count(end.decision)
        if end.decision is Decision.ROLLBACK:
            await self._book.noted()

    async def _begun(self, transactions: Transactions, record: Record) -> Half:
        """Returns the half message of *record*, whose end then is begun. Raises RequestRefused."""
        runtime = self._core.runtime
        limit_ms = runtime.now_ms() + int(_ENDING_S * 1000)
        half = transactions.undecided(Half.of(record))
        while half is not None and transactions.is_ending(half) and runtime.now_ms() < limit_ms:
            await runtime.sleep(_ENDING_LOOK_S)
            half = transactions.undecided(Half.of(record))
        log_end = self._core.store.store.end_offset
        if half is None or not transactions.begin_end(half, log_end):
            raise RequestRefused(
                f"the transaction of the half message {record.queue_offset} was ended before, or "
                "its message was given up; the first end counts",
                code=ResponseCode.ILLEGAL_OPERATION,
            )
        return half

    def _refuse_slave(self) -> None:
        if not self._core.role.is_master:
            raise RequestRefused(
                f"Broker is {self._core.role.name}, reject it; the master ends transactions",
                code=ResponseCode.SLAVE_NOT_AVAILABLE,
            )

    def _half_message(self, end: End) -> Record:
        """Returns the record of an end's half message. Raises RequestRefused."""
        # A master ends a transaction also while the replicas do not have its half message yet.
        is_there = 0 <= end.physical_offset < self._core.store.store.end_offset
        try:
            record = self._view().record_at(end.physical_offset, True) if is_there else None
        except (OffsetOutOfRange, CorruptionError, NotFoundError):
            record = None
        if record is None:
            raise _failed("Find prepared transaction message failed")
        if record.topic != HALF_TOPIC:
            raise _failed("Find prepared transaction message failed: it is no half message")
        if record.properties.get(PRODUCER_GROUP) != end.group:
            raise _failed("The producer group wrong")
        if record.queue_offset != end.queue_offset:
            raise _failed("The transaction state table offset wrong")
        return record

    async def _put(self, record: Record, half: Half) -> None:
        """Appends the committed message, which waits where its producer asked for that."""
        properties = record.properties
        place = place_of(properties)
        for name in (HALF_ORIGIN, PREPARED_AT):
            properties.pop(name, None)
        place = self._waiting.place_of(*place, properties) or place
        put = copied(
            self._view(),
            record,
            *place,
            properties,
            reconsume_times=record.reconsume_times,
            committed=half.physical_offset,
        )
        await appended(self._core, put)

    async def resume(self, message_id: str) -> None:
        """Return once the producer of a half message that was given up will be asked again. Raises
        RequestRefused, and PutError."""
        self._refuse_slave()
        try:
            physical_offset = parse_message_id(message_id).physical_offset
        except ArgumentError:
            raise _failed(f"{message_id[:80]!r} is no offset message id") from None
        record = self._lookups.message_at(physical_offset)
        properties = record.properties
        if record.topic != GIVEN_UP_TOPIC or REAL_TOPIC not in properties:
            raise _failed(f"the message is none of {GIVEN_UP_TOPIC}; only these are asked about")
        for name in (HALF_ORIGIN, PREPARED_AT):
            properties.pop(name, None)
        properties[CHECK_TIMES] = "0"
        times = record.reconsume_times
        put = copied(self._view(), record, HALF_TOPIC, 0, properties, reconsume_times=times)
        await appended(self._core, put)


def has_place(properties: Mapping[str, str]) -> bool:
    """Return whether a half message says which topic it belongs to. RocketMQ writes over the topic
    of one with a delay level."""
    return properties.get(REAL_TOPIC, "") not in ("", HALF_TOPIC)


def place_of(properties: Mapping[str, str]) -> tuple[str, int]:
    """Return topic and queue that a half message belongs to. Raises RequestRefused."""
    if not has_place(properties):
        raise _failed("the half message does not say which topic it belongs to")
    return properties[REAL_TOPIC], queue_named(properties.get(REAL_QUEUE))


def _failed(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.SYSTEM_ERROR)
