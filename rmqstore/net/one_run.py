"""The life of a server object: it is started once and closed once."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import Self

from rmqstore.errors import ArgumentError, StoreClosedError
from rmqstore.net.identity_log import IdentityLog

__all__ = ["OneRun"]


class OneRun(ABC):
    """Runs one time, from `start` to `close`; entering the object starts it, leaving closes it.

    A subclass has `_start` and `_close`. *server* names it in errors, *log* in all messages of its
    tasks. After a start that failed or was cancelled, nothing stays open.
    """

    def __init__(self, server: str, log: IdentityLog) -> None:
        self._server_name = server
        self.log = log
        self._is_started = False
        self._is_closing = False
        self._turn = asyncio.Lock()
        """Held while the object starts or closes: `close` waits for the end of `start`."""

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def start(self) -> None:
        """Open everything, then serve. Raises ArgumentError for an object that was started or
        closed before, and the errors that the class names."""
        if self._is_started or self._is_closing:
            raise ArgumentError(
                f"this {self._server_name} was started or closed before; make another one"
            )
        self._is_started = True
        async with self._turn:
            try:
                with self.log.naming():
                    await self._start()
            except BaseException:
                await self._end()
                raise

    async def close(self) -> None:
        """Stop listening, answer the requests in progress, then close everything. A second call
        waits for the first and does nothing."""
        async with self._turn:
            await self._end()

    async def _end(self) -> None:
        if not self._is_closing:
            self._is_closing = True
            with self.log.naming():
                await self._close()

    @abstractmethod
    async def _start(self) -> None:
        """Opens everything, then serves. What it opened before an error, `_close` closes."""

    @abstractmethod
    async def _close(self) -> None:
        """Closes what is open; called once, also after a start that failed."""

    def _not_started(self) -> StoreClosedError:
        """Returns the error of a call that needs a started object."""
        return StoreClosedError(f"the {self._server_name} is not started; use `async with`")
