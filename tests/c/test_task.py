"""Calls on a thread of their own."""

from __future__ import annotations

import threading
from typing import Any

LIMIT_MS = 60_000


def start(core: Any, work: Any, number: int = 7) -> Any:
    ffi, lib = core
    task, error = ffi.new("struct rmq_task **"), ffi.new("struct rmq_error *")
    assert lib.rmq_task_start(task, work, ffi.cast("void *", 1), number, error) == 0
    return task[0]


def test_task_gives_back_what_its_call_returned(core: Any) -> None:
    ffi, lib = core

    @ffi.callback("int(void *, int64_t, struct rmq_error *)")
    def work(subject: Any, number: int, err: Any) -> int:
        err.status, err.at_offset = 5, number
        return 5

    task = start(core, work, 42)
    assert lib.rmq_task_wait(task, LIMIT_MS)
    error = ffi.new("struct rmq_error *")
    assert lib.rmq_task_finish(task, error) == 5
    assert (error.status, error.at_offset) == (5, 42)


def test_task_that_was_left_goes_on_to_its_end(core: Any) -> None:
    ffi, lib = core
    may_end, has_ended = threading.Event(), threading.Event()

    @ffi.callback("int(void *, int64_t, struct rmq_error *)")
    def work(subject: Any, number: int, err: Any) -> int:
        may_end.wait(LIMIT_MS / 1000)
        has_ended.set()
        return 0

    task = start(core, work)
    assert not lib.rmq_task_wait(task, 0)
    lib.rmq_task_leave(task)
    may_end.set()
    assert has_ended.wait(LIMIT_MS / 1000)
