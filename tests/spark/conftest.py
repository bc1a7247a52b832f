"""A store for each test of this folder, and one Spark session for all of them: starting one takes
longer than most tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import rmqstore
from rmqstore.errors import MissingExtraError
from rmqstore.spark import java_home, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REPOSITORY = Path(__file__).resolve().parents[2]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark says of each pandas from 3.0 on that it may not work; here it is put to the test."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
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


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session, on two cores; format "rmqstore" is found without registration."""
    scratch = tmp_path_factory.mktemp("spark")
    config = {
        "spark.driver.memory": "1g",
        "spark.local.dir": str(scratch / "local"),
        "spark.log.level": "ERROR",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(REPOSITORY), prepend=os.pathsep)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        try:
            patch.setenv("JAVA_HOME", java_home())
            builder = session(master="local[2]", name="rmqstore tests", config=config)
        except MissingExtraError as error:
            pytest.skip(str(error))
        started = builder.getOrCreate()
        yield started
        started.stop()
