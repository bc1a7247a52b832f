"""What a broker sends to one nameserver, and when.

A machine without sockets: `is_due` says when to call, `call` returns the requests of one call, and
`ended` records its result. What the broker is comes in as an announcement, None while it serves
no clients; then it leaves the nameserver. A nameserver that does not answer is called again after
`RETRY_MS`, until it has confirmed what the broker is, or that it has left.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from rmqstore.broker.registration import Announcement, is_changed
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame

__all__ = ["RETRY_MS", "NameserverCalls", "Requests"]

RETRY_MS = 1000
"""Between a call without success and the next one."""
_LOST_MS = 100
_SPREAD_MS = 5
"""Changes within this time become one registration."""
_NEVER: Final = 2**63

Requests = Generator[Frame, Frame, Frame | None]
"""The requests of one call. Each is sent when the one before it was answered, and the generator
gets the answer. It returns the answer to a registration, and raises RemotingError and ValueError
for answers that refuse."""


class NameserverCalls:
    """The calls of a broker to one nameserver."""

    def __init__(self) -> None:
        self.registered: Announcement | None = None
        """What the nameserver was sent last, unless it has confirmed that the broker left."""
        self.failure = ""
        """Why the last call had no success; empty when it had."""
        self.twin = ""
        """Another address that the nameserver had for the name and id of this broker."""
        self._is_confirmed = self._is_leaving = False
        self._call_ms = 0

    @property
    def is_known(self) -> bool:
        """Whether the nameserver has confirmed what the broker is."""
        return self._is_confirmed

    # ---- when

    def changed(self, now_ms: int) -> None:
        """Call soon: the broker has changed."""
        self._call_ms = min(self._call_ms, now_ms + _SPREAD_MS)

    def lost(self, now_ms: int) -> None:
        """Call soon: the connection has ended, and the nameserver may have forgotten the broker."""
        self._call_ms = min(self._call_ms, now_ms + _LOST_MS)

    def is_due(self, announcement: Announcement | None, now_ms: int) -> bool:
        """Return whether to call now."""
        known = self.registered
        if announcement is None:
            is_other = known is not None and not self._is_leaving
        else:
            # A master without its lease is shown as one until the call.
            is_other = known is not None and known.broker_id != announcement.broker_id
        return is_other or now_ms >= self._call_ms

    def due_ms(self, now_ms: int, until_ms: int | None) -> int:
        """Return when to look again whether a call is due. *until_ms* is when the present
        announcement ends by itself, None for never."""
        if until_ms is None or until_ms <= now_ms:
            return self._call_ms
        return min(self._call_ms, until_ms)

    # ---- a call

    def call(
        self, announcement: Announcement | None, *, always_registers: bool, looks_for_twin: bool
    ) -> Requests:
        """Return the requests that bring the nameserver to what the broker is.

        Without *always_registers* the nameserver is first asked whether it knows the version of
        the topics; with *looks_for_twin*, whether another broker has this name and id.
        """
        self._call_ms = _NEVER
        if announcement is None:
            return self._leave()
        return self._join(
            announcement, always_registers=always_registers, looks_for_twin=looks_for_twin
        )

    def ended(self, now_ms: int, *, period_ms: int, failure: str = "") -> None:
        """Record the end of a call; with the reason in *failure* where it had no success."""
        self.failure = failure
        pause_ms = RETRY_MS if failure else period_ms
        self._call_ms = min(self._call_ms, now_ms + pause_ms)

    def _leave(self) -> Requests:
        self._is_confirmed, self._is_leaving = False, True
        if self.registered is not None:
            answer = yield self.registered.unregistration()
            answer.raise_for_code()
            self.registered = None
        return None

    def _join(
        self, announcement: Announcement, *, always_registers: bool, looks_for_twin: bool
    ) -> Requests:
        self._is_leaving = False
        registered = None
        is_same = self._is_confirmed and announcement == self.registered
        if always_registers or not is_same or is_changed((yield announcement.version_query())):
            if not is_same:
                self.registered, self._is_confirmed = announcement, False
            if looks_for_twin:
                # With a controller the former master of the group is such a broker for a while.
                answer = yield announcement.member_query(compatible=False)
                self._note_twin(announcement, answer)
            registered = (yield announcement.registration()).raise_for_code()
        self._is_confirmed = True
        return registered

    def _note_twin(self, announcement: Announcement, answer: Frame) -> None:
        if answer.code != ResponseCode.SUCCESS:
            return  # A nameserver before 5.0 does not know the request.
        members = announcement.members(answer, compatible=False)
        found = members.get(announcement.broker_id, "")
        self.twin = "" if found == announcement.address else found

    # ---- signs of life

    def heartbeat(self, announcement: Announcement | None, *, compatible: bool) -> Frame | None:
        """Return the sign of life, *compatible* with old nameservers; None where the broker is to
        leave, or the nameserver does not know it."""
        if announcement is None or self.registered is None:
            return None
        if self.failure or not self._is_confirmed:
            return None
        if announcement.broker_id != self.registered.broker_id:
            return None
        return self.registered.heartbeat(compatible=compatible)

    def unregistration(self) -> Frame | None:
        """Return the request of a broker that ends; None where the nameserver does not know it."""
        registered, self.registered, self._is_confirmed = self.registered, None, False
        return None if registered is None else registered.unregistration()
