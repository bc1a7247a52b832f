"""The benchmark suite: names that agree, figures that mean what they say; never how fast."""

from __future__ import annotations

import io
import json
import re
import time
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bars, java, limits, page, peers, report, run
from benchmarks.bars import Bar, Verdict
from benchmarks.peers import Figures, Job, WrongAnswer, driver
from benchmarks.results import Results
from benchmarks.workloads import BODIES, BY_NAME, QUEUES, STORES, WORKLOADS, bodies, body_at
from rmqstore import Store
from tests.benchmarks.result_lines import figures, limit

OUTSIDE = re.compile(r"""(?:src|href)\s*=|url\(|@import""")


LINES: Sequence[dict[str, Any]] = [
    {"type": "machine", "cpu": "a <fast> one", "cores": 2},
    {"type": "skipped", "peer": "lmdb", "reason": "pip install lmdb"},
    limit("append", "memcpy+crc", 1024, 50.0, 52.0, 48.0),
    limit("append", "record+unit", 1024, 60.0),
    limit("append", "append+unit", 1024, 100.0),
    limit("python", "put 1024", 0, 52.0),
    limit("python", "result", 0, 50.0),
    limit("python", "loop", 0, 12.0),
    limit("durable", "written before", 1131, 82_000.0, p50_us=80.0, p99_us=90.0, max_us=99.0),
    limit("scan", "crc", 1131, 50.0),
    figures("rmqstore", "put-1k", msgs_per_s=2.2e6, msgs_per_s_dispatched=2e6, p999_us=9.0),
    figures("rmqstore", "put-1k", 2, msgs_per_s=2.2e6, msgs_per_s_dispatched=2.4e6, p999_us=9.0),
    figures("java", "put-1k", msgs_per_s_dispatched=1.1e6, p999_us=90.0),
    figures("rmqstore", "put-durable-1", msgs_per_s=10_000.0, p50_us=120.0, p99_us=1.0),
    figures("rmqstore", "recover-4g-crash", ms=200.0, MB_per_s=20_000.0),
    figures("java", "recover-4g-crash", ms=1000.0, MB_per_s=4_000.0),
    {"type": "run", "round": 1, "peer": "sqlite3", "workload": "put-1k", "error": "disk I/O error"},
]


def bar_of(lines: Sequence[dict[str, Any]], name: str) -> Bar:
    return next(bar for bar in bars.bars(Results(lines)) if bar.name == name)


def test_every_peer_knows_only_workloads_of_the_table() -> None:
    assert len(BY_NAME) == len(WORKLOADS)
    assert driver.SUPPORTED <= BY_NAME.keys()
    for name in peers.names():
        assert peers.peer(name).NAME == name
        assert any(peers.peer(name).supports(workload) for workload in WORKLOADS)
    assert all(peers.peer("rmqstore").supports(workload) for workload in WORKLOADS)
    assert {each.store for each in WORKLOADS if each.store} == STORES.keys()


def test_bodies_differ_and_tell_their_place() -> None:
    assert len(set(bodies(100))) == BODIES
    assert all(len(body) == 1024 for body in bodies(1024))
    assert BODIES % QUEUES == 0
    assert body_at(1024, queue=3, offset=BODIES) == bodies(1024)[3]


@pytest.mark.parametrize("name", ["plain file", "sqlite3", "lmdb", "rocksdict"])
@pytest.mark.parametrize("workload", ["put-100", "put-many-100x100", "put-durable-1"])
def test_a_peer_answers_with_figures_of_the_common_names(
    tmp_path: Path, name: str, workload: str
) -> None:
    peer = peers.peer(name)
    if lacking := peer.missing():
        pytest.skip(lacking)
    answer = peer.run(Job(BY_NAME[workload], tmp_path, 40 if "durable" in workload else 1000))
    assert answer["msgs_per_s"] > 0
    assert 0 < answer["p50_us"] <= answer["p99_us"] <= answer["p999_us"] <= answer["max_us"]


def test_a_peer_that_loses_a_body_is_found_out(tmp_path: Path) -> None:
    class Forgetful:
        def __init__(self, directory: Path, durable: bool) -> None:
            self.kept: list[bytes] = []

        def append(self, body: bytes) -> None:
            if len(self.kept) != 500:
                self.kept.append(body)

        def append_many(self, bodies: Sequence[bytes]) -> None:
            self.kept.extend(bodies)

        def flush(self) -> None: ...
        def close(self) -> None: ...
        def read(self) -> Iterator[bytes]:
            yield from self.kept

    with pytest.raises(WrongAnswer, match="500"):
        driver.run(Job(BY_NAME["put-100"], tmp_path, 1000), Forgetful)


@pytest.mark.parametrize(
    "workload",
    [
        "put-1k",
        "put-1k-at-150k",
        "put-threads-2",
        "put-many-100x1k",
        "put-durable-8",
        "put-durable-32-handles",
        "roll-over",
        "import-time",
    ],
)
def test_this_store_does_a_workload_that_writes(tmp_path: Path, workload: str) -> None:
    count = {"import-time": 1, "roll-over": 4000}.get(workload, 2000)
    answer: Figures = peers.peer("rmqstore").run(Job(BY_NAME[workload], tmp_path, count))
    assert answer["ms" if workload == "import-time" else "msgs_per_s"] > 0


def test_a_ratio_is_of_medians_over_the_rounds() -> None:
    bar = bar_of(LINES, "put-1k against java")
    assert bar.value == pytest.approx(2.0)
    assert bar.verdict is Verdict.NOT_MET
    assert bar.wanted == "≥ 10 x"


def test_bars_compare_with_the_java_store_of_a_broker_where_it_was_measured() -> None:
    broker = figures("java-broker", "put-1k", msgs_per_s_dispatched=0.25e6, p999_us=6.0)
    lines = [*LINES, broker]
    assert bar_of(lines, "put-1k against java-broker").verdict is Verdict.MET
    assert bar_of(lines, "put-1k against java").value == pytest.approx(2.0)
    assert bar_of(lines, "p99.9 of put-1k against java-broker").verdict is Verdict.NOT_MET
    assert bar_of(lines, "recover-4g-crash against java").verdict is Verdict.MET


def test_a_run_that_did_not_keep_to_its_rate_says_so() -> None:
    name = "put-1k-at-150k"
    lines = [
        figures("rmqstore", name, msgs_per_s=149_990.0, p999_us=19.0),
        figures("java-broker", name, msgs_per_s=90_000.0, p999_us=2e6),
        figures("java-broker", name, 2, msgs_per_s=149_000.0, p999_us=2e6),
    ]
    bar = bar_of(lines, f"p99.9 of {name} against java-broker")
    assert bar.verdict is Verdict.MET
    assert bar.detail == "19.0 µs; Java 2000000.0 µs (at 119,500/s, rate not held)"
    assert bar_of(lines, f"p99.9 of {name}").detail == ""
    answer = page.text(Results(lines))
    assert f"{name}, rmqstore: 149,990 of 150,000/s reached, held" in answer
    assert f"{name}, java-broker: 119,500 of 150,000/s reached, rate not held in 1 of 2" in answer


def test_a_put_at_a_fixed_rate_counts_from_when_it_was_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = Store.put, 0

    def slow_once(store: Store, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1500:  # the first thousand warms up
            time.sleep(0.05)
        return real(store, *arguments, **options)

    monkeypatch.setattr(Store, "put", slow_once)
    answer = peers.peer("rmqstore").run(Job(BY_NAME["put-100-at-150k"], tmp_path, 1000))
    # The calls behind the slow one were late as well, not it alone.
    assert answer["p99_us"] > 1000


def test_the_report_says_how_long_a_page_of_memory_took() -> None:
    lines = [LINES[-2] | {"page_ns": ns} for ns in (250, 9000, 300)]
    assert "median 300, at most 9000 ns" in page.text(Results(lines))
    assert "page of memory" not in page.text(Results(LINES))


def test_bars_are_computed_from_the_limits_of_the_same_run() -> None:
    values = {bar.name: bar for bar in bars.bars(Results(LINES))}
    assert values["C append of 1 KiB with unit against memcpy + CRC"].value == pytest.approx(2.0)
    assert values["p50 of one durable writer against pwrite + fdatasync"].value == 1.5
    # 52 + (50 - 12) + 60 ns, at 2.2 million a second.
    assert values["put-1k against the floor of its call"].value == pytest.approx(33.0)
    assert values["recover-4g-crash against java"].verdict is Verdict.MET
    assert values["recover-4g-crash against a scan with CRC"].verdict is Verdict.EXCELLENT
    assert values["import of rmqstore"].verdict is Verdict.NOT_MEASURED


def test_without_a_single_line_every_bar_is_not_measured() -> None:
    assert {bar.verdict for bar in bars.bars(Results([]))} == {Verdict.NOT_MEASURED}


class Checker(HTMLParser):
    """Every tag closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_whole_by_itself_and_names_what_failed(tmp_path: Path) -> None:
    source = tmp_path / "results.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in LINES), encoding="utf-8")
    out = tmp_path / "out"
    assert report.main(["--from", str(source), "--out", str(out)]) == 1  # sqlite3 had failed
    text = (out / "report.html").read_text(encoding="utf-8")
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    assert checker.seen.count("svg") >= 4
    assert not OUTSIDE.search(text)
    assert "sqlite3, put-1k: disk I/O error" in text
    assert "pip install lmdb" in text
    assert "a &lt;fast&gt; one" in text


def test_the_text_has_a_line_for_each_peer_and_each_bar() -> None:
    answer = page.text(Results(LINES))
    assert re.search(r"^put-1k +rmqstore +2,200,000 /s +18% +2.00", answer, re.MULTILINE)
    assert re.search(r"^put-1k +limit: floor of a call", answer, re.MULTILINE)
    assert re.search(r"^import of rmqstore .* not measured", answer, re.MULTILINE)


def test_a_run_writes_a_line_for_each_peer_and_cleans_up(tmp_path: Path) -> None:
    out = io.StringIO()
    plan = run.Plan(
        tmp_path / "data",
        rounds=2,
        quick=True,
        only=["put-many-100x100"],
        peers=["rmqstore", "plain file"],
    )

    run.measure(plan, out, lambda text: None)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]

    ran = [(line["round"], line["peer"]) for line in lines if line["type"] == "run"]
    assert ran == [
        *((1, "plain file"), (1, "rmqstore")),  # each round begins with another one
        *((2, "rmqstore"), (2, "plain file")),
    ]
    assert all("figures" in line for line in lines if line["type"] == "run")

    assert lines[0]["type"] == "machine"
    assert lines[0]["cores"] >= 1
    assert str(tmp_path) not in out.getvalue()
    assert list((tmp_path / "data").iterdir()) == []


def test_a_peer_that_fails_is_a_line_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str, job: Job) -> Figures:
        raise OSError(f"{tmp_path / 'data'} is full of {name}")

    monkeypatch.setattr(run, "_in_process", fail)
    out = io.StringIO()
    plan = run.Plan(tmp_path / "data", 1, True, ["put-1k"], ["rmqstore", "sqlite3"])
    run.measure(plan, out, lambda text: None)
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    answer = {line["peer"]: line["error"] for line in lines if line["type"] == "run"}
    assert answer["rmqstore"] == "OSError: DIR is full of rmqstore"
    assert answer.keys() == {"rmqstore", "sqlite3"}


def test_limits_are_compiled_with_the_flags_of_the_extension() -> None:
    flags = limits.release_flags()
    assert "-UNDEBUG" in flags
    assert "-std=c11" in flags


def test_the_append_in_c_stores_the_records_it_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What it stores does not depend on the optimiser, which takes two thirds of the build.
    flags = [*limits.release_flags(), "-O0", "-g0"]
    monkeypatch.setattr(limits, "release_flags", lambda: flags)
    lines = limits.run("append", tmp_path / "log", 2, 2, 100)
    assert [line["variant"] for line in lines] == [
        "memcpy+crc", "record+unit", "append", "append+unit", "append of 100",
    ]  # fmt: skip
    assert all(len(line["ns"]) == 2 and min(line["ns"]) > 0 for line in lines)
    assert {line["bytes_per_op"] for line in lines} == {207.0}


def test_java_is_skipped_with_a_reason_where_its_tools_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lacking = java.missing()
    assert lacking is not None
    assert "mvn on PATH" in lacking
