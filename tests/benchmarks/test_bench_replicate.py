"""The benchmark of replication: names that agree, figures that mean what they say; never how
fast."""

from __future__ import annotations

import io
import json
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from benchmarks import limits, replica_bars, replica_java
from benchmarks.bars import Verdict
from benchmarks.lines import OURS, Run
from benchmarks.replica_pair import CHUNK, JAVA, WrongLog, compare_logs
from benchmarks.replica_side import Relay, Side, SideFailed, rmqstore_side
from benchmarks.results import Results
from benchmarks.spark_data import RECORD, write_store
from tests.benchmarks.result_lines import figures, limit

LINES: Sequence[dict[str, Any]] = [
    {"type": "machine", "cores": 2},
    {"type": "skipped", "peer": "lmdb", "reason": "is not asked"},
    limit("loopback", "mapped", CHUNK, CHUNK / 1.0, CHUNK / 3.0, CHUNK / 2.0),
    limit("loopback", "zeroed", CHUNK, CHUNK / 4.0),
    limit("loopback", "nowhere", CHUNK, CHUNK / 9.0),
    limit("round trip", "scheduled", 1024, 13_000.0, p50_us=13.0, p99_us=15.0, max_us=90.0),
    limit("round trip", "two cores", 1024, 50_000.0, p50_us=50.0, p99_us=90.0, max_us=99.0),
    figures(OURS, "catch-up, autoswitch", s=1.0, MB_per_s=3000.0),
    figures(OURS, "catch-up, autoswitch", 2, s=1.0, MB_per_s=3200.0),
    figures(OURS, "catch-up unflushed, autoswitch", s=0.5, MB_per_s=4000.0),
    figures(JAVA, "catch-up, autoswitch", s=9.0, MB_per_s=310.0),
    figures(OURS, "quorum, classic", one_p50_us=39.0, apart_p50_us=75.0, threads_msgs_per_s=1e5),
    figures(JAVA, "quorum, classic", one_p50_us=30.0, apart_p50_us=80.0, threads_msgs_per_s=4e4),
    figures(OURS, "quorum, autoswitch", tasks_msgs_per_s=2.4e5),
    figures(JAVA, "quorum, autoswitch", threads_msgs_per_s=4e4, tasks_msgs_per_s=8e4),
    figures(OURS, "reconnect, classic", cut_ms=12.0, start_ms=60.0),
    figures(OURS, "0 slaves", paced_p50_us=2.0, burst_p50_us=1.0, idle_KiB=100.0),
    figures(OURS, "8 slaves", paced_p50_us=2.2, burst_p50_us=2.0, idle_KiB=900.0),
    {"type": "run", "round": 1, "peer": OURS, "workload": "1 slaves", "error": "no memory"},
]


def test_bars_are_ratios_of_medians_of_one_run() -> None:
    bars = {bar.name: bar for bar in replica_bars.bars(Results(LINES))}

    assert bars["catch-up, autoswitch: against a socket, mapped"].value == pytest.approx(155)
    assert bars["catch-up, autoswitch: against a socket, zeroed"].value == pytest.approx(77.5)
    assert bars["catch-up unflushed, autoswitch: against a socket, zeroed"].value == 100
    assert bars["catch-up, autoswitch: against Java"].value == pytest.approx(10)
    assert bars["catch-up, classic: against Java"].verdict is Verdict.NOT_MEASURED

    one = "quorum, classic: one writer"
    assert bars[f"{one}, scheduled, p50 against a round trip"].value == pytest.approx(3)
    assert bars[f"{one}, scheduled, p50 against a round trip"].verdict is Verdict.NOT_MET
    assert bars[f"{one}, two cores, p50 against a round trip"].value == pytest.approx(1.5)
    assert bars[f"{one}, two cores, p50 against Java"].verdict is Verdict.MET

    many = bars["quorum, classic: 32 threads against Java's 32 threads"]
    assert (many.value, many.verdict) == (pytest.approx(2.5), Verdict.MET)
    tasks = "quorum, autoswitch: 32 tasks against Java's 32"
    assert bars[f"{tasks} threads"].verdict is Verdict.MET
    assert bars[f"{tasks} tasks"].value == pytest.approx(3)

    assert bars["reconnect, classic: first byte after connection lost"].verdict is Verdict.MET
    assert bars["reconnect, classic: first byte after slave started"].verdict is Verdict.NOT_MET

    assert bars["put with 8 slaves against none: paced, p50"].verdict is Verdict.MET
    assert bars["put with 8 slaves against none: burst, p50"].verdict is Verdict.NOT_MET


def test_tables_have_every_figure_every_bar_and_what_failed() -> None:
    reply = replica_bars.text(Results(LINES))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in reply.splitlines()]
    assert ["catch-up, autoswitch", OURS, "MB_per_s", "3,100.00", "6%"] in rows
    assert ["8", "idle", "100"] in rows
    assert ["round trip", "two cores", "1,024", "50,000", "0%", "20", "50.0", "90.0"] in rows
    mapped = ["loopback", "mapped", "32,768", "16,384", "133%", "2,000", "", ""]
    assert mapped in rows
    assert "left out: lmdb: is not asked" in reply
    assert "FAILED rmqstore 1 slaves: no memory" in reply


def test_every_round_measures_all_and_begins_with_another(tmp_path: Path) -> None:
    out = io.StringIO()
    run = Run(tmp_path, 3, out, lambda text: None)

    def measure(value: float) -> dict[str, float]:
        if value == 2.0:
            raise ValueError(f"nothing in {tmp_path}")
        return {"s": value}

    run.take_turns([run.job(peer, "w", measure, value) for peer, value in (("a", 1.0), ("b", 2.0))])
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    order = [(1, "b"), (1, "a"), (2, "a"), (2, "b"), (3, "b"), (3, "a")]
    assert [(line["round"], line["peer"]) for line in lines] == order
    assert [line["figures"]["s"] for line in lines if line["peer"] == "a"] == [1.0] * 3
    assert {line.get("error") for line in lines} == {None, "ValueError: nothing in DIR"}


def test_logs_that_differ_in_one_byte_are_found_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_store(tmp_path / name, 64 << 10)
        with rmqstore.open(tmp_path / name, read_only=True) as store:
            end = store.end_offset
    one, other = tmp_path / "a" / "commitlog" / f"{0:020}", tmp_path / "b" / "commitlog"
    with pytest.raises(WrongLog, match="differs"):  # their timestamps
        compare_logs(tmp_path / "a", tmp_path / "b", end)
    (other / one.name).write_bytes(one.read_bytes()[:end] + b"behind the end")
    compare_logs(tmp_path / "a", tmp_path / "b", end)
    (other / one.name).unlink()
    with pytest.raises(WrongLog, match="no log file"):
        compare_logs(tmp_path / "a", tmp_path / "b", end)


def side_of(program: str) -> Callable[[], Side]:
    return lambda: Side([sys.executable, "-c", program], {})


def test_a_side_that_fails_says_why() -> None:
    with pytest.raises(SideFailed, match="no such thing"):
        side_of("import sys; sys.exit('no such thing')")()
    answer = "print('{%s}', flush=True); input();"
    with side_of(answer % "" + answer % '"error": "no room"')() as side:
        assert side.private_KiB() > 0
        with pytest.raises(SideFailed, match="no room"):
            side.ask("put", 1)
        with pytest.raises(SideFailed, match="ended"):
            side.ask("put", 1)


def test_a_relay_passes_holds_and_cuts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with closing(Relay(f"127.0.0.1:{port}")) as relay:
            address = ("127.0.0.1", int(relay.address.rpartition(":")[2]))
            with socket.create_connection(address, 10) as slave, listener.accept()[0] as master:
                master.settimeout(10)
                slave.sendall(b"report")
                assert master.recv(6) == b"report"
                relay.hold()
                master.sendall(b"held")
                relay.cut()
                assert slave.recv(4) == b""
            with socket.create_connection(address, 10) as slave, listener.accept()[0] as master:
                master.sendall(b"flows")
                assert slave.recv(5) == b"flows"


def test_the_limits_of_a_loopback_connection_are_measured(tmp_path: Path) -> None:
    lines = limits.run("loopback", "stream", tmp_path, 1, 2, CHUNK)
    assert [line["variant"] for line in lines] == ["mapped", "zeroed", "nowhere"]
    assert all(line["ns"][0] > 0 for line in lines)
    trips = limits.run("loopback", "ping", 1, 20, 1024)
    assert {line["variant"] for line in trips} <= {"scheduled", "one core", "two cores"}
    assert all(0 < line["p50_us"] <= line["p99_us"] <= line["max_us"] for line in trips)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("protocol", ["autoswitch", "classic"])
def test_a_pair_puts_follows_and_joins_again(tmp_path: Path, protocol: str) -> None:
    roots = tmp_path / "master", tmp_path / "slave"
    with (
        rmqstore_side("master", protocol, roots[0]) as master,
        rmqstore_side("slave", protocol, roots[1], master.address) as slave,
    ):
        assert master.ask("feed", 100, 1024)["end"] == 100 * RECORD
        master.ask("sync")
        for way in ("put", "tasks", "handles"):
            words = (way, 2, 20, 4, 1024)
            reply = master.ask(*words)
            assert 0 < reply["p50_us"] <= reply["p99_us"] <= reply["max_us"]
        slave.ask("leave")
        slave.ask("arm")
        reply = master.ask("burst", 40, 1024)
        assert reply["end"] == (100 + 3 * 24 + 40) * RECORD
        began = slave.ask("join")["began_ns"]
        seen = slave.ask("follow", reply["end"])
        assert began < seen["first_ns"] <= seen["end_ns"]
        assert master.ask("paced", 10, 1000, 1024)["messages"] == 10
        for side in (slave, master):
            side.quit()
    compare_logs(*roots, int(reply["end"]))


def test_what_the_java_pair_lacks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    lacking = replica_java.missing()
    assert lacking is not None
    assert all(tool in lacking for tool in ("javac", "mvn"))
