"""One connection of the remoting protocol: both sides send requests, both answer.

Memory is bounded. A peer that sends faster than its requests are handled, or that does not read its
answers, is not read from until it catches up. A peer whose unsent answers pass a limit, or that
makes no progress for the idle time, is cut off.

Requests of one read are handled in turns of half a millisecond, between which other connections get
theirs: a client that sends many requests at once hardly delays another.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rmqstore.errors import (
    ArgumentError,
    RemotingClosedError,
    RemotingError,
    RemotingFrameError,
    RemotingTimeout,
    RequestRefused,
)
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.seldom import Seldom
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import (
    FRAME_SIZE_MAX,
    Frame,
    FrameDecoder,
    encode,
    name_of_request,
)

__all__ = ["ConnectionLimits", "Handler", "MemoryBudget", "RemotingConnection"]

Handler = Callable[["RemotingConnection", Frame], "Awaitable[Frame | None] | Frame | None"]
"""Answers a request: a function or a coroutine function. None: there is no answer, or the handler
sends it later with `RemotingConnection.send`."""

_UNSENT_HIGH_BYTES = 256 * 1024
_TURN_S, _TURN_REQUESTS = 0.0005, 8
"""A turn ends after that time, but not before that many requests: where other processes take the
processor, it would end after each of them."""
_TURN_FRAMES = 32
"""Frames that are decoded in one turn."""
_OPAQUE_MAX = 0x7FFFFFFF
_LINGER_S = 5.0
_GO_AWAY_ABOVE = 475
"""V5_3_1: peers of later versions send a request to another server after GO_AWAY."""
_REMARK_MAX = 500

_log = IdentityLog("rmqstore.remoting")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Limits of one connection."""

    frame_bytes_max: int = FRAME_SIZE_MAX
    """Bytes of the largest frame that is read."""
    requests_max: int = 1024
    """Requests that are handled at once; further ones stay unread."""
    requests_bytes_max: int = 2 * FRAME_SIZE_MAX
    """Bytes of the bodies of the requests that are handled at once."""
    unsent_bytes_max: int = 64 * 1024 * 1024
    """Bytes that the peer has not read yet. Above this limit the connection is cut off."""
    calls_max: int = 65536
    """Requests to the peer that wait for their answers."""
    idle_timeout_s: float = 120.0
    """Seconds without a byte in either direction after which the connection is closed."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value > 0:
                raise ArgumentError(f"{name} is {value!r}; give a number above 0")


class MemoryBudget:
    """Bytes that all connections of a server or client hold together.

    Once the limit is passed, a connection that holds more than an equal share is cut off.
    """

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self.holders = 0

    def is_excess(self, held_bytes: int) -> bool:
        """Return whether a connection that holds this many bytes must be cut off."""
        return self.used_bytes > self.limit_bytes and held_bytes > self.limit_bytes // max(
            1, self.holders
        )


class RemotingConnection(asyncio.Protocol):
    """A connection to *peer*. All calls come from its event loop.

    *start_task* runs the coroutine of a handler under a name. *on_lost* is called once, after the
    callbacks of `on_close`. *notices* logs what the peer does wrong.
    """

    def __init__(
        self,
        peer: Address,
        handlers: Mapping[int, Handler],
        *,
        limits: ConnectionLimits,
        budget: MemoryBudget,
        start_task: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[Any]],
        on_lost: Callable[[RemotingConnection], None],
        proxied_peer: Address | None = None,
        number: int = 0,
        notices: Seldom,
    ) -> None:
        self.peer = peer
        self.address = format_address(peer)
        self.proxied_peer = proxied_peer
        """The client that a proxy named in its preface; not verified."""
        self.number = number
        """The number of the connection, in the order of acceptance by its server; 0 for a
        client's."""
        self.is_open = False
        self.close_reason = ""
        self._handlers = handlers
        self._limits = limits
        self._budget = budget
        self._start_task = start_task
        self._on_lost = on_lost
        self._notices = notices
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._decoder = FrameDecoder(limits.frame_bytes_max)

        self._backlog: deque[Frame] = deque()
        """Requests that wait until others are handled; at most the requests of one read."""
        self._is_turn_due = False
        self._backlog_bytes = 0
        self._handled = 0
        self._handled_bytes = 0
        self._is_working = False
        self._is_reading = True
        self._is_stopped = False

        self._out: list[bytes] = []
        self._out_bytes = 0
        self._is_flush_due = False
        self._writable = asyncio.Event()

        self._opaques = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Frame]] = {}
        self._on_close: list[Callable[[RemotingConnection], None]] = []
        self._lost = asyncio.Event()

        self._held = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._progress = (0, 0)
        self._progress_at = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        state = "open" if self.is_open else f"closed: {self.close_reason}"
        return f"<RemotingConnection {self.address} {state}>"

    @property
    def requests_in_progress(self) -> int:
        """Requests of the peer that are being handled."""
        return self._handled

    @property
    def calls_waiting(self) -> int:
        """Requests to the peer that wait for their answers."""
        return len(self._calls)

    @property
    def held_bytes(self) -> int:
        """Bytes of incomplete frames, requests in progress and unsent frames."""
        return (
            self._decoder.held_bytes
            + self._backlog_bytes
            + self._handled_bytes
            + self._unsent_bytes
        )

    @property
    def _unsent_bytes(self) -> int:
        transport = self._transport
        return self._out_bytes + (0 if transport is None else transport.get_write_buffer_size())

    @property
    def is_writable(self) -> bool:
        """Whether the peer reads: frames that are sent now do not wait for earlier ones."""
        return self.is_open and self._writable.is_set()

    @property
    def is_lost(self) -> bool:
        """Whether the connection is gone and its callbacks were called."""
        return self._lost.is_set()

    def on_close(self, callback: Callable[[RemotingConnection], None]) -> None:
        """Call *callback* once when the connection is gone; soon, if it is gone already."""
        if self._lost.is_set():
            self._loop.call_soon(callback, self)
        else:
            self._on_close.append(callback)

    async def call(self, request: Frame, timeout: float = 3.0) -> Frame:
        """Return the peer's answer to *request*, with any code.

        Many calls may wait at once; answers come in any order. Raises RemotingClosedError or
        RemotingTimeout (*timeout* is in seconds); the peer may have carried the request out.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._wait_writable(request)
                return await self._answer_to(request)
        except TimeoutError:
            raise RemotingTimeout(
                f"{self.address} did not answer request {name_of_request(request.code)} "
                f"within {timeout:.3g} s"
            ) from None

    async def send_one_way(self, request: Frame, timeout: float = 3.0) -> None:
        """Send *request*, which the peer will not answer; return when the socket may take it.

        Raises RemotingClosedError, or RemotingTimeout where the peer does not read.
        """
        try:
            async with asyncio.timeout(timeout):
                await self._wait_writable(request)
        except TimeoutError:
            raise RemotingTimeout(
                f"{self.address} did not read request {name_of_request(request.code)} "
                f"within {timeout:.3g} s"
            ) from None
        self._put_out(encode(request.with_opaque(self._next_opaque(), is_one_way=True)))

    def send(self, frame: Frame) -> None:
        """Send *frame* unchanged: the late answer to a request. Does nothing on a closed
        connection. Raises RemotingFrameError for a frame that no peer could read."""
        if self.is_open:
            self._put_out(encode(frame))

    def close(self, reason: str = "closed by this side") -> None:
        """Write the frames given to `send`, then close. A second call does nothing."""
        if not self.is_open:
            return
        assert self._transport is not None
        self._flush()
        self._end(reason)
        self._transport.close()
        # A peer that does not read would keep the transport indefinitely.
        self._set_timer(_LINGER_S, self._transport.abort)

    def abort(self, reason: str) -> None:
        """Close at once; unsent frames are lost."""
        if self._transport is not None:
            self._end(reason)
            self._transport.abort()

    def refuse_requests(self) -> None:
        """Handle no further request; requests in progress are still answered.

        Further requests are answered with GO_AWAY. Peers that do not know GO_AWAY get no answer.
        """
        self._is_stopped = True
        self._work(is_limited=False)

    async def wait_closed(self) -> None:
        """Return when the connection is gone and its callbacks were called."""
        await self._lost.wait()

    # The calls of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_HIGH_BYTES)
        self.is_open = True
        self._writable.set()
        self._budget.holders += 1
        self._progress_at = self._loop.time()
        self._set_timer(self._limits.idle_timeout_s / 4, self._check_progress)

    def data_received(self, data: bytes) -> None:
        self._bytes_in += len(data)
        if self.is_open:
            self._take(data)

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()
        self._work()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._end(f"connection lost: {exc}" if exc else "the peer closed the connection")
        if self._timer is not None:
            self._timer.cancel()

        self._transport = None
        self._decoder = FrameDecoder(self._limits.frame_bytes_max)
        self._out.clear()
        self._out_bytes = 0
        self._budget.holders -= 1
        self._account()

        callbacks, self._on_close = self._on_close, []
        self._lost.set()
        for callback in (*callbacks, self._on_lost):
            try:
                callback(self)
            except Exception:
                _log.exception("%s: a close callback failed", self.address)

    # Frames of the peer, in turns.

    def _take(self, data: bytes) -> None:
        """Decode some of the frames that have come, and handle requests for one turn."""
        try:
            frames = self._decoder.feed(data, frames_max=_TURN_FRAMES)
        except RemotingFrameError:
            frames = []
        for frame in frames:
            if frame.is_response:
                self._take_answer(frame)
            else:
                self._backlog.append(frame)
                self._backlog_bytes += len(frame.body)

        failure = self._decoder.failure
        self._work(is_limited=failure is None)
        if failure is not None:
            self._notices.warning("%s: closing: %s", self.address, failure)
            self.close(str(failure))

    def _next_turn(self) -> None:
        self._is_turn_due = False
        if not self.is_open:
            return
        if self._decoder.has_more and (not self._backlog or self._is_full()):
            # Answers of the peer do not wait for its requests.
            self._take(b"")
        else:
            self._work()

    def _work(self, *, is_limited: bool = True) -> None:
        """Handle requests that wait, as far as the limits allow, and for one turn at most unless
        *is_limited* is False."""
        if self._is_working:
            return
        self._is_working = True
        end = self._loop.time() + _TURN_S if is_limited else math.inf
        handled = 0
        try:
            while self._backlog and self.is_open and not self._is_full():
                request = self._backlog.popleft()
                self._backlog_bytes -= len(request.body)
                self._handle(request)
                handled += 1
                if handled >= _TURN_REQUESTS and self._loop.time() >= end:
                    break
        finally:
            self._is_working = False

        is_full, has_more = self._is_full(), self._decoder.has_more
        has_turn = has_more or (bool(self._backlog) and not is_full)
        if not has_turn:
            # One write for the answers of all turns.
            self._flush()
        self._set_reading(not (self._backlog or has_more or is_full))
        self._account()
        if has_turn and not self._is_turn_due:
            self._is_turn_due = True
            self._loop.call_soon(self._next_turn)

    # Requests of the peer.

    def _is_full(self) -> bool:
        if self._is_stopped or not self._writable.is_set():
            # Refusals wait only for the socket.
            return not self._writable.is_set()
        return (
            self._handled >= self._limits.requests_max
            or self._handled_bytes >= self._limits.requests_bytes_max
        )

    def _set_reading(self, is_reading: bool) -> None:
        transport = self._transport
        if is_reading is self._is_reading or transport is None or transport.is_closing():
            return
        self._is_reading = is_reading
        if is_reading:
            transport.resume_reading()
        else:
            transport.pause_reading()

    def _handle(self, request: Frame) -> None:
        if self._is_stopped:
            if request.version > _GO_AWAY_ABOVE:
                # The remark is Java's.
                self._answer(request, request.respond(ResponseCode.GO_AWAY, "please go away"))
            return

        handler = self._handlers.get(request.code)
        if handler is None:
            # The remark is Java's, its leading space included.
            remark = f" request type {request.code} not supported"
            answer = request.respond(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark)
            self._answer(request, answer)
            return

        try:
            found = handler(self, request)
        except Exception as error:
            self._answer(request, self._failure_of(request, error))
            return
        if found is None or isinstance(found, Frame):
            self._answer(request, found)
            return

        self._handled += 1
        self._handled_bytes += len(request.body)
        self._start_task(self._finish(request, found), f"request {request.code} of {self.address}")

    async def _finish(self, request: Frame, found: Awaitable[Frame | None]) -> None:
        answer: Frame | None
        try:
            answer = await found
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # The task that the handler awaited was cancelled, not this task.
            cancelled = RuntimeError("a task that the handler awaited was cancelled")
            answer = self._failure_of(request, cancelled)
        except Exception as error:
            answer = self._failure_of(request, error)
        finally:
            self._handled -= 1
            self._handled_bytes -= len(request.body)

        self._answer(request, answer)
        self._work()

    def _failure_of(self, request: Frame, error: Exception) -> Frame:
        if isinstance(error, RequestRefused):
            return request.respond(error.code, error.remark[:_REMARK_MAX])
        _log.error(
            "%s: request %s failed", self.address, name_of_request(request.code), exc_info=error
        )
        remark = f"{type(error).__name__}: {error}"[:_REMARK_MAX]
        return request.respond(ResponseCode.SYSTEM_ERROR, remark)

    def _answer(self, request: Frame, answer: Frame | None) -> None:
        if answer is None or request.is_one_way or not self.is_open:
            return
        try:
            data = encode(answer)
        except Exception as error:
            data = encode(self._failure_of(request, error))
        self._put_out(data)

    # Requests to the peer.

    def _next_opaque(self) -> int:
        opaque = next(self._opaques) & _OPAQUE_MAX
        while opaque in self._calls:
            opaque = next(self._opaques) & _OPAQUE_MAX
        return opaque

    async def _wait_writable(self, request: Frame) -> None:
        while self.is_open and not self._writable.is_set():
            await self._writable.wait()
        if not self.is_open:
            raise RemotingClosedError(
                f"the connection to {self.address} is closed ({self.close_reason}); "
                f"request {name_of_request(request.code)} was not sent"
            )

    async def _answer_to(self, request: Frame) -> Frame:
        if len(self._calls) >= self._limits.calls_max:
            raise RemotingError(
                f"{len(self._calls)} requests to {self.address} wait for answers, the limit is "
                f"{self._limits.calls_max}; send the next one after an answer"
            )

        opaque = self._next_opaque()
        self._put_out(encode(request.with_opaque(opaque)))
        answer: asyncio.Future[Frame] = self._loop.create_future()
        self._calls[opaque] = answer
        try:
            return await answer
        finally:
            del self._calls[opaque]
            # The wait and the connection may end at the same moment.
            if answer.done() and not answer.cancelled():
                answer.exception()

    def _take_answer(self, answer: Frame) -> None:
        waiting = self._calls.get(answer.opaque)
        if waiting is None or waiting.done():
            _log.debug("%s: late answer %d dropped", self.address, answer.opaque)
        else:
            waiting.set_result(answer)

    # Output, the end of the connection, and the timer.

    def _put_out(self, data: bytes) -> None:
        self._out.append(data)
        self._out_bytes += len(data)
        if self._out_bytes > _UNSENT_HIGH_BYTES:
            self._flush()
        elif not (self._is_working or self._is_flush_due):
            # Frames sent during one turn of the loop are written with one call.
            self._is_flush_due = True
            self._loop.call_soon(self._flush_due)

    def _flush_due(self) -> None:
        self._is_flush_due = False
        self._flush()
        self._account()

    def _flush(self) -> None:
        if not self._out or self._transport is None:
            return
        data = self._out[0] if len(self._out) == 1 else b"".join(self._out)
        self._out.clear()
        self._out_bytes = 0
        self._bytes_out += len(data)

        self._transport.write(data)
        unsent = self._transport.get_write_buffer_size()
        if unsent > self._limits.unsent_bytes_max:
            self.abort(
                f"the peer does not read: {unsent} bytes are unsent, "
                f"the limit is {self._limits.unsent_bytes_max}"
            )

    def _end(self, reason: str) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self.close_reason = reason
        self._backlog.clear()
        self._backlog_bytes = 0
        self._writable.set()  # Waiting senders notice the end.
        for waiting in self._calls.values():
            if not waiting.done():
                waiting.set_exception(
                    RemotingClosedError(
                        f"the connection to {self.address} ended before the answer: {reason}"
                    )
                )

    def _account(self) -> None:
        held = self.held_bytes
        self._budget.used_bytes += held - self._held
        self._held = held
        if self.is_open and self._budget.is_excess(held):
            self.abort(
                f"all connections hold {self._budget.used_bytes} bytes, the limit is "
                f"{self._budget.limit_bytes}; this one holds {held}"
            )

    def _set_timer(self, delay_s: float, call: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, call)

    def _check_progress(self) -> None:
        now = self._loop.time()
        progress = (self._bytes_in, self._bytes_out - self._unsent_bytes)
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        elif now - self._progress_at >= self._limits.idle_timeout_s:
            self.abort(f"idle for {self._limits.idle_timeout_s} s")
            return
        self._set_timer(self._limits.idle_timeout_s / 4, self._check_progress)
