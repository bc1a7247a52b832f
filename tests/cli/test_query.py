"""`get`, `tail` and `grep`."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from tests.cli.conftest import Run
from tests.golden import GoldenCase, every_case
from tests.support.native_store import set_clock

Spawn = Callable[..., subprocess.Popen[bytes]]
GoldenCopy = Callable[[str, str], GoldenCase]


def test_get_by_offset_id_and_place_gives_the_same_message(small: Path, run: Run) -> None:
    (by_offset,) = run("get", small, "orders", 3, "-q", 1, "--json").json
    (by_id,) = run("get", small, "--id", by_offset["msgId"], "--json").json
    (by_place,) = run("get", small, "--at", by_offset["phyOffset"], "--json").json
    assert by_offset["body"] == "body 7"
    assert by_id | {"consumeQueues": []} == by_place | {"consumeQueues": []}
    assert by_id["phyOffset"] == by_offset["phyOffset"]


def test_get_with_a_count_goes_on(small: Path, run: Run) -> None:
    assert [
        line["queueOffset"] for line in run("get", small, "orders", 8, "-n", 5, "--json").json
    ] == [
        8,
        9,
    ]


def test_get_body_prints_the_bytes_alone(small: Path, run: Run) -> None:
    assert run("get", small, "orders", 0, "--body").out == "body 0"


@pytest.mark.parametrize("arguments", [("orders", 10), ("orders", 0, "-q", 7), ("other", 0)])
def test_get_of_what_is_not_there_exits_with_1(
    small: Path, run: Run, arguments: tuple[object, ...]
) -> None:
    answer = run("get", small, *arguments)
    assert (answer.code, answer.out) == (1, "")
    assert answer.err.startswith("rmqstore: ")


@pytest.mark.parametrize(
    "arguments", [(), ("orders",), ("orders", 0, "--at", 0), ("--id", "0A"), ("orders", -1)]
)
def test_get_with_wrong_arguments_exits_with_2(
    small: Path, run: Run, arguments: tuple[object, ...]
) -> None:
    assert run("get", small, *arguments).code == 2


def test_tail_prints_the_last_of_each_queue(small: Path, run: Run) -> None:
    answer = run("tail", small, "orders", "-n", 2, "--json")
    assert [line["body"] for line in answer.json] == ["body 16", "body 18", "body 17", "body 19"]


def test_tail_of_one_queue_leaves_the_others_out(small: Path, run: Run) -> None:
    answer = run("tail", small, "orders", "-n", 1, "-q", 1, "--json")
    assert [line["body"] for line in answer.json] == ["body 19"]


@every_case("keys-index")
def test_grep_by_key_finds_what_the_manifest_has(
    release: str, case_name: str, golden_case: GoldenCopy, run: Run
) -> None:
    case = golden_case(release, case_name)
    wanted: dict[tuple[str, str], int] = {}
    for line in case.manifest:
        for key in set((line["keys"] or "").split()):
            wanted[line["topic"], key] = wanted.get((line["topic"], key), 0) + 1
    for (topic, key), count in sorted(wanted.items())[:8]:
        answer = run("grep", case.root, "-t", topic, "-k", key, "-c")
        assert (answer.code, answer.out) == (0, f"{count}\n")
        scanned = run("grep", case.root, "-k", key, "--json").json
        assert sum(line["topic"] == topic for line in scanned) == count


def test_grep_by_tag_and_queue_reads_the_queue(small: Path, run: Run) -> None:
    answer = run("grep", small, "-t", "orders", "-g", "us", "-q", 0, "--json")
    assert [line["body"] for line in answer.json] == ["body 0", "body 6", "body 12", "body 18"]


def test_grep_by_time_takes_the_first_and_leaves_the_last(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "clock.store"
    with rmqstore.open(path) as store:
        for number in range(5):
            set_clock(store, 1_700_000_000_000 + number * 1000)
            store.put("t", b"%d" % number)
    for topic in (("-t", "t"), ()):
        answer = run(
            "grep",
            path,
            *topic,
            "--since",
            "2023-11-14T22:13:21Z",
            "--until",
            1_700_000_003_000,
            "--json",
        )
        assert [line["body"] for line in answer.json] == ["1", "2"]


def test_grep_that_finds_nothing_exits_with_1(small: Path, run: Run) -> None:
    assert run("grep", small, "-k", "no such key").code == 1
    assert run("grep", small, "-k", "no such key", "-c").out == "0\n"


def test_grep_with_no_time_exits_with_2(small: Path, run: Run) -> None:
    assert run("grep", small, "--since", "yesterday").code == 2


def test_tail_follow_prints_what_comes_and_ends_quietly_when_interrupted(
    small: Path, spawn: Spawn
) -> None:
    with spawn("tail", "-f", small, "orders", "-n", 1, "-q", 0) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"body 18" in process.stdout.readline()
        with rmqstore.open(small) as store:
            store.put("orders", b"fresh")
        assert b"fresh" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read() == b""


def test_a_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path, spawn: Spawn) -> None:
    path = tmp_path / "large.store"
    with rmqstore.open(path) as store:
        store.put_many([b"x" * 1000] * 5000, topic="t")
    with spawn("dump", "--bodies", path) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(timeout=30) == 141
        assert process.stderr.read() == b""


def test_without_typer_one_line_says_what_to_install(spawn: Spawn) -> None:
    code = "import sys; sys.modules['typer'] = None; from rmqstore.cli.main import main; main()"
    with spawn("ls", code=("-c", code)) as process:
        out, err = process.communicate(timeout=30)
    assert process.returncode == 2
    assert out == b""
    assert err == b"rmqstore: the command line needs typer; pip install 'rmqstore[cli]'\n"
