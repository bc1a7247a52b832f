"""The model of timer log and wheel in the simulator does what the C index does."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqstore._native.core import TimerIndex
from rmqstore.sim.disk import ModelLog
from rmqstore.sim.timer_index import ModelTimerIndex, TimerLog
from tests.support.effort import rounds

PRECISION_MS, FILE_SIZE = 100, 2600
START_MS = 1_700_000_000_000
SLOTS = 6
EVERYTHING = 1 << 62

times = st.integers(START_MS, START_MS + SLOTS * PRECISION_MS - 1)


class Machine:
    """The machine of a model."""

    def __init__(self) -> None:
        self.log = ModelLog(file_size=4096)
        self.timer_log = TimerLog()

    def enter(self, action: Any) -> Any:
        return action()


class IndexesAgree(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.machine = Machine()
        self.end = 0
        self.open(EVERYTHING)

    def open(self, bound: int, *, is_new: bool = False) -> None:
        options: dict[str, Any] = {
            "file_size": FILE_SIZE,
            "precision_ms": PRECISION_MS,
            "bound": bound,
            "is_new": is_new,
        }
        self.index = TimerIndex(Path(self.folder.name), **options)
        self.model = ModelTimerIndex(self.machine, self.folder.name, **options)

    def both(self, name: str, *arguments: Any) -> None:
        found = getattr(self.model, name)(*arguments)
        assert found == getattr(self.index, name)(*arguments), name

    @rule(due_ms=times, magic=st.sampled_from([1, 1, 1, 3, 5]))
    def add(self, due_ms: int, magic: int) -> None:
        options = {"write_ms": START_MS, "magic": magic, "size": 100, "topic_hash": 7}
        for each in (self.index, self.model):
            each.add(due_ms, physical_offset=self.end, **options)
        self.end += 100

    @rule(bound=st.one_of(st.just(EVERYTHING), st.integers(0, 4000)), is_new=st.booleans())
    def reopen(self, bound: int, is_new: bool) -> None:
        self.index.close()
        self.model.close()
        self.open(bound, is_new=is_new and bound % 5 == 0)
        self.end = max(self.index.last_offset + 100, 0)

    @invariant()
    def agree(self) -> None:
        assert self.model.last_offset == self.index.last_offset
        for slot in range(SLOTS):
            at_ms = START_MS + slot * PRECISION_MS
            self.both("slot_count", at_ms + 7)
            self.both("count", at_ms)
            self.both("next", at_ms, START_MS + SLOTS * PRECISION_MS)
            modelled, found = self.model.units(at_ms), self.index.units(at_ms)
            assert [each[1:] for each in modelled] == [each[1:] for each in found]

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            self.index.close()
            self.folder.cleanup()


TestIndexesAgree = IndexesAgree.TestCase
TestIndexesAgree.settings = settings(max_examples=rounds(4, 400), stateful_step_count=40)
