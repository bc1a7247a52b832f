"""What application threads wait for, and the thread that calls the application back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial

from rmqstore.errors import StoreTimeout
from rmqstore.replication.links import log
from rmqstore.replication.status import Status
from rmqstore.replication.sync_state_set import Proposal

__all__ = ["Calls", "Waiting", "Waits"]

_PROPOSALS_MAX = 1024


class Waiting:
    """A thread that waits until a condition holds."""

    __slots__ = ("_condition", "_future")

    def __init__(self, condition: Callable[[], bool]) -> None:
        self._condition = condition
        self._future: Future[None] = Future()

    def look(self) -> bool:
        """Judge the condition; return whether the wait is over."""
        try:
            if not self._condition():
                return False
            self._future.set_result(None)
        except Exception as error:
            self._future.set_exception(error)
        return True

    def end(self, error: Exception) -> None:
        """Let the wait end with *error*."""
        self._future.set_exception(error)

    def result(self, timeout: float, what: str) -> None:
        """Wait. Raises StoreTimeout that names *what*, and what the condition raised."""
        if wait([self._future], timeout).not_done:
            raise StoreTimeout(f"waited {timeout} s for {what}")
        self._future.result()


class Waits:
    """All that wait; used on one thread, except for `Waiting.result`."""

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, condition: Callable[[], bool]) -> Waiting:
        """Return a wait for *condition*, which is judged here and at every `look`."""
        waiting = Waiting(condition)
        if not waiting.look():
            self._waiting.append(waiting)
        return waiting

    def remove(self, waiting: Waiting) -> None:
        """Forget a wait that was given up, or is over."""
        if waiting in self._waiting:
            self._waiting.remove(waiting)

    def look(self) -> None:
        """Judge every condition anew."""
        if self._waiting:
            self._waiting = [each for each in self._waiting if not each.look()]

    def end(self, error: Exception) -> None:
        """Let every wait end with *error*."""
        for each in self._waiting:
            each.end(error)
        self._waiting.clear()


class Calls:
    """Calls an application's functions on a thread of their own, so that they may take their time
    and call any verb. Of several changes in a row the last is told."""

    def __init__(
        self,
        on_proposal: Callable[[Proposal], None] | None,
        on_change: Callable[[Status], None] | None,
        status: Callable[[], Status],
    ) -> None:
        self._on_proposal = on_proposal
        self._on_change = on_change
        self._status = status
        self._proposals: deque[Proposal] = deque(maxlen=_PROPOSALS_MAX)
        self._has_changed = self._is_over = False
        self._news = threading.Condition()
        self._thread: threading.Thread | None = None
        if on_proposal is not None or on_change is not None:
            self._thread = threading.Thread(target=self._run, name="rmqstore-ha-calls", daemon=True)
            self._thread.start()

    def proposed(self, proposal: Proposal) -> None:
        """Tell of a proposal."""
        if self._on_proposal is not None:
            with self._news:
                self._proposals.append(proposal)
                self._news.notify()

    def changed(self) -> None:
        """Tell of a change."""
        if self._on_change is not None:
            with self._news:
                self._has_changed = True
                self._news.notify()

    def stop(self) -> None:
        """Call nobody any more; wait for a call that is under way, unless it is the caller."""
        with self._news:
            self._is_over = True
            self._news.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._news:
                self._news.wait_for(
                    lambda: bool(self._proposals) or self._has_changed or self._is_over
                )
                if self._is_over:
                    return
                proposals = list(self._proposals)
                self._proposals.clear()
                has_changed, self._has_changed = self._has_changed, False
            # One that raises keeps nobody from hearing of the others.
            for proposal in proposals:
                if self._on_proposal is not None:
                    self._call(partial(self._on_proposal, proposal))
            if has_changed:
                self._call(self._tell_change)

    def _tell_change(self) -> None:
        if self._on_change is not None:
            self._on_change(self._status())

    def _call(self, function: Callable[[], object]) -> None:
        if self._is_over:
            return
        try:
            function()
        except BaseException:
            # SystemExit as well: it would end this thread, and nobody would hear of anything more.
            log().exception("a callback of replication raised")
