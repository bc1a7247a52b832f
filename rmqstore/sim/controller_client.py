"""Requests of a replica to the controllers, in remoting frames, and their answers.

Production code chooses the requests and interprets the answers
(`rmqstore.broker.membership.controller_calls`). Each message is sent separately: an answer is
matched to its request by number, and may be lost.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqstore.broker.membership.controller_calls import (
    Call,
    ControllerCalls,
    Displaced,
    SetAnswer,
    notified,
)
from rmqstore.broker.membership.orders import Decision
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.controller import ControllerHeartbeatRequestHeader
from rmqstore.replication.group.sync_state_set import Proposal

__all__ = [
    "CLUSTER",
    "CONTROLLERS",
    "GROUP",
    "ControllerClient",
    "address_of",
    "place_of",
]

CLUSTER, GROUP = "c", "g"
CONTROLLERS = (-1, -2, -3)
"""Where replicas reach the controllers."""
_CALLS_MAX = 64
_OPAQUES = 100_000


def address_of(number: int, life: int) -> str:
    """Return the address of a replica in a life, as it registers."""
    return f"{number}:{life + 1}"


def place_of(address: str) -> int:
    """Return the replica that listens, or listened, at *address*."""
    return int(address.partition(":")[0])


class ControllerClient:
    """The calls of one life of the replica *number*."""

    def __init__(
        self, number: int, life: int, send: Callable[..., None], *, is_learner: bool
    ) -> None:
        """*send* takes the address of a controller, the bytes, and whether they arrive at most
        once."""
        self._send = send
        self._machine = ControllerCalls(
            cluster=CLUSTER,
            broker_name=GROUP,
            broker_id=number,
            address=address_of(number, life),
            life=life,
            controllers=[str(each) for each in CONTROLLERS],
            is_learner=is_learner,
        )
        self._calls: dict[int, Call] = {}
        # Each life has other request numbers, so that it ignores answers to an earlier life.
        self._opaque = life * _OPAQUES

    def beat(self, now_ms: int, header: Callable[..., ControllerHeartbeatRequestHeader]) -> None:
        """Send heartbeats, and further requests that are due; see `ControllerCalls.beat`."""
        for call in self._machine.beat(now_ms, header):
            self._call(call)

    def propose(self, proposal: Proposal, epoch: int, now_ms: int) -> SetAnswer | None:
        """Propose a set to the leader; return the outcome where nothing is sent."""
        found = self._machine.propose(proposal, epoch, now_ms)
        if isinstance(found, SetAnswer):
            return found
        self._call(found, is_once=True)
        return None

    def _call(self, call: Call, *, is_once: bool = False) -> None:
        self._opaque += 1
        self._calls[self._opaque] = call
        if len(self._calls) > _CALLS_MAX:
            del self._calls[next(iter(self._calls))]
        call.request.opaque = self._opaque
        self._send(int(call.address), encode(call.request), is_once=is_once)

    def receive(self, data: bytes) -> Decision | SetAnswer | None:
        """Return the meaning of a controller's message; None if it does not affect the role."""
        (frame,) = FrameDecoder().feed(data)
        if not frame.is_response:
            return notified(frame)
        return self._answered(frame)

    def _answered(self, answer: Frame) -> Decision | SetAnswer | None:
        call = self._calls.pop(answer.opaque, None)
        if call is None:
            return None
        found = self._machine.answered(call, answer)
        assert not isinstance(found, Displaced), f"each replica has one process: {found}"
        return found
