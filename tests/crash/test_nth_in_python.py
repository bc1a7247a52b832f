"""Verbs of the Python API while the process runs out of descriptors, or the interpreter of memory:
with the first request refused, the second, and so on until the verb is done before that.
"""

from __future__ import annotations

import errno
import importlib
import multiprocessing
import os
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, NotWritable, Store, StoreError
from tests.support.agreement import check_agreement

SIZES: dict[str, Any] = {
    "commit_log_file_size_bytes": 4096,
    "consume_queue_file_size_bytes": 100,
    "index_slot_count": 8,
    "index_entry_count": 20,
    "message_size_bytes_max": 600,
}
REQUESTS_MAX = 500
COUNT = 12


def body_of(number: int) -> bytes:
    return b"message %06d " % number * 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    with rmqstore.open(path, **SIZES) as store:
        for number in range(COUNT):
            store.put("orders", body_of(number), queue=number % 2, keys=[f"k{number}"])
    return path


def _put(store: Store) -> None:
    """Over the end of the log's, the queues' and the index's last file."""
    for _ in range(COUNT):
        store.put("orders", body_of(0), queue=2, keys=["new"])
    store.wait_dispatched()


def _put_many(store: Store) -> None:
    store.put_many([Message("orders", body_of(0), queue=2, keys=["new"])] * COUNT)
    store.wait_dispatched()


def _get(store: Store) -> None:
    for number in range(COUNT):
        record = store.get("orders", queue=number % 2, offset=number // 2)
        assert record.body == body_of(number)


def _get_many(store: Store) -> None:
    records = store.get_many("orders", queue=1, offset=0).records
    assert [each.body for each in records] == [body_of(number) for number in range(1, COUNT, 2)]


def _find(store: Store) -> None:
    for number in range(COUNT):
        assert [each.body for each in store.find("orders", f"k{number}")] == [body_of(number)]


def _scan(store: Store) -> None:
    bodies = [each.body for each in store.scan_log()]
    assert bodies[:COUNT] == [body_of(number) for number in range(COUNT)]


VERBS: dict[str, Callable[[Store], None]] = {
    "put": _put,
    "put many": _put_many,
    "get": _get,
    "get many": _get_many,
    "find": _find,
    "scan": _scan,
}


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """While the block runs, *count* more descriptors can be opened."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    fillers = []
    while (filler := os.open("/dev/null", os.O_RDONLY)) <= highest:
        fillers.append(filler)
    fillers.append(filler)
    resource.setrlimit(resource.RLIMIT_NOFILE, (filler + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


def check_afterwards(root: Path) -> None:
    with rmqstore.open(root) as store:
        bodies = [each.body for each in check_agreement(store)]
    assert bodies[:COUNT] == [body_of(number) for number in range(COUNT)]
    assert set(bodies[COUNT:]) <= {body_of(0)}


@pytest.mark.parametrize("verb", VERBS)
def test_verb_without_a_descriptor_left_says_so_and_loses_nothing(verb: str, root: Path) -> None:
    for count in range(REQUESTS_MAX):
        failure: StoreError | None = None
        try:
            with rmqstore.open(root) as store:
                try:
                    with descriptors_left(count):
                        VERBS[verb](store)
                except StoreError as error:
                    failure = error
                    _get(store)
                    store.put("orders", body_of(0), queue=2)
        except NotWritable as error:
            # A thread of the store found no descriptor; any later call, close too, may report it.
            failure = failure or error
            assert os.strerror(errno.EMFILE) in str(error)  # noqa: PT017 - or the store goes on
        assert failure is None or os.strerror(errno.EMFILE) in str(failure), failure
        check_afterwards(root)
        if failure is None:
            return
    pytest.fail(f"{verb} opens more than {REQUESTS_MAX} files")


def test_opening_without_a_descriptor_left_says_so_and_changes_nothing(root: Path) -> None:
    for count in range(REQUESTS_MAX):
        try:
            with descriptors_left(count):
                store = rmqstore.open(root)
        except StoreError as error:
            assert os.strerror(errno.EMFILE) in str(error)  # noqa: PT017 - either outcome is right
            check_afterwards(root)
        else:
            store.close()
            assert count > 0
            return
    pytest.fail(f"opening needs more than {REQUESTS_MAX} descriptors")


def _run_out_of_memory(verb: str, root: Path) -> None:
    testing = importlib.import_module("_testcapi")
    for first in range(REQUESTS_MAX):
        has_failed = False
        with rmqstore.open(root) as store:
            testing.set_nomemory(first, first + 1)
            try:
                VERBS[verb](store)
            except MemoryError:
                has_failed = True
            finally:
                testing.remove_mem_hooks()
            _get(store)
        check_afterwards(root)
        if not has_failed:
            return
    pytest.fail(f"{verb} asks for memory more than {REQUESTS_MAX} times")


@pytest.mark.parametrize("verb", VERBS)
def test_verb_of_an_interpreter_without_memory_says_so_and_holds_nothing(
    verb: str, root: Path
) -> None:
    pytest.importorskip("_testcapi", reason="it makes requests for memory fail")
    # In a process of its own: a request of any other thread may be the one that fails.
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
        alone.submit(_run_out_of_memory, verb, root).result()
