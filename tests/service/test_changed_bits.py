"""A bit that turns on the wire between two replicas of ours: nothing of its frame counts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from tests.support.effort import rounds
from tests.support.relay import Relay
from tests.support.service_group import QUICK, TWO, Group, assert_equal, bodies, group
from tests.support.waiting import spin_until, wait_until

__all__ = ["group"]
KEY = b"account-42"
OPTIONS = replace(QUICK, housekeeping_ms=2000, handshake_ms=1000)


class OneBit:
    """Turns one bit of one direction's bytes, when it is armed; for a Relay."""

    def __init__(self, *, of_master: bool) -> None:
        self._of_master = of_master
        self._lock = threading.Lock()
        self._find: Callable[[bytes], int] | None = None
        self.count = 0

    def arm(self, find: Callable[[bytes], int]) -> None:
        """Turn the bit that *find* names in the next piece for which it names one, not -1."""
        with self._lock:
            self._find = find

    def __call__(self, is_answer: bool) -> Callable[[bytes], bytes]:
        return self._turn if is_answer is self._of_master else bytes

    def _turn(self, data: bytes) -> bytes:
        with self._lock:
            bit = -1 if self._find is None else self._find(data)
            if bit < 0:
                return data
            self._find = None
            self.count += 1
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)


def test_a_key_that_changed_on_the_wire_is_no_copy_and_is_fetched_again(group: Group) -> None:
    wire = OneBit(of_master=True)
    with closing(Relay(change=wire)) as relay:
        master = group.master(quorum=TWO)
        relay.target = master.address
        slave = group.slave(relay, options=OPTIONS)
        master.wait_in_sync(2, timeout=20)
        wire.arm(lambda data: 8 * data.find(KEY) if KEY in data else -1)
        receipt = master.store.put("orders", b"transfer", keys=KEY.decode(), copies=2)
        assert (receipt.copies, wire.count) == (2, 1)
        assert [each.keys for each in slave.store.scan_log()] == [[KEY.decode()]]
        wait_until(slave, lambda: slave.confirm_offset == master.end_offset, "readers have it")
        assert_equal(slave, master)


@pytest.mark.parametrize("of_master", [True, False], ids=["master", "slave"])
def test_no_bit_of_a_stream_can_turn_unseen(group: Group, of_master: bool) -> None:
    wire = OneBit(of_master=of_master)
    with closing(Relay(change=wire)) as relay:
        master = group.master(quorum=TWO)
        relay.target = master.address
        slave = group.slave(relay, options=OPTIONS)
        master.wait_in_sync(2, timeout=20)
        step = 8 * 44 // rounds(22, 352) + 1
        places = range(0, 8 * (44 if of_master else 20), step)
        for number, place in enumerate(places):
            # The beginning of a frame, whichever comes next.
            wire.arm(lambda data, at=place: at if at < 8 * len(data) else -1)
            receipt = master.store.put("orders", b"%d" % number, keys=KEY.decode(), copies=2)
            assert receipt.copies == 2
            spin_until(lambda at=number: wire.count == at + 1, "the bit is turned")
        master.store.put("orders", b"last", copies=2)
        expected = [*(b"%d" % number for number in range(len(places))), b"last"]
        wait_until(slave, lambda: slave.confirm_offset == master.end_offset, "readers have all")
        assert bodies(slave) == expected
        assert_equal(slave, master)
        assert slave.master_status is not None
        assert slave.master_status.halted_reason is None


@pytest.mark.parametrize("at", range(16))
def test_a_handshake_that_changed_counts_for_nobody(group: Group, at: int) -> None:
    wire = OneBit(of_master=False)
    wire.arm(lambda data: 8 * at)
    with closing(Relay(change=wire)) as relay:
        master = group.master(quorum=TWO)
        relay.target = master.address
        group.slave(relay, options=OPTIONS)
        master.wait_in_sync(2, timeout=20)
        assert wire.count == 1
        assert [each.broker_id for each in master.replicas] == [2]
        assert not master.replicas[0].is_learner
