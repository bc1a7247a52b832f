"""The core as a shared library, for every test of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.c import library
from tests.c.store_calls import Calls, FaultyDoor
from tests.support.effort import rounds
from tests.support.memory_folder import tmp_path

__all__ = ["tmp_path"]

if library.is_sanitized():
    # The plain run looks for wrong answers among more of them; what harms memory does so often.
    plain = settings.get_profile("rmqstore")
    settings.register_profile("sanitized", plain, max_examples=rounds(15, plain.max_examples))
    settings.load_profile("sanitized")

WRAPPED = "malloc calloc realloc aligned_alloc strdup free mmap munmap pthread_create"


@pytest.fixture(scope="session")
def core() -> tuple[Any, Any]:
    """Return (ffi, lib): the declarations of csrc and its functions.

    With RMQ_SANITIZE=1 the library is built with ASan and UBSan; the interpreter must then be
    started with libasan in LD_PRELOAD.
    """
    if library.is_sanitized() and "asan" not in os.environ.get("LD_PRELOAD", ""):
        pytest.fail("RMQ_SANITIZE=1 needs LD_PRELOAD=$(cc -print-file-name=libasan.so)")
    return library.load()


@pytest.fixture(scope="session")
def failing_core() -> tuple[Any, Any]:
    """Return the core with requests for memory, threads and mappings that fail on demand."""
    if library.is_sanitized():
        pytest.skip("ASan has wrappers of its own for what is wrapped here")
    source = Path(__file__).with_name("failing_memory.c")
    return library.load(
        [source],
        [f"-Wl,--wrap={name}" for name in WRAPPED.split()],
        "void failing_memory_arm(int64_t first, int64_t count);"
        "int64_t failing_memory_count(void);"
        "int64_t failing_memory_blocks(void);"
        "int64_t failing_memory_mappings(void);",
    )


@pytest.fixture
def door(core: Any) -> Iterator[FaultyDoor]:
    """Return the faulty door of the file system, which fails and holds nothing yet."""
    made = FaultyDoor(core)
    yield made
    made.disarm()
    _abandon_stores()
    made.free()


@pytest.fixture(autouse=True)
def _no_store_lives_on() -> Iterator[None]:
    """Stop threads of stores that a failed test left; they would use memory of the next test."""
    yield
    _abandon_stores()


def _abandon_stores() -> None:
    for store in list(Calls.alive):
        store.abandon()
