"""The store for asyncio: the same verbs, awaited.

An append takes well under a microsecond, so it happens inline; what is awaited is the
acknowledgement. A descriptor notifies the loop of syncs and of the copies that replicas hold, once
for all tasks. For each store one thread waits for new records on behalf of all tasks.

    async with rmqstore.aio.open("orders.store") as store:
        await store.put("orders", b"paid", durability=Durability.DISK)
        async for record in store.queue("orders", 0).follow(start="end"):
            ...
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any, Literal, Self, TypeVar

from rmqstore import arguments
from rmqstore._native.core import (
    AckInbox,
    AckWait,
    Admission,
    PutHandle,
    Receipt,
    Record,
)
from rmqstore.arguments import absolute_path
from rmqstore.errors import (
    ArgumentError,
    DiskError,
    NotWritable,
    StoreClosedError,
    StoreError,
    ViewsOpenError,
    before_the_start,
    missing_file,
)
from rmqstore.message import Durability, GetStatus, Message, asked_durability
from rmqstore.net.opening import open_on_thread
from rmqstore.store import GetResult, Queue, Store
from rmqstore.store import open as open_store
from rmqstore.store.async_view import AsyncView
from rmqstore.store.places import past_the_end
from rmqstore.store.queue import follow_start
from rmqstore.store.settings import ConfigLike

__all__ = ["AsyncQueue", "AsyncStore"]

# Looking a member of an Enum up takes half as long as an append.
_MEMORY = Durability.MEMORY
_SLICE_MS = 100
_FOLLOW_BATCH = 256
_Receipts = TypeVar("_Receipts", Receipt, list[Receipt])


def open(
    path: str | os.PathLike[str] | None = None,
    config: ConfigLike | None = None,
    **arguments: Any,
) -> AsyncStore:
    """Return the store at *path* for `async with`, which opens it without blocking the loop.

    Arguments are those of `rmqstore.open`.
    """
    return AsyncStore(path, config, **arguments)


@dataclass(frozen=True, slots=True)
class _Wait:
    """A task that waits until the log is dispatched below an offset."""

    offset: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[None]

    def resolve(self, error: BaseException | None = None) -> None:
        try:
            self.loop.call_soon_threadsafe(self._set, error)
        except RuntimeError:
            pass  # The loop is closed; no task waits any more.

    def _set(self, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class _Waiter:
    """A thread that waits for the dispatcher on behalf of tasks."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._view = AsyncView(store)
        self._waits: list[_Wait] = []
        self._changed = threading.Condition()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="rmqstore-dispatched", daemon=True)
        self._thread.start()

    def until(self, offset: int) -> asyncio.Future[None]:
        """Return a future of the running loop that is done when the log is dispatched below
        *offset*."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        with self._changed:
            if self._stopped:
                raise StoreClosedError(f"store {self._store.path} is closed")
            self._waits.append(_Wait(offset, loop, future))
            self._changed.notify()
        return future

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()
        closed = StoreClosedError(f"store {self._store.path} is closed")
        for wait in self._waits:
            wait.resolve(closed)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._waits = [wait for wait in self._waits if not wait.future.done()]
                while not self._waits and not self._stopped:
                    self._changed.wait()
                if self._stopped:
                    return
                lowest = min(wait.offset for wait in self._waits)
            try:
                self._view.wait_dispatched_beyond(lowest - 1, _SLICE_MS)
                position = self._store.dispatched_offset
            except StoreError as error:
                self._settle(lambda wait: True, error)
            else:
                self._settle(lambda wait, position=position: wait.offset <= position, None)

    def _settle(self, chosen: Any, error: BaseException | None) -> None:
        with self._changed:
            done = [wait for wait in self._waits if chosen(wait)]
            self._waits = [wait for wait in self._waits if not chosen(wait)]
        for wait in done:
            wait.resolve(error)


def _stop_inbox(loop: asyncio.AbstractEventLoop, inbox: AckInbox) -> None:
    """Take the last acknowledgements, after the store resolved all; called on the loop."""
    inbox.settle()
    loop.remove_reader(inbox.fileno())


class AsyncStore:
    """A store whose acknowledgements are awaited; every other verb is that of `store`, the Store
    inside.

    An async context manager. One object may serve several loops and threads.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        config: ConfigLike | None = None,
        **arguments: Any,
    ) -> None:
        if path is None and config is None:
            raise ArgumentError(
                "path is None; give the directory of the store, or a config with storePathRootDir"
            )

        self._path = None if path is None else absolute_path("path", path)
        self._arguments = (config, arguments)
        self._store: Store | None = None
        self._view: AsyncView
        """Of the open store; opening sets it."""

        self._lock = threading.Lock()
        """Held while the waiter and inboxes are made or taken away."""
        self._waiter: _Waiter | None = None
        self._inboxes: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, AckInbox] = (
            weakref.WeakKeyDictionary()
        )
        self._latest: tuple[Callable[[], asyncio.AbstractEventLoop | None], AckInbox] | None = None
        self._is_closing = False

    @property
    def store(self) -> Store:
        """The Store inside, for verbs that do not wait.

        Raises StoreClosedError outside of `async with`.
        """
        if self._store is None:
            raise StoreClosedError(f"store {self._path} is not open; use `async with`")
        return self._store

    async def __aenter__(self) -> Self:
        config, arguments = self._arguments
        self._is_closing = False
        self._store = await open_on_thread(
            partial(open_store, self._path, config, **arguments),
            lambda store: asyncio.to_thread(store.close),
        )
        self._view = AsyncView(self._store)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Flush and close; tasks that wait get StoreClosedError, for copies ReplicaTimeout.

        Raises as Store.close.
        """
        self._is_closing = True
        if self._store is None:
            return
        try:
            await asyncio.to_thread(self._close)
        except ViewsOpenError:
            self._is_closing = False
            raise
        finally:
            if self._store.closed:
                self._stop_inboxes()

    def _stop_inboxes(self) -> None:
        with self._lock:
            inboxes = list(self._inboxes.items())
            self._inboxes.clear()
            self._latest = None
        for loop, inbox in inboxes:
            try:
                loop.call_soon_threadsafe(_stop_inbox, loop, inbox)
            except RuntimeError:
                inbox.take()  # That loop is closed; no task waits any more.

    def _close(self) -> None:
        with self._lock:
            waiter, self._waiter = self._waiter, None
        if waiter is not None:
            waiter.stop()
        self.store.close()

    def _until_dispatched(self, offset: int) -> asyncio.Future[None]:
        with self._lock:
            if self._is_closing:
                raise StoreClosedError(f"store {self.store.path} is closed")
            if self._waiter is None:
                self._waiter = _Waiter(self.store)
            waiter = self._waiter
        return waiter.until(offset)

    async def put(
        self,
        topic: str | Message,
        body: bytes | bytearray | memoryview | None = None,
        *,
        queue: int = 0,
        tags: str | None = None,
        keys: str | Sequence[str] | None = None,
        properties: Mapping[str, str | None] | None = None,
        unique_key: str | None = None,
        flag: int = 0,
        born_timestamp: int | None = None,
        durability: Durability | None = None,
        copies: int | None = None,
        timeout: float | None = None,
    ) -> Receipt:
        """Store one message; return its Receipt when it is as durable as asked.

        Arguments as Store.put.
        """

        store = self.store
        wanted = asked_durability(store.default_durability, durability, copies)
        if timeout is not None:
            timeout = arguments.seconds("timeout", timeout)  # before anything is stored

        # Leave to append has to come before the append.
        admission = None if wanted is _MEMORY else self._view.admit(copies, wanted)
        receipt = store.put(
            topic,
            body,
            queue=queue,
            tags=tags,
            keys=keys,
            properties=properties,
            unique_key=unique_key,
            flag=flag,
            born_timestamp=born_timestamp,
            durability=_MEMORY,
        )

        if admission is None:
            return receipt
        return await self._acknowledged_put(admission, receipt, timeout)

    def append(
        self, put: Callable[[], _Receipts], durability: Durability | None = None
    ) -> _Receipts | Coroutine[Any, Any, _Receipts]:
        """Call *put*, which appends with Durability.MEMORY, and return its receipts, or a coroutine
        that returns them when they are as durable as asked.

        The receipts are not used by anyone else. Raises as *put*, and as Store.put when it refuses
        one.
        """
        arguments.function("put", put)
        wanted = asked_durability(self.store.default_durability, durability, None)
        if wanted is _MEMORY:
            return put()
        admission = self._view.admit(None, wanted)
        return self._acknowledged_put(admission, put(), None)

    async def put_many(
        self,
        messages: Iterable[Any],
        *,
        topic: str | None = None,
        queue: int = 0,
        durability: Durability | None = None,
        copies: int | None = None,
        timeout: float | None = None,
    ) -> list[Receipt]:
        """Store messages in order; return their Receipts when all are as durable as asked.

        See Store.put_many.
        """

        store = self.store
        wanted = asked_durability(store.default_durability, durability, copies)
        if timeout is not None:
            timeout = arguments.seconds("timeout", timeout)
        admission = None if wanted is _MEMORY else self._view.admit(copies, wanted)
        receipts = store.put_many(messages, topic=topic, queue=queue, durability=_MEMORY)

        if admission is None or not receipts:
            return receipts
        return await self._acknowledged_put(admission, receipts, timeout)

    async def _acknowledged_put(
        self, admission: Admission, receipts: _Receipts, timeout: float | None
    ) -> _Receipts:
        """Waits for the durability of what was appended; its receipts then say so."""
        made: Any = receipts
        waiting = self._expect(admission, made, timeout)
        try:
            await waiting.token
        except BaseException:
            waiting.withdraw()
            raise

        admission.check(made)
        return receipts

    def put_async(
        self,
        topic: str | Message,
        body: bytes | bytearray | memoryview | None = None,
        **arguments: Any,
    ) -> PutHandle:
        """Store one message and return a handle for `wait`; not a coroutine. See
        Store.put_async."""
        return self.store.put_async(topic, body, **arguments)

    async def wait(
        self, handles: Iterable[PutHandle], *, timeout: float | None = None
    ) -> list[Receipt]:
        """Return the Receipts of *handles* once all are as durable as asked; see Store.wait.

        A cancelled wait leaves the handles pending.
        """
        if timeout is not None:
            timeout = arguments.seconds("timeout", timeout)
        given = list(arguments.items("handles", handles, "an iterable of handles"))
        deciding = self._view.deciding(given)
        waits = [self._expect(admission, receipt, timeout) for admission, receipt in deciding]
        try:
            # Each handle has its own outcome, whatever became of those that decide.
            ends = await asyncio.gather(*(each.token for each in waits), return_exceptions=True)
        except BaseException:
            for each in waits:
                each.withdraw()
            raise

        admissions = (admission for admission, _ in deciding)
        resolved = [
            (admission, end)
            for admission, end in zip(admissions, ends, strict=True)
            if isinstance(end, Receipt)
        ]
        return self._view.outcomes(given, resolved)

    def _expect(
        self,
        admission: Admission,
        receipt: Receipt | list[Receipt],
        timeout: float | None,
    ) -> AckWait:
        if self._is_closing:
            raise StoreClosedError(f"store {self.store.path} is closed")
        loop = asyncio.get_running_loop()
        latest = self._latest
        # Looking the loop up among the others takes as long as half an append.
        if latest is not None and latest[0]() is loop:
            inbox = latest[1]
        else:
            inbox = self._inbox_of(loop)
        return inbox.expect(loop, admission, receipt, timeout)

    def _inbox_of(self, loop: asyncio.AbstractEventLoop) -> AckInbox:
        with self._lock:
            inbox = self._inboxes.get(loop)
            if inbox is None:
                inbox = AckInbox()
                loop.add_reader(inbox.fileno(), inbox.settle)
                self._inboxes[loop] = inbox
            self._latest = weakref.ref(loop), inbox
        return inbox

    async def flush(self) -> None:
        """Bring everything to the disk; see Store.flush."""
        await asyncio.to_thread(self.store.flush)

    async def wait_dispatched(self, offset: int | None = None) -> None:
        """Return when queues and index hold everything below a physical *offset*, None for all put
        before."""
        end = self.store.end_offset
        if offset is not None:
            end = arguments.integer("offset", offset, low=0)
        goal = min(end, self.store.confirm_offset)
        if self.store.dispatched_offset < goal:
            await self._until_dispatched(goal)

    async def _settle(self) -> None:
        """Waits until what was put can be read.

        After a failure, or on a full disk, what is dispatched already can.
        """
        with contextlib.suppress(NotWritable, DiskError):
            await self.wait_dispatched()

    async def get(self, topic: str, *, queue: int = 0, offset: int) -> Record:
        """Return the record at a queue offset; see Store.get."""
        await self._settle()
        return self.store.get(topic, queue=queue, offset=offset)

    async def get_many(
        self, topic: str, *, queue: int = 0, offset: int, **arguments: Any
    ) -> GetResult:
        """Return records from *offset* on; see Store.get_many."""
        await self._settle()
        return self.store.get_many(topic, queue=queue, offset=offset, **arguments)

    async def find(self, topic: str, key: str, **arguments: Any) -> list[Record]:
        """Return the records with *key*; see Store.find."""
        await self._settle()
        return self.store.find(topic, key, **arguments)

    def queue(self, topic: str, queue: int = 0) -> AsyncQueue:
        """Return the queue object of *topic*; the queue itself may not exist yet."""
        return AsyncQueue(self, topic, queue)


class AsyncQueue:
    """One queue of a topic, for asyncio."""

    __slots__ = ("_owner", "number", "topic")

    def __init__(self, owner: AsyncStore, topic: str, number: int) -> None:
        self._owner = owner
        self.topic = arguments.text("topic", topic)
        self.number = arguments.integer("queue", number, low=0, high=arguments.INT32_MAX)

    @property
    def _queue(self) -> Queue:
        return self._owner.store.queue(self.topic, self.number)

    async def bounds(self) -> tuple[int, int]:
        """Return the offset of the first message kept and the one after the last."""
        await self._owner._settle()
        return self._queue.start, self._queue.end

    def records(
        self,
        start: int | None = None,
        stop: int | None = None,
        *,
        tags: str | Sequence[str] | None = None,
    ) -> AsyncIterator[Record]:
        """Iterate over the records between two offsets, handing the loop back between batches.

        Raises as Queue.records.
        """
        if start is not None:
            start = arguments.integer("start", start, low=0)
        if stop is not None:
            stop = arguments.integer("stop", stop, low=0)
        return self._records(start, stop, None if tags is None else arguments.texts("tags", tags))

    async def _records(
        self, start: int | None, stop: int | None, tags: Sequence[str] | None
    ) -> AsyncIterator[Record]:
        place = f"queue {self.topic}/{self.number}"
        low, high = await self.bounds()
        offset = low if start is None else start
        last = high if stop is None else min(stop, high)
        if offset > high:
            raise past_the_end(place, offset, low, high)

        while offset < last:
            found = self._queue.get_many(
                offset, max_count=min(_FOLLOW_BATCH, last - offset), tags=tags
            )
            if found.status is GetStatus.OFFSET_TOO_SMALL:
                low, high = found.min_offset, found.max_offset
                raise before_the_start(place, offset, low, high)
            if found.status is GetStatus.OFFSET_FOUND_NULL:
                raise missing_file(place, offset)
            for record in found.records:
                if record.queue_offset < last:
                    yield record
            if found.next_offset <= offset:
                return
            offset = found.next_offset
            await asyncio.sleep(0)

    def follow(
        self,
        start: int | Literal["start", "end"] = "end",
        *,
        tags: str | Sequence[str] | None = None,
    ) -> AsyncIterator[Record]:
        """Iterate over the records from *start* on, waiting for new ones; it ends when the store is
        closed. An offset past the end is waited for."""
        follow_start(start, lambda: (0, 0))  # Refused here, not at the first record.
        return self._follow(start, None if tags is None else arguments.texts("tags", tags))

    async def _follow(
        self, start: int | Literal["start", "end"], tags: Sequence[str] | None
    ) -> AsyncIterator[Record]:
        place = f"queue {self.topic}/{self.number}"
        low, high = await self.bounds()
        offset = follow_start(start, lambda: (low, high))
        while not self._owner.store.closed:
            seen = self._owner.store.dispatched_offset
            found = self._queue.get_many(offset, max_count=_FOLLOW_BATCH, tags=tags)
            if found.status is GetStatus.OFFSET_FOUND_NULL:
                raise missing_file(place, offset)
            for record in found.records:
                yield record
            if found.next_offset > offset:
                offset = found.next_offset
                continue
            try:
                await self._owner._until_dispatched(seen + 1)
            except StoreClosedError:
                return
