"""The benchmark of the Spark source, as far as it needs no Spark; never how fast."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from benchmarks import spark_bars, spark_data, spark_live
from benchmarks.bars import Verdict
from benchmarks.lines import OURS
from benchmarks.results import Results
from benchmarks.spark_rows import CEILING, JVM, OUTSIDE, PARQUET, WrongRows
from benchmarks.spark_stores import LATE, RARE_TOPIC, WHOLE
from tests.benchmarks.result_lines import figures
from tests.house import tree

LINES: Sequence[dict[str, Any]] = [
    {"type": "machine", "cores": 2},
    figures(CEILING, "all-noop", s=1.0, MB_per_s=1000.0, cpu_s=1.0),
    figures(OURS, "all-noop", s=1.1, MB_per_s=900.0, cpu_s=1.5),
    figures(OURS, "all-noop", 2, s=1.0, MB_per_s=1000.0, cpu_s=1.5),
    figures(PARQUET, "all-noop", s=1.0, MB_per_s=1900.0, cpu_s=1.0),
    figures(JVM, "all-noop", s=1.0, MB_per_s=3800.0, cpu_s=1.0),
    figures(OUTSIDE, "all-noop", s=1.0, MB_per_s=5000.0, cpu_s=1.0),
    figures(JVM, "count-rows", s=1.0, MB_per_s=6100.0, cpu_s=1.0),
    figures(JVM, WHOLE, s=1.0, MB_per_s=1000.0, cpu_s=1.0),
    figures(JVM, RARE_TOPIC, s=1.0, MB_per_s=19000.0, cpu_s=1.0),
    figures(JVM, LATE, s=1.0, MB_per_s=1000.0, cpu_s=1.0, MiB_read=1010.0, MiB_held=1000.0),
    figures(OURS, "audit", s=1.0, MB_per_s=3100.0, cpu_s=1.5),
    figures(OURS, "planning", s=2.5, partitions=160.0),
    figures(OURS, "stream at 50,000/s", newest_p50_ms=600.0, newest_p99_ms=1100.0),
    {"type": "run", "round": 1, "peer": OURS, "workload": "compare", "error": "no memory"},
]


def test_bars_are_ratios_of_medians_of_one_run() -> None:
    bars = {bar.name: bar for bar in spark_bars.bars(Results(LINES))}
    assert bars["all-noop against the ceiling of ready-made batches"].value == pytest.approx(95)
    assert bars["all-noop against Parquet"].value == pytest.approx(0.5)
    assert bars["all-noop against Parquet"].verdict is Verdict.NOT_MET
    assert bars["all-noop in the JVM against Parquet"].value == pytest.approx(2)
    assert "decoder alone 5,000 MB/s" in bars["all-noop in the JVM against Parquet"].detail
    assert bars["count-rows in the JVM"].verdict is Verdict.MET
    assert bars[f"{RARE_TOPIC} against the {WHOLE}"].verdict is Verdict.NOT_MET
    assert bars[f"read of the files that can hold the {LATE}"].verdict is Verdict.MET
    assert bars["audit, from the page cache"].verdict is Verdict.MET
    assert bars["planning, big store"].verdict is Verdict.NOT_MET
    assert bars["stream at 50,000/s: newest row, median"].verdict is Verdict.MET
    assert bars["stream at 50,000/s: newest row, p99"].verdict is Verdict.NOT_MET
    assert bars["compare, from the page cache"].verdict is Verdict.NOT_MEASURED


def test_tables_have_every_figure_every_bar_and_what_failed() -> None:
    answer = spark_bars.text(Results(LINES))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in answer.splitlines()]
    assert ["all-noop", OURS, "1.05", "950", "11%", "1.50", "95%", "50%"] in rows
    assert ["planning: partitions", OURS, "160.00", "0%"] in rows
    assert "FAILED rmqstore compare: no memory" in answer


def test_sizes_are_read_and_what_is_none_is_refused() -> None:
    assert [spark_data.size_of(text) for text in ("7", "2k", "512m", "20G")] == [
        7, 2 << 10, 512 << 20, 20 << 30,
    ]  # fmt: skip
    with pytest.raises(ValueError, match="512m"):
        spark_data.size_of("lots")


def test_a_store_has_the_rows_and_bytes_it_was_asked_for(tmp_path: Path) -> None:
    count = spark_data.write_store(tmp_path / "store", 1 << 20, tags=spark_data.TAGS, has_rare=True)
    assert spark_data.log_bytes(tmp_path / "store") == count * spark_data.RECORD
    with rmqstore.open(tmp_path / "store", read_only=True) as store:
        bodies = {record.body for queue in store.queues() for record in queue}
        assert len(store.queue(spark_data.RARE, 0)) == -(-count // spark_data.RARE_SHARE)
    assert len(bodies) == count
    assert {len(body) for body in bodies} == {spark_data.BODY}


def test_a_feeder_puts_what_it_says(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-m", "benchmarks.spark_feeder", str(tmp_path / "store"), "2000", "0.1"],
        cwd=tree.ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(answer.stdout)["messages"] == 200
    with rmqstore.open(tmp_path / "store", read_only=True) as store:
        assert sum(len(queue) for queue in store.queues()) == 200


def test_ages_are_those_of_the_newest_and_oldest_row_of_each_batch() -> None:
    arrivals = [
        spark_live._Arrival(5, 5, newest_ms=1000, oldest_ms=800, at_ms=1300.0),
        spark_live._Arrival(5, 10, newest_ms=1400, oldest_ms=1000, at_ms=1800.0),
    ]
    ages = spark_live._ages(arrivals)
    assert (ages["newest_p99_ms"], ages["oldest_p99_ms"]) == (400.0, 800.0)
    assert ages["before_next_p50_ms"] == 800.0
    with pytest.raises(WrongRows, match="longer"):
        spark_live._ages(arrivals[:1])
