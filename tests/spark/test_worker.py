"""What a worker does once, and a driver never."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from rmqstore.errors import NotFoundError
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


@pytest.mark.parametrize(
    ("module", "hides"),
    [
        ("pyspark.daemon", True),
        ("pyspark.sql.worker.plan_data_source_read", True),
        ("pytest", False),
    ],
)
def test_only_a_worker_hides_the_traceback_of_an_error(
    module: str, hides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    main = SimpleNamespace(__spec__=SimpleNamespace(name=module))
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK", raising=False)
    with pytest.raises(NotFoundError), worker.plain_errors():
        raise NotFoundError("no such store")
    assert ("SPARK_HIDE_TRACEBACK" in os.environ) == hides
    # Otherwise the end of the test would leave it to the tests that follow.
    os.environ.pop("SPARK_HIDE_TRACEBACK", None)


def test_an_error_of_others_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_is_worker", lambda: True)
    with pytest.raises(ZeroDivisionError), worker.plain_errors():
        raise ZeroDivisionError
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
