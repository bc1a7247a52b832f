"""What a worker does once, and a driver never."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from rmqstore.spark import worker

pyspark = pytest.importorskip("pyspark", reason="needs the extra spark")


@pytest.fixture(autouse=True)
def unsettled() -> Iterator[None]:
    worker.settle.cache_clear()
    yield
    worker.settle.cache_clear()
    gc.unfreeze()


def test_a_driver_keeps_its_garbage_collection() -> None:
    frozen = gc.get_freeze_count()
    worker.settle()
    assert gc.get_freeze_count() == frozen


def test_a_worker_leaves_what_it_has_out_of_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(pyspark.TaskContext, "get", lambda: asked.append(1) or object())
    worker.settle()
    assert gc.get_freeze_count() > 10_000
    worker.settle()
    assert asked == [1]
