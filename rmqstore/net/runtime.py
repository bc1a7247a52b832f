"""What servers and replicas of this library need of the world: time, waits, tasks, threads, calls.

Code that runs is made of coroutines over a `Runtime`. `LoopRuntime` is the world of a process: an
asyncio loop, threads for what blocks, and a client for the calls of other servers. The simulator
has a loop in virtual time, on which the same coroutines run.

    runtime = LoopRuntime("broker a", log=log, client=client)
    due = runtime.event()
    tasks = runtime.tasks("heartbeats")
    tasks.start(beat(), name="heartbeats to 10.0.0.1:9876")
    if not await due.wait(0.5):
        ...

docs/architecture.md, "Code that runs", has the kinds of such code, each with its example.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar, runtime_checkable

from rmqstore.net.addresses import Address, format_address, parse_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.supervisor import Supervisor, TaskFailure
from rmqstore.net.work_thread import WorkThread
from rmqstore.remoting.frames import Frame

__all__ = [
    "AsyncioRuntime",
    "Client",
    "Connection",
    "Event",
    "LoopRuntime",
    "Readable",
    "Reader",
    "Runtime",
    "Task",
    "Timer",
]

T = TypeVar("T")

Task = asyncio.Task
"""A coroutine that runs; see `Supervisor.start`."""


class Timer(Protocol):
    """A planned action."""

    def cancel(self) -> None:
        """Drop the action, unless it has begun. A second call does nothing."""


class Readable(Protocol):
    """What another thread signals through."""

    def fileno(self) -> int:
        """Return a descriptor that can be read once there is a signal."""


class Event:
    """Wakes the coroutines that wait for it, until it is cleared."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    @property
    def is_set(self) -> bool:
        """Whether a wait returns immediately."""
        return self._event.is_set()

    def set(self) -> None:
        """Wake all that wait."""
        self._event.set()

    def clear(self) -> None:
        """Let later waits wait for the next `set`."""
        self._event.clear()

    async def wait(self, limit_s: float | None = None) -> bool:
        """Return True once the event is set, False after *limit_s* seconds; None is no limit."""
        try:
            async with asyncio.timeout(limit_s):
                await self._event.wait()
        except TimeoutError:
            return self._event.is_set()
        return True


class Connection(Protocol):
    """An open connection to another server."""

    def on_close(self, callback: Callable[[Any], None]) -> None:
        """Call *callback* with the connection when it has ended."""


class Client(Protocol):
    """Calls other servers; see `rmqstore.remoting.client.RemotingClient`."""

    async def call(self, address: str | Address, request: Frame, timeout: float) -> Frame:
        """Return the answer, with any code; raises RemotingError."""

    async def send_one_way(self, address: str | Address, request: Frame, timeout: float) -> None:
        """Send a request that is not answered; raises RemotingError."""

    def connection_to(self, address: str | Address) -> Connection | None:
        """Return the open connection to *address*, None without one."""


@runtime_checkable
class Runtime(Protocol):
    """The world of one server. Everything is used on the loop that runs its coroutines."""

    @property
    def log(self) -> IdentityLog:
        """The log of the server."""

    @property
    def client(self) -> Client:
        """Calls other servers."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    def wall_ms(self) -> int:
        """Return the time of the wall clock, in ms since 1970."""

    async def sleep(self, seconds: float) -> None:
        """Return after *seconds*."""

    def soon(self, action: Callable[..., None], *args: Any) -> None:
        """Run *action* once the caller has returned to the loop, after earlier such actions."""

    def later(self, seconds: float, action: Callable[..., None], *args: Any) -> Timer:
        """Run *action* after *seconds*."""

    def when_readable(self, source: Readable, action: Callable[[], None]) -> Timer:
        """Run *action* whenever *source* can be read, until the result is cancelled; cancel it
        before *source* is closed."""

    def event(self) -> Event:
        """Return an event that is not set."""

    def lock(self) -> AbstractAsyncContextManager[Any]:
        """Return a lock that a coroutine holds for an `async with` block; others wait in order."""

    def tasks(self, name: str) -> Supervisor:
        """Return a new owner of tasks; *name* names it in the log."""

    async def gather(self, *works: Awaitable[T]) -> list[T]:
        """Return the results of *works*, which run at the same time. The first exception is raised;
        the others continue."""

    async def ended(self, work: Task[Any]) -> None:
        """Return when *work* has ended, in any way. Cancelling the call does not cancel *work*."""

    async def on_disk(self, function: Callable[[], T]) -> T:
        """Return the result of *function*, which may write files and block. Functions run one at a
        time, in the order of the calls. Cancelling the call does not stop the function."""

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """Return the result of *function*, which may read files and block. Several run at the same
        time."""

    async def addresses_of(self, place: str, *, limit_s: float) -> Sequence[str]:
        """Return all addresses of the host in "host:port", each with the port. Raises OSError, and
        its subclass TimeoutError after *limit_s*."""


class Reader:
    """A registration of a descriptor at the running loop."""

    def __init__(self, descriptor: int, action: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._loop.add_reader(descriptor, action)

    def cancel(self) -> None:
        self._loop.remove_reader(self._descriptor)


class AsyncioRuntime:
    """What a runtime takes from the running asyncio loop, in real or in virtual time.

    Without *client* no other server is called. *on_failure* is called with each task that raised.
    """

    def __init__(
        self,
        *,
        log: IdentityLog,
        client: Client | None,
        on_failure: Callable[[TaskFailure], None] | None = None,
    ) -> None:
        self.log = log
        self._client = client
        self._on_failure = on_failure

    @property
    def client(self) -> Client:
        assert self._client is not None, "a runtime without a client makes no calls"
        return self._client

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def soon(self, action: Callable[..., None], *args: Any) -> None:
        asyncio.get_running_loop().call_soon(action, *args)

    def later(self, seconds: float, action: Callable[..., None], *args: Any) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, action, *args)

    def when_readable(self, source: Readable, action: Callable[[], None]) -> Timer:
        return Reader(source.fileno(), action)

    def event(self) -> Event:
        return Event()

    def lock(self) -> AbstractAsyncContextManager[Any]:
        return asyncio.Lock()

    def tasks(self, name: str) -> Supervisor:
        return Supervisor(name, log=self.log, on_failure=self._on_failure)

    async def gather(self, *works: Awaitable[T]) -> list[T]:
        return list(await asyncio.gather(*works))

    async def ended(self, work: Task[Any]) -> None:
        await asyncio.wait([work])


class LoopRuntime(AsyncioRuntime):
    """The world of the server *name* on the running asyncio loop.

    *client* may be shared by any number of servers; the owner closes it. `close` ends the thread
    that `on_disk` began.
    """

    def __init__(
        self,
        name: str,
        *,
        log: IdentityLog,
        client: Client | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(log=log, client=client)
        self._name = name
        self._clock = clock
        self._worker: WorkThread | None = None

    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    async def on_disk(self, function: Callable[[], T]) -> T:
        if self._worker is None:
            self._worker = WorkThread(asyncio.get_running_loop(), f"rmqstore-{self._name}-files")
        return await self._worker.run(function)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.to_thread(function, *args)

    async def addresses_of(self, place: str, *, limit_s: float) -> Sequence[str]:
        host, port = parse_address(place)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(limit_s):
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [format_address((str(address[0]), port)) for *_, address in found]

    def close(self) -> None:
        """End the thread for files after the functions that wait for it. A second call does
        nothing."""
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.stop()
