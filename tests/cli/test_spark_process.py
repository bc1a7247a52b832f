"""`rmqstore spark` as a process, which starts a session of its own."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

from rmqstore.errors import MissingExtraError
from rmqstore.spark import java_home
from tests.support.waiting import spin_until


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


def test_an_interrupt_ends_a_job_without_a_trace_and_leaves_no_target(
    spawn: Callable[..., Any], tmp_path: Path
) -> None:
    root, target = tmp_path / "store", tmp_path / "target"
    with rmqstore.open(root) as store:
        store.put_many([bytes(2000)] * 2000, topic="orders")
    # A task for each message, so that the job lasts.
    narrow = ("--option", "maxPartitionBytes=1k", "--master", "local[1]")
    process = spawn("spark", "export", root, target, *narrow)
    spin_until(
        lambda: (target / "_temporary").exists() or process.poll() is not None,
        "the job has begun",
        timeout=300,
    )
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 130
    assert out == b""
    assert b"Traceback" not in err
    assert b"\tat " not in err
    assert not target.exists()
