"""A client of etcd's HTTP gateway: JSON calls over persistent connections to any member.

A call whose answer does not arrive is repeated at the next member. Therefore requests must be safe
to repeat. The result states whether an earlier attempt may have taken effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rmqstore.errors import ArgumentError, StoreError, StoreTimeout

__all__ = ["Answer", "Gateway", "GatewayRefused"]

_ATTEMPT_S = 1.5
_PAUSE_S = 0.05
_ANSWER_BYTES_MAX = 256 * 1024 * 1024
_HEADERS_MAX = 100
_UNCERTAIN = {1, 2, 4, 8, 10, 13, 14}
"""gRPC codes of requests whose effect is unknown, or that may succeed at the next attempt."""


class GatewayRefused(StoreError):
    """etcd refused a request. This attempt had no effect unless etcd *is_full*; *is_repeated* as in
    `Answer`."""

    def __init__(self, message: str, *, code: int, is_full: bool, is_repeated: bool) -> None:
        super().__init__(message)
        self.code = code
        self.is_full = is_full
        """Whether the quota of etcd's data is used up. The request may have taken effect."""
        self.is_repeated = is_repeated


@dataclass(frozen=True, slots=True)
class Answer:
    """The JSON of an answer."""

    body: Mapping[str, Any]
    is_repeated: bool
    """Whether an earlier attempt of the same call may have taken effect, or may do so later."""


class _LostError(Exception):
    """No usable answer. *is_sent*: the request may have reached etcd."""

    def __init__(self, reason: str, *, is_sent: bool) -> None:
        super().__init__(reason)
        self.is_sent = is_sent


class _Connection:
    """One connection to a member."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.member = member

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        """Closes the connection without the closing handshake of TLS, which would wait."""
        self.writer.transport.abort()


class Gateway:
    """The members of one etcd cluster, named by URLs such as http://10.0.0.1:2379.

    *context* is the TLS of https URLs; None trusts the system's certificates. Raises ArgumentError.
    """

    def __init__(self, endpoints: Sequence[str], *, context: ssl.SSLContext | None = None) -> None:
        if not endpoints:
            raise ArgumentError("endpoints is empty; name the URLs of etcd's members")
        self._places = [_place_of(each) for each in endpoints]
        if context is None and any(is_secure for _, _, is_secure in self._places):
            context = ssl.create_default_context()
        self._context = context
        self._member = 0
        self._idle: list[_Connection] = []
        self._busy: set[_Connection] = set()

    def __str__(self) -> str:
        return ", ".join(f"{host}:{port}" for host, port, _ in self._places)

    async def call(self, path: str, body: Mapping[str, Any], *, timeout: float) -> Answer:
        """Return the answer to a POST of *body*.

        Raises GatewayRefused if etcd refused the request. Raises StoreTimeout if no member answered
        within *timeout* seconds; the request may have taken effect, or may do so later.
        """
        request = json.dumps(body).encode()
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout
        is_repeated, reason = False, ""
        while (rest := end - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(rest, _ATTEMPT_S)):
                    status, data = await self._attempt(path, request)
                return Answer(_answer_of(status, data, is_repeated=is_repeated), is_repeated)
            except TimeoutError:
                is_repeated = True
                # An attempt that the end of the time cut short shows less than the one before it.
                if rest >= _ATTEMPT_S or not reason:
                    reason = "a member did not answer"
            except _LostError as error:
                is_repeated, reason = is_repeated or error.is_sent, str(error)
            self._member = (self._member + 1) % len(self._places)
            await asyncio.sleep(min(_PAUSE_S, max(0.0, end - loop.time())))
        reason = reason or "no attempt was made"
        raise StoreTimeout(f"etcd at {self} did not answer within {timeout:.1f} s: {reason}")

    async def wait_for_changes(self, body: Mapping[str, Any], changed: asyncio.Event) -> None:
        """Set *changed* when a watch begins and at each of its events; return when the watch
        ends."""
        try:
            connection = await self._connect()
        except _LostError:
            return
        self._busy.add(connection)
        try:
            _send(connection, "/v3/watch", json.dumps(body).encode())
            # The events are not parsed: their arrival means that there are new entries.
            while await connection.reader.read(65536):
                changed.set()
        except OSError:
            return
        finally:
            self._busy.discard(connection)
            connection.close()

    async def close(self) -> None:
        """Close all connections."""
        for each in [*self._idle, *self._busy]:
            each.close()
        for each in [*self._idle, *self._busy]:
            with contextlib.suppress(OSError):
                await each.writer.wait_closed()
        self._idle.clear()
        self._busy.clear()

    async def _attempt(self, path: str, request: bytes) -> tuple[int, bytes]:
        connection = next((each for each in self._idle if each.member == self._member), None)
        if connection is None:
            connection = await self._connect()
        else:
            self._idle.remove(connection)
        self._busy.add(connection)
        is_kept = False
        try:
            _send(connection, path, request)
            status, data = await _read_answer(connection.reader)
            is_kept = True
            return status, data
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise _LostError(str(error) or type(error).__name__, is_sent=True) from error
        finally:
            self._busy.discard(connection)
            if is_kept:
                self._idle.append(connection)
            else:
                connection.abort()

    async def _connect(self) -> _Connection:
        member = self._member
        host, port, is_secure = self._places[member]
        context = self._context if is_secure else None
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
        except OSError as error:
            raise _LostError(f"{host}:{port}: {error.strerror or error}", is_sent=False) from error
        return _Connection(reader, writer, member)


def _place_of(url: str) -> tuple[str, int, bool]:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = None
    if parts.scheme not in ("http", "https") or not parts.hostname or port is None:
        raise ArgumentError(
            f"{url!r} is not the URL of an etcd member; give one as in http://10.0.0.1:2379"
        )
    return parts.hostname, port, parts.scheme == "https"


def _send(connection: _Connection, path: str, request: bytes) -> None:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(request)}\r\n\r\n"
    )
    connection.writer.write(head.encode() + request)


def _answer_of(status: int, data: bytes, *, is_repeated: bool) -> Mapping[str, Any]:
    """Returns the JSON of an answer. Raises GatewayRefused or _LostError."""
    try:
        body = json.loads(data)
    except ValueError as error:
        raise _LostError(f"status {status}, not JSON", is_sent=True) from error
    if not isinstance(body, dict):
        raise _LostError(f"status {status}, not a JSON object", is_sent=True)
    if status == 200 and "error" not in body:
        return body
    reported = body.get("error")
    message, code = str(body.get("message", reported)), body.get("code", 2)
    if isinstance(reported, dict):  # An error within a stream.
        message, code = str(reported.get("message")), reported.get("grpc_code", 2)
    is_full = "space exceeded" in message
    if code in _UNCERTAIN and not is_full:
        raise _LostError(message, is_sent=True)
    raise GatewayRefused(message, code=code, is_full=is_full, is_repeated=is_repeated)


async def _read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Returns status and body. Raises EOFError, OSError or ValueError for anything else."""
    version, status, *_ = (await _line(reader)).split(" ", 2)
    if version != "HTTP/1.1":
        raise ValueError(f"{version[:20]!r} is not HTTP/1.1")
    headers = {}
    for _ in range(_HEADERS_MAX):
        line = await _line(reader)
        if not line:
            break
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    else:
        raise ValueError("too many headers")
    if headers.get("transfer-encoding") == "chunked":
        return int(status), await _read_chunks(reader)
    size = int(headers["content-length"] if "content-length" in headers else -1)
    if not 0 <= size <= _ANSWER_BYTES_MAX:
        raise ValueError(f"an answer of {size} bytes")
    return int(status), await reader.readexactly(size)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    data = bytearray()
    while size := int(await _line(reader), 16):
        if not 0 < size <= _ANSWER_BYTES_MAX - len(data):
            raise ValueError(f"a chunk of {size} bytes")
        data += await reader.readexactly(size)
        await _line(reader)
    for _ in range(_HEADERS_MAX):
        if not await _line(reader):
            return bytes(data)
    raise ValueError("too many trailers")


async def _line(reader: asyncio.StreamReader) -> str:
    line = await reader.readuntil(b"\n")
    return line.decode("latin-1").rstrip("\r\n")
