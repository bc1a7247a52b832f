"""`rmqstore spark` as a process, which starts a session of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

from rmqstore.errors import MissingExtraError
from rmqstore.spark import java_home


@pytest.fixture(autouse=True)
def _java() -> None:
    try:
        java_home()
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_a_process_of_its_own_starts_spark_and_prints_the_report_alone(
    spawn: Callable[..., Any], small: Path
) -> None:
    process = spawn("spark", "count", small, "--master", "local[1]")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0
    # Its workers may find their sockets closed at the end.
    assert b"WARN" not in err
    assert b"log level" not in err
    assert out.decode().startswith("20 messages in 20 records")
    assert out.count(b"\n") == 1
