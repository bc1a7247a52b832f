"""Dispatch by a request table: what a row states is checked here for every handler.

    handlers = dispatched(ROWS, {RequestCode.QUERY_MESSAGE: query, ...}, gate=gate)
    server = RemotingServer(address, handlers)

In this order: header and body are decoded, then come the rights of the sender, the standing of the
server and the limit of the request's family, then the handler. The time of all of it is observed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.requests import Answer, Call, Handler, Row
from rmqstore.remoting.rights import Need, needs

__all__ = ["Authorize", "FrameHandler", "Gate", "Observe", "dispatched"]

FrameHandler = Callable[[Any, Frame], Awaitable[Answer] | Answer]
"""Answers a frame of a connection, as `RemotingServer` takes it."""
Observe = Callable[[int, int, float], None]
"""Receives the code of a request, that of its answer (SUCCESS without an answer), and the time in
seconds that the request took."""


class Gate(Protocol):
    """The conditions of a server for its requests."""

    def admit(self, row: Row, call: Call[Any, Any]) -> None:
        """Raise RequestRefused if the server must not answer *call* in its present state."""


Authorize = Callable[[Call[Any, Any], tuple[Need, ...]], None]
"""Raises RequestRefused (NO_PERMISSION) if the sender of a call lacks one of the rights."""


def dispatched(
    rows: Mapping[int, Row],
    handlers: Mapping[int, Handler],
    *,
    authorize: Authorize | None = None,
    gate: Gate | None = None,
    limits: Mapping[str, int] | None = None,
    in_progress: dict[str, int] | None = None,
    body_fault: int = ResponseCode.INVALID_PARAMETER,
    observe: Observe | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[int, FrameHandler]:
    """Return the handlers of frames, by code, for `RemotingServer`; each of *handlers* has a row.

    Without *authorize* every sender has every right, without a *gate* every call is admitted.
    *limits* has the most requests in progress at once by the name of a family; those of other
    families have no limit but those of a connection and of the memory of all connections.
    *in_progress* holds the number of requests in progress of each family with a limit, by the
    family's name. *body_fault* is the code of the answer to a body that cannot be read. *observe*
    is called after each request, with times by *clock*.
    """
    counts = {} if in_progress is None else in_progress
    limits = limits or {}
    found = {}
    for code, handler in handlers.items():
        row = rows[code]
        if row.family in limits:
            counts[row.family] = 0
            handler = _limited(handler, row.family, limits[row.family], counts)
        take = _dispatched(row, handler, authorize, gate, body_fault)
        if observe is not None:
            assert clock is not None, "times need a clock"
            take = _observed(code, take, observe, clock)
        found[code] = take
    return found


def _dispatched(
    row: Row, handler: Handler, authorize: Authorize | None, gate: Gate | None, body_fault: int
) -> FrameHandler:
    header_type, decode, rights = row.header, row.body, row.rights
    admit = None if gate is None else gate.admit

    def take(peer: Any, request: Frame) -> Awaitable[Answer] | Answer:
        header = None if header_type is None else header_type.from_fields(request.ext_fields)
        body = request.body if decode is None else _decoded(decode, request, body_fault)
        call = Call(peer, request, header, body)
        if authorize is not None:
            authorize(call, needs(rights, header, body))
        if admit is not None:
            admit(row, call)
        return handler(call)

    return take


def _limited(handler: Handler, name: str, requests_max: int, counts: dict[str, int]) -> Handler:
    """Returns a handler that counts the calls of a family whose results it awaits, and refuses
    further ones at the limit."""

    async def finish(result: Awaitable[Answer]) -> Answer:
        # A task that is cancelled before it starts stays counted: only a closing server does that.
        try:
            return await result
        finally:
            counts[name] -= 1

    def limited(call: Call[Any, Any]) -> Awaitable[Answer] | Answer:
        if counts[name] >= requests_max:
            raise RequestRefused(
                f"[OVERLOAD]system busy, start flow control for a while: {requests_max} requests "
                f"of the kind {name!r} are in progress, which is the limit; repeat it later",
                code=ResponseCode.SYSTEM_BUSY,
            )
        found = handler(call)
        if found is None or isinstance(found, Frame):
            return found
        counts[name] += 1
        return finish(found)

    return limited


def _decoded(decode: Callable[[bytes], Any], request: Frame, fault: int) -> Any:
    try:
        return decode(request.body)
    except ValueError as error:
        raise RequestRefused(
            f"the body of {name_of_request(request.code)} cannot be read: {error}",
            code=fault,
        ) from error


def _observed(
    code: int,
    take: FrameHandler,
    observe: Observe,
    clock: Callable[[], float],
) -> FrameHandler:
    async def finish(answer: Awaitable[Answer], began: float) -> Answer:
        try:
            found = await answer
        except Exception as error:
            observe(code, _code_of(error), clock() - began)
            raise
        observe(code, ResponseCode.SUCCESS if found is None else found.code, clock() - began)
        return found

    def observed(peer: Any, request: Frame) -> Awaitable[Answer] | Answer:
        began = clock()
        try:
            found = take(peer, request)
        except Exception as error:
            observe(code, _code_of(error), clock() - began)
            raise
        if found is None or isinstance(found, Frame):
            observe(code, ResponseCode.SUCCESS if found is None else found.code, clock() - began)
            return found
        return finish(found, began)

    return observed


def _code_of(error: Exception) -> int:
    return error.code if isinstance(error, RequestRefused) else ResponseCode.SYSTEM_ERROR
