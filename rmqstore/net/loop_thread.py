"""A thread that runs an event loop, for callers on other threads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import selectors
import socket
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, wait
from typing import TypeVar

from rmqstore import forks
from rmqstore.errors import StoreClosedError

__all__ = ["LoopThread"]

T = TypeVar("T")

_ALIVE_S = 1.0


class _Loop(asyncio.SelectorEventLoop):
    """An event loop that a forked child can release."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        self._kept = selector

    def close_in_child(self) -> None:
        """Close the descriptors of the loop, which never runs in a child."""
        # Not close(): it would remove sockets from the selector, which the parent shares.
        self._kept.close()
        for name in ("_ssock", "_csock"):
            sock: socket.socket | None = getattr(self, name, None)
            if sock is not None:
                sock.close()


def _make_loop() -> _Loop:
    selector = selectors.DefaultSelector()
    try:
        return _Loop(selector)
    except BaseException:
        selector.close()
        raise


class LoopThread:
    """A daemon thread *name* that runs an event loop; *what* names its work in messages.

    Once it has stopped, and in a forked child, every call raises StoreClosedError.
    """

    def __init__(self, name: str, *, what: str) -> None:
        self._what = what
        self.loop = forks.make(_make_loop, _Loop.close_in_child)
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        try:
            self._thread.start()
        except BaseException:
            self.loop.close()
            raise

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def call(self, work: Callable[[], T]) -> T:
        """Return the result of *work*, called on the loop's thread, or raise its exception."""
        if self.is_current:
            return work()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(work())
            except BaseException as error:
                future.set_exception(error)

        self._hand_over(run)
        return self._result_of(future)

    def run(self, begin: Callable[[], Coroutine[object, object, T]]) -> T:
        """Return the result of the coroutine that *begin* makes, or raise its exception.

        Not to be called on the loop's thread. When the wait is interrupted, the coroutine is
        cancelled, and has ended when this call raises.
        """
        future: Future[T] = Future()
        tasks: list[asyncio.Task[T]] = []

        def finish(task: asyncio.Task[T]) -> None:
            if task.cancelled():
                future.set_exception(StoreClosedError(f"{self._what} was closed"))
            elif (error := task.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(task.result())

        def start() -> None:
            tasks.append(self.loop.create_task(begin()))
            tasks[0].add_done_callback(finish)

        def cancel() -> None:
            tasks[0].cancel()

        self._hand_over(start)
        try:
            return self._result_of(future)
        except BaseException:
            if not future.done():
                self._hand_over(cancel)
                with contextlib.suppress(Exception):
                    self._result_of(future)
            raise

    def _result_of(self, future: Future[T]) -> T:
        while wait([future], _ALIVE_S).not_done:
            if not (self._thread.is_alive() or future.done()):
                raise StoreClosedError(f"{self._what} was closed")
        return future.result()

    def stop(self) -> None:
        """End the thread. Not to be called on the thread itself. A second call does nothing."""
        with contextlib.suppress(StoreClosedError):
            self._hand_over(self.loop.stop)
        if self._process_id == os.getpid():
            self._thread.join()

    def _hand_over(self, work: Callable[[], None]) -> None:
        if self._process_id != os.getpid():
            raise StoreClosedError(
                f"{self._what} was begun before a fork; begin it in this process"
            )
        try:
            self.loop.call_soon_threadsafe(work)
        except RuntimeError:
            raise StoreClosedError(f"{self._what} was closed") from None

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self.loop)
            for task in tasks:
                task.cancel()
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
