"""One Spark session for all tests: starting one takes longer than most of them."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP_S = 60.0
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Return the session, on two cores; format "rmqstore" is found without registration."""
    from rmqstore.errors import MissingExtraError
    from rmqstore.spark import java_home, session

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
        _stop(started)


def _stop(session: SparkSession) -> None:
    """Stop the session, for which Spark has no limit; end its process where that takes long."""
    gateway = session.sparkContext._gateway
    assert gateway is not None
    limit = threading.Timer(STOP_S, gateway.proc.kill)
    limit.start()
    try:
        session.stop()
    finally:
        limit.cancel()
