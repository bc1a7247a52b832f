"""Raft's figure 8 over sockets: what a slave holds counts once it has stored its master's epoch.

Message X is in the log of A alone, of epoch 1. B, elected in epoch 2, dies before anybody follows
it. A is elected again in epoch 3, and C follows it; the label of epoch 3 is held back on the way. B
would win an election against C, so nobody may count C, whatever it holds. With the label C counts,
and no put of epoch 3 is needed for that.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from rmqstore import Durability
from rmqstore.replication import Mode, Quorum
from tests.support.relay import Relay
from tests.support.service_group import QUICK, Group, bodies, follow, group, put
from tests.support.waiting import WAIT_S, spin_until, wait_until

__all__ = ["group"]
# A slave that hears nothing for long connects again, and would hear of the epoch in the reply.
PATIENT = replace(QUICK, housekeeping_ms=120_000, handshake_ms=60_000)
HEADS = {1: 20, 2: 36, 0x434B0001: 32, 0x434B0002: 44}


class HeldLabel:
    """Passes frames of a master on until the first transfer of an epoch; that one, and all behind
    it, when it is released. Makes each direction of a connection for a Relay."""

    def __init__(self, epoch: int) -> None:
        self.is_holding, self._released = threading.Event(), threading.Event()
        self._epoch = epoch

    def release(self) -> None:
        self._released.set()

    def __call__(self, is_answer: bool) -> Callable[[bytes], bytes]:
        held = bytearray()

        def passed(data: bytes) -> bytes:
            held.extend(data)
            going = bytearray()

            while len(held) >= 20 and not self._released.is_set():
                state, size = struct.unpack_from(">ii", held)
                whole = HEADS[state] + size
                if len(held) < whole:
                    return bytes(going)

                is_transfer = state & 0xFFFF == 2
                if is_transfer and struct.unpack_from(">i", held, 16)[0] >= self._epoch:
                    self.is_holding.set()
                    if going:
                        return bytes(going)
                    self._released.wait(3 * WAIT_S)
                    break

                going += held[:whole]
                del held[:whole]

            going += held
            held.clear()
            return bytes(going)

        return passed if is_answer else bytes


@pytest.fixture
def label() -> Iterator[HeldLabel]:
    made = HeldLabel(3)
    yield made
    made.release()


@pytest.mark.parametrize(
    ("mode", "is_afresh"),
    [
        (Mode.PLAIN, True),
        (Mode.PLAIN, False),
        # A put of an acting master is not taken while nobody keeps up, so none waits.
        (Mode.ACTING_MASTER, True),
        (Mode.SYNC_STATE_SET, True),
        (Mode.SYNC_STATE_SET, False),
    ],
)
def test_copies_of_an_older_epoch_count_once_their_holder_knows_the_new_one(
    group: Group, label: HeldLabel, mode: Mode, is_afresh: bool
) -> None:
    quorum = Quorum(total=3, in_sync=2, timeout_ms=120_000)
    options = {"mode": mode, "quorum": quorum, "options": PATIENT}
    a, b, c = (group.plain(name, at, **options) for at, name in enumerate("abc", 1))
    everybody = {"members": (1, 2, 3)} if mode is Mode.SYNC_STATE_SET else {}
    a.become_master(1, **everybody)
    for slave in (b, c):
        follow(slave, a, 1)
    put(a, b"first")
    spin_until(lambda: b.end_offset == c.end_offset == a.end_offset, "all have the first")
    wait_until(a, lambda: a.confirm_offset == a.end_offset, "it is confirmed")
    first_end = a.end_offset

    b, c = group.again(b, **options), group.again(c, **options)
    alone = ThreadPoolExecutor(1)
    with alone, closing(Relay(change=label)) as relay:
        if is_afresh:
            a.store.put("orders", b"X", durability=Durability.MEMORY)
            a = group.again(a, **options)
        else:
            waits = alone.submit(a.store.put, "orders", b"X", copies=2)
            spin_until(lambda: a.end_offset > first_end, "X is in the log")
        b.become_master(2, **({"members": (2,), "set_epoch": 2} if everybody else {}))
        b.close()
        a.become_master(3, **({"members": (1, 3), "set_epoch": 3} if everybody else {}))
        relay.target = a.address
        c.become_slave(relay.address, 3)
        assert label.is_holding.wait(WAIT_S)
        assert (a.confirm_offset, bodies(a)) == (first_end, [b"first"])
        assert is_afresh or not waits.done()

        label.release()
        wait_until(a, lambda: a.confirm_offset == a.end_offset, "X is confirmed without a put")
        assert bodies(a) == [b"first", b"X"]
        assert is_afresh or waits.result(WAIT_S).copies == 2
        assert [each.epoch for each in c.epochs][-1] == 3
