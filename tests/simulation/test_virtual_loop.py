"""Production's coroutines in virtual time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import Any

import pytest

from rmqstore.net.runtime import Event
from tests.support.virtual import VirtualProcess


def test_a_sleep_ends_when_the_clock_of_the_machine_says_so() -> None:
    process = VirtualProcess(drift_ppm=-200_000)
    ends: list[int] = []

    async def sleeper() -> None:
        await process.runtime.sleep(1.5)
        ends.append(process.now_ms())

    began_ms = process.now_ms()
    process.loop.run(lambda: process.loop.create_task(sleeper()))
    process.pass_time(1.8)
    assert ends == []
    process.pass_time(0.2)
    assert [end - began_ms for end in ends] == [1500]


def test_an_event_wakes_its_waiters_in_order_and_a_limit_ends_a_wait() -> None:
    process = VirtualProcess()
    woken: list[tuple[str, bool]] = []
    event = process.runtime.event()

    async def waiter(name: str, limit_s: float | None) -> None:
        woken.append((name, await event.wait(limit_s)))

    async def story() -> None:
        tasks = process.runtime.tasks("waiters")
        for name, limit_s in (("short", 1.0), ("first", None), ("second", 5.0)):
            tasks.start(waiter(name, limit_s), name=name)
        await process.runtime.sleep(2)
        event.set()
        await process.runtime.sleep(0)

    process.run(story())
    assert woken == [("short", False), ("first", True), ("second", True)]


def test_a_cancelled_task_runs_its_finally_and_a_dead_process_does_not() -> None:
    process = VirtualProcess()
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await process.runtime.sleep(60)
        finally:
            process.runtime.later(0.1, ended.append, name)

    async def story() -> None:
        tasks = process.runtime.tasks("works")
        tasks.start(work("cancelled"), name="cancelled")
        await process.runtime.sleep(1)
        await tasks.close()
        tasks.start(work("killed"), name="killed")
        await process.runtime.sleep(1)

    process.run(story())
    process.loop.end()
    process.pass_time(100)
    assert ended == ["cancelled"]


def test_a_failure_that_nobody_takes_is_reported() -> None:
    process = VirtualProcess()

    def fail() -> None:
        raise ValueError("told")

    process.loop.run(lambda: process.runtime.later(1, fail))
    with pytest.raises(AssertionError, match="told"):
        process.pass_time(2)


def test_functions_on_the_disk_run_one_after_the_other() -> None:
    process = VirtualProcess()
    written: list[int] = []

    async def story() -> None:
        await process.runtime.gather(
            *(process.runtime.on_disk(lambda each=each: written.append(each)) for each in range(5))
        )

    began_ms = process.now_ms()
    process.run(story())
    assert written == [0, 1, 2, 3, 4]
    assert process.now_ms() - began_ms >= 5


def test_cancelling_a_call_does_not_stop_its_function_on_the_disk() -> None:
    process = VirtualProcess()
    written: list[str] = []

    def fail() -> None:
        written.append("failed")
        raise OSError("no room")

    async def story() -> None:
        tasks = process.runtime.tasks("writers")
        tasks.start(process.runtime.on_disk(lambda: written.append("first")), name="first")
        tasks.start(process.runtime.on_disk(fail), name="failing")
        await process.runtime.sleep(0)
        await tasks.close()
        await process.runtime.on_disk(lambda: written.append("second"))

    process.run(story())
    assert written == ["first", "failed", "second"]


def test_a_process_that_dies_leaves_the_disk_as_it_was() -> None:
    process = VirtualProcess()
    written: list[str] = []
    work = process.runtime.on_disk(lambda: written.append("late"))
    process.loop.run(lambda: process.loop.create_task(work))
    process.loop.end()
    process.pass_time(1)
    assert written == []


@pytest.mark.filterwarnings("error")
def test_work_that_a_dead_process_never_began_is_closed() -> None:
    """What it was to await, too: Python warns of a coroutine that is neither awaited nor closed."""
    process = VirtualProcess()
    works: list[Coroutine[Any, Any, None]] = []

    async def work(inner: Coroutine[Any, Any, None] | None = None) -> None:
        assert inner is None, "nothing begins"

    def begin() -> None:
        works.extend([work(), work()])
        process.loop.create_task(work(works[0]))
        process.loop.end()
        process.loop.create_task(work(works[1]))

    process.loop.run(begin)
    assert [inspect.getcoroutinestate(each) for each in works] == [inspect.CORO_CLOSED] * 2


def test_the_loop_of_a_test_is_left_as_it_was() -> None:
    async def outer() -> None:
        process = VirtualProcess()
        assert process.run(process.runtime.in_thread(max, 1, 2)) == 2
        await asyncio.sleep(0)
        assert not Event().is_set

    asyncio.run(outer())
