"""Clients of Spark Connect read by either reader of the server: with the jar there, and without."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore.spark.jvm import jar_path
from tests.spark.daemons import answer_of, daemon
from tests.support.effort import is_long

pytestmark = [
    pytest.mark.skipif(not is_long(), reason="a long form: each server is a start of Java"),
    pytest.mark.skipif(
        find_spec("grpc_status") is None,
        reason="needs the client of Spark Connect: pip install 'pyspark[connect]'",
    ),
]

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
CONFIG = {
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
    "spark.master": "local[1]",
    "spark.pyspark.python": sys.executable,
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
ROWS = [[queue, sum(range(50))] for queue in (0, 2)]
"""Every second message has the tag, and those are in the even queues."""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("connect") / "store"
    with rmqstore.open(root) as store:
        for number in range(200):
            store.put("orders", b"%d" % number, queue=number % 4, tags=("eu", "us")[number % 2])
    return root


def _answers(root: Path, folder: Path, **config: str) -> dict[str, Any]:
    """Return what a client gets of a server with this configuration."""
    log = folder / "server.log"
    settings = {**CONFIG, **config, "spark.sql.warehouse.dir": str(folder / "warehouse")}
    words = [word for each in settings.items() for word in ("--conf", "=".join(each))]
    arguments = ["--class", SERVER, *words]
    # It takes the place of spark.driver.memory for servers.
    with daemon("SparkSubmit", arguments, log, SPARK_DAEMON_MEMORY="600m") as logged:
        port = logged(r"Spark Connect server started at: \S+:(\d+)")
        answers: dict[str, Any] = answer_of(
            "tests.spark.connect_query", f"sc://127.0.0.1:{port}", str(root)
        )
    return answers


@pytest.mark.skipif(jar_path() is None, reason="the jar was not built: needs a JDK and pyspark")
def test_a_server_with_the_jar_reads_by_either_reader(root: Path, tmp_path: Path) -> None:
    answers = _answers(root, tmp_path, **{"spark.jars": str(jar_path())})
    kind, refusal = answers.pop("none")
    assert answers == {
        "auto": ["JVM", ROWS],
        "jvm": ["JVM", ROWS],
        "python": ["Python", ROWS],
        "sql": 200,
    }
    assert kind == "IllegalArgumentException"
    assert "reader: 'none' is not auto or jvm or python" in refusal


def test_a_server_without_the_jar_reads_by_python(root: Path, tmp_path: Path) -> None:
    answers = _answers(root, tmp_path)
    refusals = [answers.pop(reader) for reader in ("none", "jvm")]
    assert answers == {"auto": ["Python", ROWS], "python": ["Python", ROWS], "sql": 200}
    assert {kind for kind, _ in refusals} == {"AnalysisException"}
    assert "reader: 'none' is not auto or jvm or python" in refusals[0][1]
    assert "reader: jvm needs the jar" in refusals[1][1]
