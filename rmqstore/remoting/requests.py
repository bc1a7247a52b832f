"""The request table of a server: one row for each request code, with what handlers get.

    rows = table(
        family(
            "lookup",
            Row(
                RequestCode.QUERY_MESSAGE,
                QueryMessageRequestHeader,
                standing=Standing.SERVING,
                rights=(on_topic(Action.SUB, Action.GET),),
            ),
        ),
        family("refused", Row(RequestCode.POP_MESSAGE, refusal="POP consumption; pull instead")),
    )

A handler gets a `Call`, whose header and body are decoded, after `rmqstore.remoting.dispatch` has
checked what the row states.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import chain
from typing import Any, Generic, Protocol, TypeVar

from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.headers.field import Header
from rmqstore.remoting.rights import Right

__all__ = [
    "Answer",
    "Call",
    "Handler",
    "Peer",
    "Row",
    "Standing",
    "family",
    "table",
]

H_co = TypeVar("H_co", covariant=True)
B_co = TypeVar("B_co", covariant=True)

Answer = Frame | None


class Standing(Enum):
    """The role that a server needs for a request."""

    ANY = auto()
    """Any, also none yet."""
    SERVING = auto()
    """A role that is known."""


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

    async def call(self, request: Frame, timeout: float) -> Frame:
        """Return the client's answer to a request, with any code; raises RemotingError."""

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


@dataclass(frozen=True, slots=True)
class Row:
    """What a server knows of a request code."""

    code: int
    header: type[Header] | None = None
    """The type of the header; None: the handler needs none."""
    body: Callable[[bytes], Any] | None = None
    """Decodes the body; raises ValueError. None: the handler gets its bytes."""
    standing: Standing = Standing.ANY
    rights: tuple[Right, ...] = ()
    """What the sender must be allowed, all of it. Refusals need no right."""
    is_on_fast_port: bool = True
    """Whether the second port of a broker serves it."""
    refusal: str = ""
    """The service that is missing for this code, whose requests are refused."""
    family: str = ""
    """The related requests, which share a limit of requests that wait for their results."""


def family(name: str, *rows: Row) -> Iterator[Row]:
    """Yield *rows* as those of one family."""
    return (replace(row, family=name) for row in rows)


def table(*families: Iterable[Row]) -> Mapping[int, Row]:
    """Return the rows of *families* by code; each code has one."""
    found: dict[int, Row] = {}
    for row in chain.from_iterable(families):
        assert row.code not in found, f"{name_of_request(row.code)} has two rows"
        found[row.code] = row
    return found
