"""The gate between a store and readers that do not know it."""

from __future__ import annotations

import os
import threading
import warnings
from typing import Any

from tests.support.waiting import spin_until


def test_closed_gate_lets_nobody_in(core: Any) -> None:
    _, lib = core
    gate = lib.rmq_gate_create()
    assert lib.rmq_gate_enter(gate)
    lib.rmq_gate_leave(gate)
    assert not lib.rmq_gate_is_closed(gate)
    lib.rmq_gate_close(gate)
    assert lib.rmq_gate_is_closed(gate)
    assert not lib.rmq_gate_enter(gate)
    lib.rmq_gate_close(gate)
    lib.rmq_gate_release(gate)


def test_gate_outlives_its_maker_while_somebody_holds_it(core: Any) -> None:
    _, lib = core
    gate = lib.rmq_gate_create()
    lib.rmq_gate_retain(gate)
    lib.rmq_gate_close(gate)
    lib.rmq_gate_release(gate)
    assert not lib.rmq_gate_enter(gate)
    lib.rmq_gate_release(gate)


def test_closing_waits_until_the_last_one_has_left(core: Any) -> None:
    _, lib = core
    gate = lib.rmq_gate_create()
    assert lib.rmq_gate_enter(gate)
    assert lib.rmq_gate_enter(gate)
    closed = threading.Event()

    def close() -> None:
        lib.rmq_gate_close(gate)
        closed.set()

    closer = threading.Thread(target=close)
    closer.start()
    spin_until(lambda: lib.rmq_gate_is_closed(gate), "the gate is closed")
    assert not lib.rmq_gate_enter(gate)
    lib.rmq_gate_leave(gate)
    assert not closed.is_set()
    lib.rmq_gate_leave(gate)
    closer.join(60)
    assert closed.is_set()
    lib.rmq_gate_release(gate)


def test_forked_child_does_not_wait_for_threads_it_has_not(core: Any) -> None:
    _, lib = core
    gate = lib.rmq_gate_create()
    assert lib.rmq_gate_enter(gate)
    with warnings.catch_warnings():
        # Later Pythons warn of any fork beside threads; this child calls no Python of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        lib.rmq_gate_close(gate)
        os._exit(0)
    assert os.waitpid(child, 0) == (child, 0)
    lib.rmq_gate_leave(gate)
    lib.rmq_gate_close(gate)
    lib.rmq_gate_release(gate)
