"""Supervised tasks: failures are logged, kept and passed on; closing waits for all tasks."""

from __future__ import annotations

import asyncio
import logging

import pytest

from rmqstore.net.supervisor import Supervisor, TaskFailure
from tests.service.remoting_peers import on_loop
from tests.support.waiting import until

LOG = logging.getLogger("rmqstore.remoting")


async def fail() -> None:
    raise ZeroDivisionError("of a task")


@on_loop
async def test_a_task_that_raises_is_logged_kept_and_passed_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[TaskFailure] = []
    supervisor = Supervisor("node a", log=LOG, on_failure=seen.append)
    supervisor.start(fail(), name="scan")
    go_on = asyncio.Event()
    other = supervisor.start(go_on.wait(), name="wait")
    assert supervisor.tasks == ("scan", "wait")
    await until(lambda: supervisor.tasks == ("wait",), "the first task ends")
    [failure] = supervisor.failures
    assert [failure] == seen
    assert (failure.name, str(failure.error)) == ("scan", "of a task")
    assert "node a: task scan failed" in caplog.text

    go_on.set()
    assert await other is True
    assert supervisor.tasks == ()
    assert list(supervisor.failures) == [failure]
    await supervisor.close()


@on_loop
async def test_closing_cancels_tasks_and_waits_for_them() -> None:
    steps: list[str] = []
    go_on = asyncio.Event()

    async def run() -> None:
        steps.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            steps.append("cancelled")
            await go_on.wait()
            steps.append("ended")

    supervisor = Supervisor("node a", log=LOG)
    supervisor.start(run(), name="run")
    await until(lambda: steps == ["begun"], "the task begins")

    closing = asyncio.create_task(supervisor.close())
    await until(lambda: steps == ["begun", "cancelled"], "the task is cancelled")
    assert not closing.done()
    go_on.set()
    await closing
    assert steps == ["begun", "cancelled", "ended"]
    assert not supervisor.failures
    await supervisor.close()


@on_loop
async def test_a_task_whose_wait_is_cancelled_has_failed() -> None:
    async def wait() -> None:
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    supervisor = Supervisor("node a", log=LOG)
    supervisor.start(wait(), name="wait")
    await until(lambda: supervisor.failures, "the failure is kept")
    assert supervisor.failures[0].name == "wait"
    await supervisor.close()


@on_loop
async def test_the_last_failures_are_kept() -> None:
    supervisor = Supervisor("node a", log=LOG)
    for number in range(40):
        supervisor.start(fail(), name=str(number))
    await until(lambda: not supervisor.tasks, "all have failed")
    assert [failure.name for failure in supervisor.failures] == [str(n) for n in range(24, 40)]
