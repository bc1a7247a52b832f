"""Statuses and the texts of errors."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from rmqstore.errors import STATUS

DETAIL_SIZE = 400


def test_statuses_are_those_of_the_python_map(core: Any) -> None:
    ffi, _ = core
    statuses = ffi.typeof("enum rmq_status").relements
    assert {name.removeprefix("RMQ_"): code for name, code in statuses.items()} == dict(STATUS)


def test_every_status_has_a_text_of_its_own(core: Any) -> None:
    ffi, lib = core
    texts = {ffi.string(lib.rmq_status_text(code)) for code in STATUS.values()}
    assert len(texts) == len(STATUS)
    assert ffi.string(lib.rmq_status_text(-1)) == b"unknown status"


def test_failure_keeps_status_place_and_text(core: Any) -> None:
    ffi, lib = core
    error = ffi.new("struct rmq_error *", {"os_errno": 5})
    number = ffi.cast("int", 7)
    assert lib.rmq_fail(error, lib.RMQ_CORRUPT, 1 << 40, b"unit %d", number) == lib.RMQ_CORRUPT
    assert (error.status, error.os_errno, error.at_offset) == (lib.RMQ_CORRUPT, 0, 1 << 40)
    assert ffi.string(error.detail) == b"unit 7"


def test_failure_without_room_for_an_error_still_returns_its_status(core: Any) -> None:
    ffi, lib = core
    assert lib.rmq_fail(ffi.NULL, lib.RMQ_BUSY, -1, b"busy") == lib.RMQ_BUSY
    assert lib.rmq_fail_os(ffi.NULL, errno.EIO, b"write") == lib.RMQ_IO


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (errno.ENOSPC, "NO_SPACE"),
        (errno.EDQUOT, "NO_SPACE"),
        (errno.EIO, "IO"),
        (errno.EACCES, "IO"),
    ],
)
def test_system_failure_appends_the_text_of_its_errno(core: Any, number: int, status: str) -> None:
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    assert lib.rmq_fail_os(error, number, b"write x") == STATUS[status]
    assert (error.status, error.os_errno, error.at_offset) == (STATUS[status], number, -1)
    assert ffi.string(error.detail).decode() == f"write x: {os.strerror(number)}"


def test_long_text_is_cut_to_fit(core: Any) -> None:
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    text = ffi.new("char[]", b"x" * 1000)
    lib.rmq_fail_os(error, errno.EIO, b"%s", text)
    assert ffi.string(error.detail) == b"x" * (DETAIL_SIZE - 1)
