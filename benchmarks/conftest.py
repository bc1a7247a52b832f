"""Stores for the micro benchmarks. They lie where --basetemp says, or in the system's folder for
temporary files: name a folder on the disk to measure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

import rmqstore
from benchmarks.peers import product
from rmqstore import Store

Measure = Callable[..., Any]


@pytest.fixture
def bounded(benchmark: BenchmarkFixture) -> Measure:
    """Return what measures a call whose rounds are counted, not timed, so that the disk does not
    fill: bounded(function, *arguments, rounds=, iterations=, setup=, **keywords)."""

    def measure(
        function: Callable[..., Any],
        *arguments: Any,
        rounds: int,
        iterations: int = 1,
        setup: Callable[[], None] | None = None,
        **keywords: Any,
    ) -> Any:
        return benchmark.pedantic(  # type: ignore[no-untyped-call]
            function,
            args=arguments,
            kwargs=keywords,
            setup=setup,
            rounds=rounds,
            iterations=iterations,
            warmup_rounds=1 if iterations > 1 else 0,
        )

    return measure


@pytest.fixture
def empty(tmp_path: Path) -> Iterator[Store]:
    """Return an open store without a message."""
    with rmqstore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a closed store of 60,000 messages of 1 KiB in four queues."""
    root = tmp_path_factory.mktemp("prepared") / "store"
    product.prepare("1k-1g", root, quick=True)
    return root
