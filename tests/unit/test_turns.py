"""Changes of a role in virtual time: one after another, completed where their callers give up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from rmqstore.errors import Fenced, StoreError
from rmqstore.net.runtime import Task
from rmqstore.replication.runtime.turns import ChangeGivenUp, Turn, Turns
from tests.support.virtual import VirtualProcess

STEP_S = 0.1


class Changes:
    """Changes of two steps, each of which takes 100 ms."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.steps: list[str] = []
        self.turns: Turns
        self.process.loop.run(self._make)

    def _make(self) -> None:
        self.turns = Turns(self.process.runtime)

    def change(self, name: str) -> Callable[[Turn], Coroutine[Any, Any, str]]:
        async def change(turn: Turn) -> str:
            for step in (1, 2):
                await self.process.runtime.sleep(STEP_S)
                self.steps.append(f"{name}{step}")
                if step == 1:
                    turn.check()
            return name

        return change

    def take(self, name: str) -> Task[str]:
        """Begin a call that takes a change of this name."""
        tasks: list[Task[str]] = []
        work = self.turns.take(self.change(name))
        self.process.loop.run(lambda: tasks.append(self.process.loop.create_task(work)))
        return tasks[0]

    def cancel(self, call: Task[str]) -> None:
        self.process.loop.run(call.cancel)


def test_changes_run_one_after_another_in_the_order_of_the_calls() -> None:
    changes = Changes()
    calls = [changes.take(name) for name in "ab"]
    changes.process.pass_time(0.15)
    assert (changes.steps, changes.turns.is_taken) == (["a1"], True)
    changes.process.pass_time(0.35)
    assert changes.steps == ["a1", "a2", "b1", "b2"]
    assert [each.result() for each in calls] == ["a", "b"]
    assert not changes.turns.is_taken


def test_a_change_whose_caller_is_cancelled_ends_after_its_present_step() -> None:
    changes = Changes()
    first, second = changes.take("a"), changes.take("b")
    changes.process.pass_time(0.05)
    changes.cancel(first)
    assert not first.done()
    changes.process.pass_time(0.06)
    assert (changes.steps, first.cancelled()) == (["a1"], True)
    changes.process.pass_time(0.3)
    assert (changes.steps, second.result()) == (["a1", "b1", "b2"], "b")


def test_a_caller_that_is_cancelled_again_does_not_wait_for_the_step() -> None:
    changes = Changes()
    first, second = changes.take("a"), changes.take("b")
    changes.process.pass_time(0.05)
    changes.cancel(first)
    changes.cancel(first)
    assert (first.cancelled(), changes.steps) == (True, [])
    changes.process.pass_time(0.4)
    assert (changes.steps, second.result()) == (["a1", "b1", "b2"], "b")


def test_an_error_of_a_change_is_for_its_caller_alone(caplog: pytest.LogCaptureFixture) -> None:
    changes = Changes()

    async def fail(turn: Turn) -> None:
        raise Fenced("a newer epoch exists")

    with pytest.raises(Fenced):
        changes.process.run(changes.turns.take(fail))
    assert not caplog.records


def test_an_error_of_a_change_without_a_caller_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    changes = Changes()

    async def fail(turn: Turn) -> None:
        raise StoreError("no space left")

    changes.process.loop.run(lambda: changes.turns.begin(fail))
    changes.process.pass_time(0.01)
    assert "change of the role failed" in caplog.text
    assert changes.process.run(changes.turns.take(changes.change("a"))) == "a"


def test_a_turn_that_was_given_up_says_so() -> None:
    turn = Turn()
    turn.check()
    turn.is_given_up = True
    with pytest.raises(ChangeGivenUp):
        turn.check()
