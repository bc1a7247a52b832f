"""`rmqstore spark`: reports, exit codes, and errors of tasks told in one line."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="pipelines are Spark's: pip install rmqstore[spark]")

from rmqstore.cli import spark as commands
from rmqstore.spark.pipelines import Report
from tests.cli.conftest import Run
from tests.golden import GoldenCase
from tests.support.damage import DAMAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GoldenCopy = Callable[[str, str], GoldenCase]

# The commands run in the session that is there, and leave it as it is.
pytestmark = [
    pytest.mark.usefixtures("spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


def test_count_tells_the_number_of_messages(run: Run, small: Path) -> None:
    reply = run("spark", "count", small)
    assert reply.code == 0, reply.err
    assert reply.out == "20 messages in 20 records, 2.4 KiB\n"
    assert run("spark", "count", small, "--topic", "orders", "--json").json[-1]["messages"] == 20
    assert run("spark", "count", small, "--until", "1000", "--json").json[-1]["messages"] == 0


def test_statistics_have_a_line_for_each_queue_and_a_picture(
    run: Run, small: Path, tmp_path: Path
) -> None:
    picture = tmp_path / "picture.html"
    reply = run("spark", "statistics", small, "--plot", picture)
    assert reply.code == 0, reply.err
    assert [line.partition(":")[0] for line in reply.lines[:2]] == ["orders/0", "orders/1"]
    assert reply.lines[2].startswith("20 messages of 1 topics in 2 queues")
    assert "orders" in picture.read_text()
    queues = run("spark", "statistics", small, "--json").json[:-1]
    assert [queue["messages"] for queue in queues] == [10, 10]


def test_audit_exits_with_1_for_damage_and_names_its_place(
    run: Run, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    reply = run("spark", "audit", case.root)
    assert reply.code == 0, reply.err
    assert reply.lines[-1].startswith(f"sound: {len(case.manifest)} records")
    DAMAGES["body of a record in the middle"].do(case)
    reply = run("spark", "audit", case.root, "--json")
    assert reply.code == 1
    harmed = case.manifest[150]
    (damage,) = (line for line in reply.json if line["type"] == "damage")
    assert (damage["start"], damage["stop"]) == (
        harmed["phyOffset"],
        harmed["phyOffset"] + harmed["size"],
    )


def test_compare_exits_with_1_for_differences(run: Run, small: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(small, other)
    assert run("spark", "compare", small, other).code == 0
    path = other / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    reply = run("spark", "compare", small, other, "--by", "crc32")
    assert reply.code == 1
    assert reply.lines[0].startswith("damage 0 to ")


def test_rebuild_check_exits_with_1_when_a_queue_would_come_out_different(
    run: Run, golden_case: GoldenCopy
) -> None:
    case = golden_case("5.3.3", "plain")
    DAMAGES["queue flipped"].do(case)
    reply = run("spark", "rebuild-check", case.root, "--no-index")
    assert reply.code == 1
    assert reply.lines[0].startswith("damage queue ")
    assert "wrong: place " in reply.lines[0]


def test_export_writes_parquet_and_refuses_a_target_that_exists(
    run: Run, small: Path, tmp_path: Path, spark: SparkSession
) -> None:
    target = tmp_path / "exported"
    reply = run("spark", "export", small, target, "--columns", "body")
    assert reply.out == f"20 messages written to {target}\n"
    rows = spark.read.parquet(str(target)).collect()
    assert sorted(bytes(row.body) for row in rows) == sorted(
        f"body {number}".encode() for number in range(20)
    )
    again = run("spark", "export", small, target)
    assert again.code == 4
    assert len(again.err.splitlines()) == 1


@dataclass(frozen=True, slots=True)
class _Done(Report):
    is_sound: bool = True

    def lines(self) -> Iterator[str]:
        yield "done"

    def as_json(self) -> Iterator[dict[str, Any]]:
        yield {"type": "summary"}


class _Pipelines:
    """Takes down what the commands ask for instead of doing it."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answer = _Done()

    def __getattr__(self, name: str) -> Callable[..., Report]:
        def take_down(*places: Any, **settings: Any) -> Report:
            del settings["progress"]
            self.asked.append((name, places[1:], settings))
            return self.answer

        return take_down


@pytest.fixture
def pipelines(monkeypatch: pytest.MonkeyPatch) -> _Pipelines:
    made = _Pipelines()

    @contextmanager
    def running(master: str) -> Iterator[tuple[None, _Pipelines]]:
        yield None, made

    monkeypatch.setattr(commands, "_running", running)
    return made


@pytest.mark.parametrize(
    ("arguments", "name", "places", "settings"),
    [
        (
            "compact A B --form parquet --without-key drop --tombstones -t x -o upTo=max",
            "compact",
            ("A", "B"),
            {
                "form": "parquet",
                "without_key": "drop",
                "tombstones": True,
                "keep_timestamps": True,
                "topic": "x",
                "upTo": "max",
            },
        ),
        ("feed A B/ --topic x", "change_feed", ("A", "B/"), {"checkpoint": "B/_checkpoint"}),
        ("feed A B --checkpoint C", "change_feed", ("A", "B"), {"checkpoint": "C"}),
        (
            "transactions A --at 5000 --min-age 1.5",
            "transactions",
            ("A",),
            {"now_ms": 5000, "min_age_ms": 1500},
        ),
        (
            "export A B --since 1000 --until 2000 --mode overwrite --by-topic --columns a,b",
            "export",
            ("A", "B"),
            {
                "startingTimestamp": "1000",
                "endingTimestamp": "2000",
                "mode": "overwrite",
                "by_topic": True,
                "columns": ["a", "b"],
            },
        ),
        ("compare A B --up-to max --by blake2b", "compare", ("A", "B"), {"by": "blake2b"}),
    ],
)
def test_arguments_reach_their_pipeline(
    run: Run,
    pipelines: _Pipelines,
    arguments: str,
    name: str,
    places: tuple[str, ...],
    settings: dict[str, Any],
) -> None:
    reply = run("spark", *arguments.split())
    assert (reply.code, reply.out) == (0, "done\n"), reply.err
    ((asked, at, found),) = pipelines.asked
    assert (asked, at) == (name, places)
    assert found.items() >= settings.items()


def test_a_report_that_is_not_sound_exits_with_1(run: Run, pipelines: _Pipelines) -> None:
    pipelines.answer = _Done(is_sound=False)
    assert run("spark", "transactions", "A", "--json").code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["count", "PATH", "--option", "maxPartitionByte=1m"], 2, "maxPartitionBytes"),
        (["count", "PATH", "--option", "nothing"], 2, "NAME=VALUE"),
        (["count", "nowhere"], 3, "nowhere"),
        (["count", "PATH", "--topic", "oders"], 3, "orders"),
        (["export", "PATH", "TARGET", "--columns", "bodi"], 2, "body"),
        (["statistics", "PATH", "--plot", "store.svg"], 2, ".html"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_line(
    run: Run, small: Path, tmp_path: Path, arguments: list[str], code: int, text: str
) -> None:
    places = {"PATH": str(small), "TARGET": str(tmp_path / "target")}
    reply = run("spark", *(places.get(each, each) for each in arguments))
    assert reply.code == code, reply.err
    assert text in reply.err
    assert "Traceback" not in reply.err


def test_without_pyspark_the_extra_is_named(
    run: Run, small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    reply = run("spark", "count", small)
    assert reply.code == 2
    assert "rmqstore[spark]" in reply.err
