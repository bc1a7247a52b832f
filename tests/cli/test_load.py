"""`import`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import rmqstore
from tests.cli.conftest import Run

ROWS = [
    {
        "topic": "a",
        "id": 17,
        "kind": "x",
        "at": "2024-05-31T17:00:00Z",
        "shard": 2,
        "text": "first",
    },
    {"topic": "b", "id": "k 1", "kind": None, "at": 1717174800001, "shard": "2", "text": "größe"},
    {"id": "", "at": "", "shard": 0, "text": {"deep": [1]}},
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.ndjson"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_lines_become_bodies_in_turn_over_the_queues(tmp_path: Path, run: Run) -> None:
    answer = run("import", tmp_path / "s", "-", "-t", "log", "--queues", 2, stdin=b"a\r\nb\n\nc")
    assert answer.code == 0
    with rmqstore.open(tmp_path / "s", read_only=True) as store:
        bodies = {queue.number: [each.body for each in queue] for queue in store.queues("log")}
    assert bodies == {0: [b"a"], 1: [b"b", b"c"]}


def test_fields_of_objects_become_the_message(tmp_path: Path, rows: Path, run: Run) -> None:
    answer = run(
        "import", tmp_path / "s", rows, "--json", "-t", "rest", "--topic-field", "topic",
        "--key-field", "id", "--tag-field", "kind", "--queue-field", "shard",
        "--time-field", "at", "--body-field", "text",
    )  # fmt: skip

    assert answer.code == 0
    assert answer.json[0]["messages"] == 3

    with rmqstore.open(tmp_path / "s", read_only=True) as store:
        first = store.get("a", queue=2, offset=0)
        second = store.get("b", queue=2, offset=0)
        third = store.get("rest", queue=0, offset=0)
        assert store.find("a", "17")[0].body == b"first"

    assert (first.tags, first.born_timestamp) == ("x", 1717174800000)
    assert (second.keys, second.body, second.born_timestamp) == (
        ["k_1"],
        "größe".encode(),
        1717174800001,
    )
    assert (third.keys, third.tags, third.body) == ([], None, b'{"deep": [1]}')


def test_messages_of_one_key_stay_in_one_queue(tmp_path: Path, run: Run) -> None:
    lines = "".join(json.dumps({"k": f"k{number % 7}", "n": number}) + "\n" for number in range(70))

    run(
        "import",
        tmp_path / "s",
        "-",
        "-t",
        "t",
        "--key-field",
        "k",
        "--queues",
        4,
        stdin=lines.encode(),
    )

    homes: dict[str, set[int]] = {}
    with rmqstore.open(tmp_path / "s", read_only=True) as store:
        for queue in store.queues("t"):
            for record in queue:
                homes.setdefault(record.keys[0], set()).add(queue.number)

    assert len(homes) == 7
    assert all(len(queues) == 1 for queues in homes.values())


@pytest.mark.parametrize(
    ("bad", "text"),
    [("no json", "is not JSON"), ("[1]", "give a JSON object"), ('{"at": "x"}', "'at'")],
)
def test_a_bad_line_is_named_and_those_before_it_are_stored(
    tmp_path: Path, run: Run, bad: str, text: str
) -> None:
    source = tmp_path / "in.ndjson"
    source.write_text('{"at": 1}\n{"at": 2}\n' + bad + '\n{"at": 3}\n')
    answer = run("import", tmp_path / "s", source, "-t", "t", "--time-field", "at")
    assert answer.code == 4
    assert f"{source}, line 3: " in answer.err
    assert text in answer.err
    with rmqstore.open(tmp_path / "s", read_only=True) as store:
        assert store.queue("t").end == 2


def test_a_message_over_the_limit_is_named_and_the_store_stays_usable(
    tmp_path: Path, run: Run
) -> None:
    answer = run("import", tmp_path / "s", "-", "-t", "t", stdin=b"ok\n" + b"x" * (5 << 20))
    assert answer.code == 4
    assert "4194304" in answer.err
    assert run("import", tmp_path / "s", "-", "-t", "t", stdin=b"ok\n").code == 0


def test_import_without_a_topic_exits_with_2(tmp_path: Path, run: Run) -> None:
    assert run("import", tmp_path / "s", "-", stdin=b"x").code == 2
    assert not (tmp_path / "s").exists()


def test_a_missing_file_exits_with_2(tmp_path: Path, run: Run) -> None:
    answer = run("import", tmp_path / "s", tmp_path / "none", "-t", "t")
    assert answer.code == 2
    assert str(tmp_path / "none") in answer.err


def test_import_into_a_store_in_use_exits_with_3(small: Path, run: Run) -> None:
    with rmqstore.open(small):
        answer = run("import", small, "-", "-t", "t", stdin=b"x")
    assert answer.code == 3
    assert "open in this process already" in answer.err
