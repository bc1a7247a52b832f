"""`ls`, `info` and `dump`."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from tests.cli.conftest import Run
from tests.golden import GoldenCase, every_case

GoldenCopy = Callable[[str, str], GoldenCase]


@every_case("plain", "batch", "crash-torn", "deleted-head")
def test_ls_gives_the_bounds_the_java_store_gives(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    answer = run("ls", case.root, "--json")
    assert answer.code == 0
    found = {(line["topic"], line["queueId"]): (line["start"], line["end"]) for line in answer.json}
    for queue in case.expected_of("queue"):
        if queue["maxOffset"] > queue["minOffset"]:
            # The Java store only moves the lower bound when it next cleans up.
            bounds = queue["minOffset"] + queue["expiredEntries"], queue["maxOffset"]
            assert found[queue["topic"], queue["queueId"]] == bounds


def test_ls_of_a_topic_that_is_not_there_exits_with_1(small: Path, run: Run) -> None:
    answer = run("ls", small, "nothing")
    assert (answer.code, answer.lines) == (1, ["topic\tqueue\tstart\tend\tmessages"])


def test_piped_ls_prints_fields_between_tabs(small: Path, run: Run) -> None:
    assert run("ls", small).lines[1:] == ["orders\t0\t0\t10\t10", "orders\t1\t0\t10\t10"]


def test_info_tells_where_the_store_ends(small: Path, run: Run) -> None:
    with rmqstore.open(small, read_only=True) as store:
        end = store.end_offset
    (facts,) = run("info", small, "--json").json
    assert (facts["endOffset"], facts["queues"], facts["wasClosed"]) == (end, 2, True)


@pytest.mark.parametrize(
    ("name", "text"),
    [("none", "does not exist"), ("empty", "is not a store"), ("log", "is only a commit log")],
)
def test_what_is_no_store_is_named_on_one_line(
    tmp_path: Path, run: Run, name: str, text: str
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"{0:020}").touch()
    for command in ("ls", "info", "dump", "verify", "repair"):
        answer = run(command, tmp_path / name)
        assert answer.code == 3
        assert text in answer.err
        assert answer.err.count("\n") == 1


@every_case("plain", "compressed", "transactions", "ipv6")
def test_dump_prints_the_manifest(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    answer = run("dump", case.root, "--json")
    assert answer.code == 0
    assert len(answer.json) == len(case.manifest)
    for line, wanted in zip(answer.json, case.manifest, strict=True):
        assert {name: wanted.get(name) for name in line} == line


def test_dump_adds_bodies_when_asked(small: Path, run: Run) -> None:
    bodies = [line["body"] for line in run("dump", small, "--bodies").json]
    assert bodies == [f"body {number}" for number in range(20)]


def test_dump_to_parquet_holds_every_record(small: Path, tmp_path: Path, run: Run) -> None:
    files = pytest.importorskip("pyarrow.parquet", reason="the extra arrow is not installed")
    target = tmp_path / "small.parquet"
    answer = run("dump", small, "--parquet", target)
    assert (answer.code, answer.out) == (0, "")
    assert files.read_table(target).column("body").to_pylist()[3] == b"body 3"
    assert list(tmp_path.glob("*.unfinished")) == []


def test_log_elsewhere_is_named_with_its_option(tmp_path: Path, run: Run) -> None:
    elsewhere, log = tmp_path / "store", tmp_path / "log"
    with rmqstore.open(
        elsewhere, commit_log_file_size_bytes=1 << 16, commit_log_paths=(str(log),)
    ) as store:
        store.put("orders", b"x")
    (elsewhere / "config" / "rmqstore.properties").unlink()
    answer = run("ls", elsewhere)
    assert answer.code == 3
    assert "storePathCommitLog" in answer.err
    assert "--config" in answer.err
    broker = tmp_path / "broker.conf"
    broker.write_text(f"storePathCommitLog={log}\nmappedFileSizeCommitLog=65536\n")
    assert run("ls", elsewhere, "--config", broker).lines[1:] == ["orders\t0\t0\t1\t1"]


def test_info_shows_the_checkpoint(small: Path, run: Run) -> None:
    (facts,) = run("info", small, "--json").json
    data = struct.unpack(">6q", (small / "checkpoint").read_bytes()[:48])
    assert tuple(facts["checkpoint"].values())[:6] == data
    assert facts["checkpoint"]["flushedOffset"] == facts["endOffset"]
    assert f"physicMsgTimestamp {data[0]}" in run("info", small).out
    (small / "checkpoint").unlink()
    (facts,) = run("info", small, "--json").json
    assert facts["checkpoint"] is None


def harm(small: Path) -> int:
    """Turn bits in the body of one record, the tenth, and return where it begins."""
    with rmqstore.open(small, read_only=True) as store:
        at = store.get("orders", queue=1, offset=4).physical_offset
    log = small / "commitlog" / f"{0:020}"
    with log.open("r+b") as file:
        file.seek(at + 90)
        file.write(b"\xff")
    return at


def test_dump_goes_on_after_damage_when_asked(small: Path, run: Run) -> None:
    harm(small)
    answer = run("dump", small, "--on-corrupt", "skip")
    assert (answer.code, len(answer.lines)) == (1, 19)
    assert "skipped 1 corrupt place" in answer.err


def test_dump_to_parquet_goes_on_after_damage_when_asked(
    small: Path, tmp_path: Path, run: Run
) -> None:
    files = pytest.importorskip("pyarrow.parquet", reason="the extra arrow is not installed")
    harm(small)
    target = tmp_path / "small.parquet"
    assert run("dump", small, "--parquet", target).code != 0
    assert not target.exists()
    answer = run("dump", small, "--parquet", target, "--on-corrupt", "skip")
    assert answer.code == 1
    assert "skipped 1 corrupt place" in answer.err
    assert files.read_table(target).num_rows == 19


def test_dump_of_a_damaged_log_ends_at_the_damage(small: Path, run: Run) -> None:
    at = harm(small)
    answer = run("dump", small)
    assert (answer.code, len(answer.lines)) == (1, 9)
    assert str(at) in answer.err
    assert "rmqstore verify" in answer.err


def test_reading_leaves_no_trace(small: Path, run: Run) -> None:
    def state() -> dict[str, tuple[int, int]]:
        found = (entry.stat() for entry in sorted(small.rglob("*")))
        return {str(each.st_ino): (each.st_mtime_ns, each.st_size) for each in found}

    before = state()
    for command in ("ls", "info", "dump", "verify", "repair"):
        assert run(command, small).code == 0
    assert run("grep", small, "-k", "all", "-t", "orders").code == 0
    assert state() == before


def test_a_store_in_use_can_be_read_and_not_be_repaired(small: Path, run: Run) -> None:
    descriptor = os.open(small / "lock", os.O_RDWR)
    try:
        # As a Java broker does; locks of one process do not stop itself, those of a file do.
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _whole_lock())
        assert run("ls", small).code == 0
        assert run("verify", small).code == 0
        answer = run("repair", "--yes", "--rebuild", small)
        assert answer.code == 3
        assert "in use" in answer.err
    finally:
        os.close(descriptor)


def _whole_lock() -> bytes:
    import struct

    return struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)


def test_output_for_programs_is_one_object_a_line(small: Path, run: Run) -> None:
    for arguments in (("ls",), ("info",), ("dump",), ("verify",)):
        answer = run(*arguments, small, "--json")
        assert all(isinstance(json.loads(line), dict) for line in answer.lines)
        assert answer.lines
