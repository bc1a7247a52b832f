"""The request table of a server: one row for each request code, and the dispatch by it.

    rows = table(
        [
            Row(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, standing=Standing.SERVING),
            Row(RequestCode.HEART_BEAT, body=HeartbeatData.decode),
            Row(RequestCode.POP_MESSAGE, refusal="POP consumption; pull instead"),
        ]
    )
    handlers = dispatched(rows, {RequestCode.GET_MAX_OFFSET: max_offset, ...}, gate=gate)

A handler gets a `Call`, whose header and body are decoded, after the gate of the server has
admitted it. What a row states is checked here for every handler, so that no handler can forget it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.headers.field import Header

__all__ = [
    "Call",
    "FrameHandler",
    "Gate",
    "Handler",
    "Observe",
    "Peer",
    "Row",
    "Standing",
    "dispatched",
    "table",
]

H_co = TypeVar("H_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)

Answer = Frame | None
Observe = Callable[[int, int, float], None]
"""Receives the code of a request, that of its answer (SUCCESS without an answer), and the time in
seconds that the request took."""


class Standing(Enum):
    """The role that a server needs for a request."""

    ANY = auto()
    """Any, also none yet."""
    SERVING = auto()
    """A role that is known."""
    SHOWN_AS_MASTER = auto()
    """The master, or a slave that routes show as the master."""


class Peer(Protocol):
    """The connection that a request came by, for late answers and for requests to the client."""

    def __hash__(self) -> int:
        """A connection is a key of tables."""

    @property
    def address(self) -> str:
        """The peer's address for messages."""

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port of the other end."""

    @property
    def proxied_peer(self) -> tuple[str, int] | None:
        """Host and port of the client as a proxy in between names them; None without one."""

    @property
    def is_open(self) -> bool:
        """Whether the connection is open."""

    @property
    def is_writable(self) -> bool:
        """Whether the client reads: a frame that is sent now does not wait for earlier ones."""

    def send(self, frame: Frame) -> None:
        """Send a late answer, or a one-way request; nothing is sent once the connection closed."""

    def on_close(self, callback: Callable[[Any], None]) -> None:
        """Call *callback* with this peer once the connection is gone."""

    def close(self, reason: str) -> None:
        """End the connection, after what was sent."""


@dataclass(slots=True)
class Call(Generic[H_co, B_co]):
    """A request with its header and body; without a decoder in its row the body is bytes."""

    peer: Peer
    request: Frame
    header: H_co
    body: B_co

    def respond(
        self,
        code: int,
        remark: str | None = None,
        fields: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> Frame:
        """Return an answer; see `Frame.respond`."""
        return self.request.respond(code, remark, fields, body)


Handler = Callable[[Call[Any, Any]], Awaitable[Answer] | Answer]
"""Answers a call. None: there is no answer, or the handler sends it later."""
FrameHandler = Callable[[Any, Frame], Awaitable[Answer] | Answer]
"""Answers a frame of a connection, as `RemotingServer` takes it."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a server knows of a request code."""

    code: int
    header: type[Header] | None = None
    """The type of the header; None: the handler needs none."""
    body: Callable[[bytes], Any] | None = None
    """Decodes the body; raises ValueError. None: the handler gets its bytes."""
    standing: Standing = Standing.ANY
    is_on_fast_port: bool = True
    """Whether the second port of a broker serves it."""
    refusal: str = ""
    """The service that is missing for this code, whose requests are refused."""


def table(rows: Iterable[Row]) -> Mapping[int, Row]:
    """Return *rows* by code; each code has one."""
    found: dict[int, Row] = {}
    for row in rows:
        assert row.code not in found, f"{name_of_request(row.code)} has two rows"
        found[row.code] = row
    return found


class Gate(Protocol):
    """The conditions of a server for its requests."""

    def admit(self, row: Row, call: Call[Any, Any]) -> None:
        """Raise RequestRefused if the server must not answer *call* in its present state."""


def dispatched(
    rows: Mapping[int, Row],
    handlers: Mapping[int, Handler],
    *,
    gate: Gate | None = None,
    body_fault: int = ResponseCode.INVALID_PARAMETER,
    observe: Observe | None = None,
    clock: Callable[[], float] | None = None,
) -> dict[int, FrameHandler]:
    """Return the handlers of frames, by code, for `RemotingServer`; each of *handlers* has a row.

    Without a *gate* every call is admitted. *body_fault* is the code of the answer to a body that
    cannot be read. *observe* is called after each request, with times by *clock*.
    """
    found = {}
    for code, handler in handlers.items():
        take = _dispatched(rows[code], handler, gate, body_fault)
        if observe is not None:
            assert clock is not None, "times need a clock"
            take = _observed(code, take, observe, clock)
        found[code] = take
    return found


def _dispatched(row: Row, handler: Handler, gate: Gate | None, body_fault: int) -> FrameHandler:
    header_type, decode = row.header, row.body

    def take(peer: Any, request: Frame) -> Awaitable[Answer] | Answer:
        header = None if header_type is None else header_type.from_fields(request.ext_fields)
        body = request.body if decode is None else _decoded(decode, request, body_fault)
        call = Call(peer, request, header, body)
        if gate is not None:
            gate.admit(row, call)
        return handler(call)

    return take


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
