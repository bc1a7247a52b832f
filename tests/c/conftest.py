"""The core as a shared library, for every test of this folder."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.c import library


@pytest.fixture(scope="session")
def core() -> tuple[Any, Any]:
    """Return (ffi, lib): the declarations of csrc and its functions.

    With RMQ_SANITIZE=1 the library is built with ASan and UBSan; the interpreter must then be
    started with libasan in LD_PRELOAD.
    """
    if library.is_sanitized() and "asan" not in os.environ.get("LD_PRELOAD", ""):
        pytest.fail("RMQ_SANITIZE=1 needs LD_PRELOAD=$(cc -print-file-name=libasan.so)")
    return library.load()
