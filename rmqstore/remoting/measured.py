"""Handlers of requests that report how long each request took, and its result."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame

__all__ = ["measured"]

Handler = Callable[[Any, Frame], "Awaitable[Frame | None] | Frame | None"]
Observe = Callable[[int, int, float], None]


def measured(
    handlers: Mapping[int, Handler], observe: Observe, *, clock: Callable[[], float]
) -> dict[int, Handler]:
    """Return *handlers* that call *observe* after each request, with the request's code, the code
    of the answer (SUCCESS where there is no answer) and the time in seconds on *clock*."""
    return {code: _measured(code, handler, observe, clock) for code, handler in handlers.items()}


def _measured(code: int, handler: Handler, observe: Observe, clock: Callable[[], float]) -> Handler:
    async def finish(answer: Awaitable[Frame | None], began: float) -> Frame | None:
        try:
            found = await answer
        except Exception as error:
            observe(code, _code_of(error), clock() - began)
            raise
        observe(code, ResponseCode.SUCCESS if found is None else found.code, clock() - began)
        return found

    def handle(connection: Any, request: Frame) -> Awaitable[Frame | None] | Frame | None:
        began = clock()
        try:
            found = handler(connection, request)
        except Exception as error:
            observe(code, _code_of(error), clock() - began)
            raise
        if found is None or isinstance(found, Frame):
            observe(code, ResponseCode.SUCCESS if found is None else found.code, clock() - began)
            return found
        return finish(found, began)

    return handle


def _code_of(error: Exception) -> int:
    return error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
