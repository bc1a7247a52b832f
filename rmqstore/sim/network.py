"""The network between replicas: connections that behave like TCP's, and single messages.

The bytes of a connection arrive in order and once, or not at all: the connection may be cut after
any byte, and a side may not notice the cut. Connections are independent, so bytes of an old
connection may arrive after bytes of its replacement; there is no other repetition. While the
network between two replicas is blocked, bytes in transit wait, as they do with TCP's
retransmissions.

A reader may be slow; then its writer's buffer fills up. Any bit in transit may flip; checks detect
this (csrc/format/ha_frame.h).

Single messages, to and from controllers and operators, may be lost, doubled, and delayed one by
one, so that they overtake each other. Messages that arrive are unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Protocol

from rmqstore.sim.clock import Timeline

__all__ = ["End", "Network", "Party"]

_CAPACITY = 32 * 1024
_SLOW_CAPACITY = 512
_SLOW_INTERVAL_US = 20_000
_LATE_MS = (5, 500, 6000)


class Party(Protocol):
    """The owner of an end of a connection."""

    number: int
    """The number of its machine; the network is blocked between machines."""

    def on_accepted(self, end: End) -> bool:
        """Accept an incoming connection; False refuses it."""

    def on_opened(self, end: End) -> None:
        """Called when a requested connection is open."""

    def on_refused(self, target: int) -> None:
        """Called when a requested connection was refused."""

    def on_bytes(self, end: End, data: bytes) -> None:
        """Receive bytes of a connection."""

    def on_writable(self, end: End) -> None:
        """Called when all written bytes have left."""

    def on_closed(self, end: End) -> None:
        """Called when a connection has ended."""

    def on_message(self, source: int, data: bytes) -> None:
        """Receive the bytes of a single message."""


@dataclass(slots=True)
class _Flips:
    """Bits to flip in the bytes that are sent next."""

    left: int = 0


class End:
    """One end of a connection, and the bytes in transit from it."""

    __slots__ = (
        "_arrives_us",
        "_due",
        "_flight",
        "_in_flight",
        "_is_dead",
        "_network",
        "_outbox",
        "_was_full",
        "is_open",
        "is_slow",
        "number",
        "party",
        "peer",
        "target",
    )
    peer: End

    def __init__(self, network: Network, number: int, party: Party, *, target: int) -> None:
        self.number = number
        """The same number at both ends, never used again."""
        self.target = target
        """The requested address."""
        self.party = party
        self.is_open = True
        self.is_slow = False
        """Whether the other end reads slowly."""
        self._network = network
        self._outbox = bytearray()
        self._flight: deque[bytes | None] = deque()
        self._in_flight = 0
        self._due = 0
        self._arrives_us = 0
        self._is_dead = False
        self._was_full = False

    @property
    def unsent_bytes(self) -> int:
        """The number of written bytes that have not left."""
        return len(self._outbox)

    @property
    def has_output(self) -> bool:
        """Whether written bytes have not left."""
        return bool(self._outbox)

    def write(self, data: bytes) -> None:
        """Put bytes into the end's buffer; they leave with `flush`."""
        self._outbox += data

    def hold(self, until_us: int) -> None:
        """Let bytes that are written from now on arrive at *until_us* at the earliest."""
        assert not self._outbox, "bytes written earlier would be held too"
        self._arrives_us = max(self._arrives_us, until_us)

    def flush(self) -> bool:
        """Send the written bytes; return whether all of them have left."""
        if not self.is_open:
            self._outbox.clear()
            return True
        if self._network.flips.left and self._outbox and self.target not in self._network.unchecked:
            self._flip()
        self._depart()
        self._was_full = bool(self._outbox)
        return not self._outbox

    def close(self) -> None:
        """Close this end; flushed bytes may still arrive, in order, before the other end notices
        the close."""
        if self.is_open:
            self.is_open = False
            self._outbox.clear()
            self._launch(None)
            self.peer._flight.clear()
            self.peer._is_dead = True

    def vanish(self) -> None:
        """End silently, like a machine that lost its power."""
        self.is_open = False
        self._outbox.clear()
        self.peer._flight.clear()
        self.peer._is_dead = True

    def cut(self, *, notifies: bool) -> None:
        """Break the connection after any byte in transit from here. With *notifies* the other end
        notices the break."""
        keep = self._network.rng.randrange(sum(len(each or b"") for each in self._flight) + 1)
        kept: deque[bytes | None] = deque()
        for chunk in self._flight:
            if chunk is None or keep == 0:
                break
            part = chunk[:keep]
            kept.append(part)
            keep -= len(part)
        lost = len(self._flight) - len(kept)
        self._flight = kept
        self._flight.extend([b""] * lost)
        self._outbox.clear()
        self._is_dead = True
        if notifies:
            self._launch(None)

    def resume(self) -> None:
        """Deliver bytes that waited for the end of a block."""
        due, self._due = self._due, 0
        for _ in range(due):
            self._network.timeline.after(self._network.latency_us(), self._arrive)

    def _flip(self) -> None:
        rng = self._network.rng
        self._network.flips.left -= 1
        self._outbox[rng.randrange(len(self._outbox))] ^= 1 << rng.randrange(8)

    def _depart(self) -> None:
        capacity = _SLOW_CAPACITY if self.is_slow else _CAPACITY
        if self._is_dead:
            # The process has ended: its machine answers with a reset.
            self._outbox.clear()
            if self.is_open:
                self._network.timeline.after(self._network.latency_us(), self._reset)
            return

        room = capacity - self._in_flight
        if room <= 0 or not self._outbox:
            return

        data = bytes(self._outbox[:room])
        del self._outbox[:room]

        rng = self._network.rng
        if len(data) > 1 and rng.random() < self._network.split_rate:
            at = rng.randrange(1, len(data))
            self._launch(data[:at])
            data = data[at:]

        self._launch(data)

    def _launch(self, chunk: bytes | None) -> None:
        network = self._network
        when_us = network.timeline.now_us + network.latency_us()
        earliest_us = self._arrives_us + (_SLOW_INTERVAL_US if self.is_slow else 0)
        self._arrives_us = max(when_us, earliest_us)
        self._flight.append(chunk)
        self._in_flight += len(chunk or b"")
        network.timeline.at(self._arrives_us, self._arrive)

    def _arrive(self) -> None:
        if not self._flight:
            return

        if self._due or self._network.is_blocked(self.party.number, self.peer.party.number):
            self._due += 1
            self._network.waiting[self] = None
            return

        chunk = self._flight.popleft()
        if chunk is None:
            self.peer._reset()
            return

        self._in_flight -= len(chunk)
        if chunk and self.peer.is_open:
            self.peer.party.on_bytes(self.peer, chunk)

        if self._outbox:
            self._depart()
        if self._was_full and not self._outbox and self.is_open:
            self._was_full = False
            self.party.on_writable(self)

    def _reset(self) -> None:
        if self.is_open:
            self.is_open = False
            self._outbox.clear()
            self.party.on_closed(self)


class Network:
    """All connections and messages of a world."""

    def __init__(self, timeline: Timeline, rng: Random) -> None:
        self.timeline = timeline
        self.rng = rng
        self.flips = _Flips()

        self.latency_ms = (0.1, 1.0)
        self.loss_rate = 0.0
        """Share of single messages that are lost; connections lose nothing."""
        self.double_rate = 0.0
        """Share of single messages that arrive twice, the second time up to seconds later."""
        self.keep_rate = 0.0
        """Share of single messages that arrive seconds later."""
        self.split_rate = 0.1

        self.waiting: dict[End, None] = {}
        self.unchecked: set[int] = set()
        self._parties: dict[int, Party] = {}
        self._receivers: dict[int, Callable[[int, bytes], None]] = {}
        self._ends: dict[int, End] = {}
        self._blocked: dict[tuple[int, int], int] = {}
        self._numbers = count(1)

    def add(self, party: Party) -> None:
        """Make a party known, so that others can connect to it and send to it."""
        self._parties[party.number] = party
        self.receive(party.number, party.on_message)

    def listen(self, address: int, party: Party) -> None:
        """Let others connect to *party*, at a separate address on its machine. No bit flips on
        these connections, because their protocol has no checks."""
        self._parties[address] = party
        self.unchecked.add(address)

    def receive(self, number: int, action: Callable[[int, bytes], None]) -> None:
        """Let *action* receive the single messages to *number*, with their senders."""
        self._receivers[number] = action

    def latency_us(self) -> int:
        """Return the latency of bytes that are sent now."""
        low, high = self.latency_ms
        return int(1000 * (low + (high - low) * self.rng.random()))

    def is_blocked(self, source: int, target: int) -> bool:
        """Return whether nothing from *source* reaches *target*."""
        return (source, target) in self._blocked

    def block(self, source: int, target: int) -> None:
        """Block one direction; each call needs one `unblock`."""
        way = (source, target)
        self._blocked[way] = self._blocked.get(way, 0) + 1

    def unblock(self, source: int, target: int) -> None:
        """Undo one `block`."""
        way = (source, target)
        count = self._blocked.pop(way, 0) - 1
        if count > 0:
            self._blocked[way] = count
        self._resume()

    def heal(self) -> None:
        """End all blocks, and restore the usual latency."""
        self._blocked.clear()
        self.latency_ms = (0.1, 1.0)
        self.loss_rate = self.double_rate = self.keep_rate = 0.0
        self.flips.left = 0
        for number in list(self._ends):
            self._ends[number].is_slow = self._ends[number].peer.is_slow = False
        self._resume()

    def connect(self, party: Party, target: int) -> None:
        """Open a connection; *party* is notified of its opening, end or refusal."""
        self.timeline.after(self.latency_us(), self._accept, party, target)

    def send(self, source: int, target: int, data: bytes, *, is_once: bool = False) -> None:
        """Send a single message, which arrives later, perhaps twice unless *is_once*, or never."""
        rng = self.rng
        if rng.random() < self.loss_rate:
            return
        is_doubled = rng.random() < self.double_rate and not is_once
        is_kept = rng.random() < self.keep_rate
        for is_late in (is_kept, True) if is_doubled else (is_kept,):
            late_us = int(rng.choice(_LATE_MS) * 1000 * rng.random()) if is_late else 0
            self.timeline.after(late_us + self.latency_us(), self._deliver, source, target, data)

    def connections(self) -> list[End]:
        """Return an end of every connection that both sides consider open."""
        gone = [
            number
            for number, end in self._ends.items()
            if not (end.is_open or end.peer.is_open) and not end._flight and not end.peer._flight
        ]
        for number in gone:
            del self._ends[number]
        return [end for end in self._ends.values() if end.is_open and end.peer.is_open]

    def _accept(self, party: Party, target: int) -> None:
        other = self._parties.get(target)
        if other is None:
            # Nothing listens there.
            self.timeline.after(self.latency_us(), party.on_refused, target)
            return
        here, there = party.number, other.number
        is_blocked = self.is_blocked(here, there) or self.is_blocked(there, here)
        number = next(self._numbers)
        ours = End(self, number, party, target=target)
        theirs = End(self, number, other, target=target)
        ours.peer, theirs.peer = theirs, ours
        if is_blocked or not theirs.party.on_accepted(theirs):
            self.timeline.after(self.latency_us(), party.on_refused, target)
            return
        self._ends[number] = ours
        theirs._arrives_us = self.timeline.now_us + self.latency_us()
        self.timeline.at(theirs._arrives_us, party.on_opened, ours)

    def _deliver(self, source: int, target: int, data: bytes) -> None:
        if not self.is_blocked(source, target):
            self._receivers[target](source, data)

    def _resume(self) -> None:
        for end in list(self.waiting):
            if not self.is_blocked(end.party.number, end.peer.party.number):
                del self.waiting[end]
                end.resume()
