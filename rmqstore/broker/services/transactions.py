"""The service that notes the ends of transactions and asks producers, while the broker leads."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.half_messages import Half
from rmqstore.broker.handlers.transactions import TransactionRequests, question
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.topics import given_up_topic
from rmqstore.broker.metrics import node_labels
from rmqstore.broker.operations.transactions import Decision, has_place, place_of
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.services.service import Service
from rmqstore.broker.services.settling import is_closing
from rmqstore.broker.services.transaction_log import TransactionLog
from rmqstore.broker.transactions import Action, Limits, Transactions, is_young
from rmqstore.errors import MessageRejected, PutError, RequestRefused, StoreError
from rmqstore.net.metrics import Family, counter, gauge
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.requests import Handler, Peer
from rmqstore.topic_names import GIVEN_UP_TOPIC

__all__ = ["TransactionEnds"]

_HOUR_MS = 3_600_000
_BATCH = 64
_LOOKS = 1000
"""Half messages that are looked at in one turn of the loop."""
_DISPATCH_S = 0.01
_BEGUN_S = 3.0
"""Longest wait of an end for the begin of the role."""
_GATHERED_S = 0.005
"""Wait of a prompt note for others."""
_NOTED_S = 3.0
"""Longest wait of a rollback for its note."""
_SETTLE_LOOK_MS, _SETTLE_S = 500, 1.0
"""Looks at what is safe; the longest wait of the close for it."""
_AGAIN_S = 0.1
"""Pause after a failure."""


class _Note:
    """The next note, as rollbacks wait for it."""

    def __init__(self, event: Any) -> None:
        self.event = event
        self.failure: PutError | None = None


class TransactionEnds(Service):
    """Reads the half messages, writes notes of those that are passed, and asks about the others."""

    name = "transactions"
    standings = frozenset({Standing.LEADING})

    def __init__(self, context: Context, clients: ClientTable, waiting: WaitingPlaces) -> None:
        self._core = context
        self._log = TransactionLog(context)
        self._clients = clients
        self._runtime = context.runtime
        self._tasks = self._runtime.tasks(self.name)
        self._requests = TransactionRequests(context, self, waiting)
        self._transactions: Transactions | None = None
        self._begun = self._runtime.event()
        self._prompt = self._runtime.event()
        """Whether a note is due before its time."""
        self._note = _Note(self._runtime.event())
        self._role: Role | None = None
        self._turn = 0
        """Of the members of a group, the one that is asked next."""
        self._trouble = ""
        self._ended = dict.fromkeys(("commit", "rollback", "given up"), 0)
        self._questions = self._rounds = 0

    def term(self, role: Role) -> Hashable:
        return role.epoch

    async def start(self, role: Role) -> None:
        self._role = role
        self._tasks.start(self._run(), name=self.name)

    async def stop(self) -> None:
        await self._tasks.close()
        if is_closing(self._core, self._role):
            # RocketMQ, which may take the directory over, knows only notes.
            await self._settled()
        self._transactions = None
        self._begun.clear()
        self._trouble = ""

    def handlers(self) -> Mapping[int, Handler]:
        return self._requests.handlers()

    def metrics(self) -> Iterable[Family]:
        found = self._transactions
        unread = 0 if found is None else max(self._log.next_half - found.next, 0)
        undecided = 0 if found is None else found.count + unread
        yield gauge(
            "rmqstore_half_messages",
            "half messages whose transactions are not ended, and those that are not read yet",
            [({}, undecided)],
        )
        yield counter(
            "rmqstore_ended_transactions_total",
            "transactions that were ended",
            [({"end": end}, count) for end, count in self._ended.items()],
        )
        node = node_labels(self._core.config)
        for end in ("commit", "rollback"):
            yield counter(
                f"rocketmq_{end}_messages_total",
                f"half messages that ended with a {end}",
                [(node, self._ended[end])],
            )
        yield counter(
            "rmqstore_transaction_questions_total",
            "questions to producers how a transaction ended",
            [({}, self._questions)],
        )
        yield counter(
            "rmqstore_transaction_rounds_total",
            "rounds of such questions, also those in which none was due",
            [({}, self._rounds)],
        )

    # ---- what operations use

    async def transactions(self) -> Transactions:
        """Return the transactions, soon after the begin of the role. Raises RequestRefused."""
        await self._begun.wait(_BEGUN_S)
        if self._transactions is None:
            raise RequestRefused(
                "this broker does not know its transactions yet; it asks the producer later",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
            )
        return self._transactions

    async def noted(self) -> None:
        """Return once the half messages that are passed are noted in the log. Raises PutError."""
        note = self._note
        self._prompt.set()
        if not await note.event.wait(_NOTED_S):
            raise RequestRefused(
                "the end of the transaction is not noted in time; the producer may be asked",
                code=ResponseCode.SYSTEM_ERROR,
            )
        if note.failure is not None:
            raise note.failure

    def count(self, decision: Decision) -> None:
        """Count an end."""
        self._ended[decision.name.lower()] += 1
        found = self._transactions
        if found is not None and found.unnoted_size >= self._core.config.transaction_note_bytes_max:
            self._prompt.set()

    # ---- the beginning

    async def _run(self) -> None:
        while (found := await self._read_all()) is None:
            await self._runtime.sleep(1)
        self._transactions = found
        self._begun.set()
        self._tasks.start(self._keep_asking(found), name="questions to producers")
        await self._keep_noting(found)

    async def _read_all(self) -> Transactions | None:
        """Returns the transactions as the log shows them, None after a failure."""
        store = self._core.store.store
        end = store.end_offset
        try:
            while store.dispatched_offset < end:
                await self._runtime.sleep(_DISPATCH_S)
            return await self._runtime.in_thread(self._log.read)
        except StoreError as error:
            self._core.log.error("transactions: cannot begin: %s", error)
            return None

    # ---- notes

    async def _keep_noting(self, found: Transactions) -> None:
        runtime = self._runtime
        last_ms = runtime.now_ms()
        while True:
            pause_ms = self._core.config.transaction_note_interval_ms
            limit_ms = pause_ms if found.is_settled else min(pause_ms, _SETTLE_LOOK_MS)
            is_prompt = await self._prompt.wait(limit_ms / 1000)
            if is_prompt:
                await runtime.sleep(_GATHERED_S)
            if not self._core.is_leading:
                await runtime.sleep(_AGAIN_S)
            elif is_prompt or runtime.now_ms() >= last_ms + pause_ms:
                await self._write_notes(found)
                last_ms = runtime.now_ms()
            self._settle(found)

    async def _write_notes(self, found: Transactions) -> None:
        """Writes the notes that are due."""
        self._prompt.clear()
        note, self._note = self._note, _Note(self._runtime.event())
        try:
            while found.unnoted or found.is_stale(self._core.store.store.end_offset):
                await self._log.put_note(found)
        except StoreError as error:
            note.failure = error if isinstance(error, PutError) else None
            self._report(f"notes cannot be written: {error}")
            await self._runtime.sleep(_AGAIN_S)
        note.event.set()

    def _settle(self, found: Transactions) -> None:
        """Commits the progress that is safe, which RocketMQ reads."""
        store = self._core.store.store
        progress = found.settle(min(store.flushed_offset, store.confirm_offset))
        if progress is not None:
            self._log.save(progress)

    async def _settled(self) -> None:
        """Returns when everything that is passed is noted, or soon after it is on the disk."""
        runtime = self._runtime
        end_ms = runtime.now_ms() + int(_SETTLE_S * 1000)
        while (found := self._transactions) is not None and runtime.now_ms() < end_ms:
            await self._write_notes(found)
            await runtime.in_thread(self._core.store.store.flush)
            self._settle(found)
            if found.is_settled:
                return
            await runtime.sleep(_AGAIN_S)

    # ---- questions

    async def _keep_asking(self, found: Transactions) -> None:
        while True:
            await self._runtime.sleep(self._core.config.transaction_check_interval_ms / 1000)
            try:
                await self._ask_all(found)
                self._rounds += 1
                self._trouble = ""
            except (StoreError, RequestRefused) as error:
                self._report(f"a round of questions ends: {error}")

    async def _ask_all(self, found: Transactions) -> None:
        """Does what is due for undecided half messages."""
        config = self._core.config
        limits = Limits(
            timeout_ms=config.transaction_timeout_ms,
            times_max=config.transaction_checks_max,
            reserved_ms=config.store.file_reserved_hours * _HOUR_MS,
        )
        await self._read_new(found, limits)
        now_ms = self._runtime.wall_ms()
        for number, (half, action) in enumerate(found.due(now_ms, limits), 1):
            if number % _LOOKS == 0:
                await self._runtime.sleep(0)
            if not self._core.is_leading:
                return
            peer = self._member_of(half.group) if action is Action.ASK else None
            if action is Action.ASK and peer is None and not found.holds_up(half, now_ms, limits):
                continue
            if half.offset >= self._log.halves[1]:
                # Its new record is not confirmed yet, so it cannot be read.
                continue
            record = await self._runtime.in_thread(self._log.half_message, half.offset)
            # It may have ended meanwhile.
            is_same = found.undecided(half) is half
            if not is_same or not found.begin_end(half, self._core.store.store.end_offset):
                continue
            is_decided = False
            try:
                if record is None:
                    is_decided = True
                elif action is Action.GIVE_UP or not has_place(record.properties):
                    await self._give_up(half, record)
                    is_decided = True
                else:
                    await self._ask(found, half, record, peer)
            finally:
                found.end(half, is_decided=is_decided)
        if found.unnoted:
            self._prompt.set()

    async def _read_new(self, found: Transactions, limits: Limits) -> None:
        """Reads half messages that are as old as those that producers are asked about."""
        start, end = self._log.halves
        found.begins_at(start)
        while found.next < end:
            stop = min(found.next + _BATCH, end)
            wanted = [each for each in range(found.next, stop) if found.wants(each)]
            records = await self._runtime.in_thread(self._log.half_messages, wanted)
            now_ms = self._runtime.wall_ms()
            for offset in range(found.next, stop):
                record = records.get(offset)
                if not found.wants(offset):
                    found.skip(offset)
                elif record is None:
                    found.lost(offset)
                elif is_young(record.store_timestamp, now_ms, limits):
                    return
                else:
                    found.found(Half.of(record))

    def _member_of(self, group: str) -> Peer | None:
        """Returns a connection of a producer group, each one in turn; None where none reads."""
        members = self._clients.producers(group)
        self._turn += 1
        for number in range(len(members)):
            peer = members[(self._turn + number) % len(members)].connection
            if peer.is_open and peer.is_writable:
                return peer
        return None

    async def _ask(self, found: Transactions, half: Half, record: Any, peer: Peer | None) -> None:
        """Puts a half message back, and asks *peer* about it, if there is one."""
        times = half.times + (peer is not None)
        try:
            last = await self._log.put_back(found, half, record, times)
            record = self._log.record_at(last.physical_offset)
        except MessageRejected:
            # Its properties have no room for another one: the count of questions is in memory.
            last = found.asked(half, times)
        if peer is not None:
            peer.send(question(last, record, place_of(record.properties), self._core.config.name))
            self._questions += 1

    async def _give_up(self, half: Half, record: Any) -> None:
        metadata = self._core.metadata
        if metadata.topic(GIVEN_UP_TOPIC) is None:
            await metadata.change_topic(given_up_topic())
        await self._log.give_up(record)
        self._ended["given up"] += 1
        self._core.log.warning(
            "the half message %s of the producer group %s is given up after %d questions; it is in "
            "%s",
            half.key.unique_key,
            half.group,
            half.times,
            GIVEN_UP_TOPIC,
        )

    def _report(self, text: str) -> None:
        if self._trouble != text:
            self._trouble = text
            self._core.log.error("transactions: %s; it is tried again", text)
