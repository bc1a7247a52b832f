"""A store for each test of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rmqstore
from rmqstore.spark.jvm import jar_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READ_EITHER_WAY = ("test_rows_in_spark", "test_source")
"""Tests of these modules that read by Spark run with the reader in the JVM and with Python's."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let tests that read by Spark run with either reader."""
    if (
        metafunc.module.__name__.rpartition(".")[2] in READ_EITHER_WAY
        and "spark" in metafunc.fixturenames
    ):
        metafunc.fixturenames.append("reader")
        ways = ("jvm", "python") if jar_path() is not None else ("python",)
        metafunc.parametrize("reader", ways, indirect=True)


@pytest.fixture
def reader(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    """Let batch queries be read by the reader of this name."""
    if jar_path() is None:
        yield
        return
    spark.conf.set("spark.datasource.rmqstore.reader", request.param)
    yield
    spark.conf.unset("spark.datasource.rmqstore.reader")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark says of each pandas from 3.0 on that it may not work; here it is put to the test."""
    folder = Path(__file__).parent
    for item in items:
        if item.path.parent == folder:
            item.add_marker(
                pytest.mark.filterwarnings(
                    "ignore:PySpark does not yet fully support pandas:FutureWarning"
                )
            )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where `store` lies."""
    return tmp_path / "a.store"


@pytest.fixture
def store(path: Path) -> Iterator[rmqstore.Store]:
    """Yield an open store of small files."""
    from tests.spark.streaming import open_store

    with open_store(path) as opened:
        yield opened
