"""The thread that calls an application back."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from rmqstore.replication.group.status import Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.runtime.logger import log

__all__ = ["Calls"]

_PROPOSALS_MAX = 1024


class Calls:
    """Calls an application's functions on a thread of their own, so that they may take their time
    and call any verb. Of several changes in a row the last is reported."""

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
        """Report a proposal."""
        if self._on_proposal is not None:
            with self._news:
                self._proposals.append(proposal)
                self._news.notify()

    def changed(self) -> None:
        """Report a change."""
        if self._on_change is not None:
            with self._news:
                self._has_changed = True
                self._news.notify()

    def stop(self) -> None:
        """End the calls; wait for a call in progress, unless this is called from it."""
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
            # A callback that raises does not prevent the next calls.
            for proposal in proposals:
                if self._on_proposal is not None:
                    self._call(partial(self._on_proposal, proposal))
            if has_changed:
                self._call(self._notify_change)

    def _notify_change(self) -> None:
        if self._on_change is not None:
            self._on_change(self._status())

    def _call(self, function: Callable[[], object]) -> None:
        if self._is_over:
            return
        try:
            function()
        except BaseException:
            # SystemExit too: it would end this thread, and with it all later calls.
            log().exception("a callback of replication raised")
