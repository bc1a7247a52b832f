"""Jobs that fail leave everything as it was: rows that are no messages, tasks, commits, kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark", reason="the writer is PySpark's: pip install rmqstore[spark]")

import pyarrow as pa

import rmqstore
from rmqstore._native import core
from rmqstore.check import verify
from rmqstore.errors import (
    ArgumentError,
    CorruptionError,
    DiskError,
    MessageRejected,
    NotWritable,
    StoreError,
    StoreLockedError,
)
from tests.spark.writing import (
    Row,
    batch_of,
    begin,
    check_holds,
    left_over,
    list_bodies,
    numbered,
    run_task,
    save,
    save_or_abort,
    snapshot,
)

# ---- rows that are no messages


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"topic": None}, "topic is null"),
        ({"topic": ""}, "topic of 0 bytes"),
        ({"topic": "a/b"}, "topic of 3 bytes"),
        ({"topic": "t" * 256}, "topic of 256 bytes"),
        ({"body": None}, "body is null"),
        ({"body": bytes(3000)}, "body has 3000 bytes, the limit is 2000"),
        ({"queueId": -1}, "queue -1 is negative"),
        ({"tags": "a\x02b"}, "property TAGS"),
        ({"keys": ["a b"]}, "key a b holds a space"),
        ({"keys": ["k" * 20000] * 2}, "properties take more than"),
        ({"properties": {"": "x"}}, "a name may not be empty"),
        ({"properties": {"a\x01": "x"}}, "a name may not be empty"),
        ({"properties": {"a": "x\x00"}}, "a value not 0"),
        ({"properties": {"a": "x" * 32765}}, "properties take"),
        ({"tags": "a", "properties": {"TAGS": "b"}}, "TAGS says something else"),
        ({"keys": ["a"], "properties": {"KEYS": "a b"}}, "KEYS says something else"),
    ],
)
def test_first_bad_row_is_named_and_nothing_is_stored(
    row: Row, complaint: str, tmp_path: Path
) -> None:
    plain = {"topic": "a", "body": b"x", "queueId": 0, "keys": ["k"], "tags": "", "properties": {}}
    rows = [plain] * 12
    bad = [*rows[:5], {**plain, **row}, *rows[5:]]
    writer = begin(tmp_path / "s", rows, maxMessageSize=2000)
    batches = iter([batch_of(rows), batch_of(bad)])
    with pytest.raises(MessageRejected, match=f"row 17 of partition 3: .*{complaint}"):
        run_task(writer, 3, batches)
    writer.abort([None])
    assert os.listdir(tmp_path) == []


def test_record_over_the_file_size_is_named(tmp_path: Path) -> None:
    rows = [{"topic": "a", "body": bytes(65536)}]
    with pytest.raises(MessageRejected, match=r"row 0 .* 65528 bytes"):
        save_or_abort(tmp_path / "s", rows)
    assert os.listdir(tmp_path) == []


# ---- failures


def test_job_without_rows(tmp_path: Path) -> None:
    save(tmp_path / "s", [*numbered(0, 1)][:0] or [], numbered(0, 4))
    before = list_bodies(tmp_path / "s")
    writer = begin(tmp_path / "s", numbered(0, 1))
    writer.commit([run_task(writer, 0, iter(()))])
    assert list_bodies(tmp_path / "s") == before
    writer = begin(tmp_path / "t", numbered(0, 1))
    writer.commit([])
    with rmqstore.open(tmp_path / "t") as store:
        assert store.queues() == []
        assert store.put("a", b"x").queue_offset == 0
    assert left_over(tmp_path / "s") == ["t"]


def test_aborted_job_leaves_nothing_whatever_its_tasks_still_do(tmp_path: Path) -> None:
    rows = numbered(0, 10)
    writer = begin(tmp_path / "s", rows)
    run_task(writer, 0, iter([batch_of(rows)]))

    def slow() -> Iterator[pa.RecordBatch]:
        yield batch_of(rows)
        writer.abort([None, None])
        yield batch_of(rows)

    # Its file is open already: what it writes goes nowhere.
    assert run_task(writer, 1, slow()).records == 20
    with pytest.raises(StoreError, match="the job was aborted"):
        run_task(writer, 2, iter([batch_of(rows)]))
    assert os.listdir(tmp_path) == []
    writer.abort([])


def test_task_that_fails_leaves_a_store_as_it_was(tmp_path: Path) -> None:
    save(tmp_path / "s", numbered(0, 100))
    before = snapshot(tmp_path / "s")

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch_of(numbered(100, 10))
        raise RuntimeError("the task's own")

    writer = begin(tmp_path / "s", numbered(0, 1))
    with pytest.raises(RuntimeError, match="own"):
        run_task(writer, 0, failing())
    writer.abort([None])
    assert snapshot(tmp_path / "s") == before
    assert left_over(tmp_path / "s") == []


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "fewer"])
def test_run_that_is_not_what_its_task_wrote_fails_the_commit(
    damage: str, exists: bool, tmp_path: Path
) -> None:
    rows = numbered(0, 400)
    target = tmp_path / "s"
    if exists:
        save(target, rows[:100])

    writer = begin(target, rows)
    runs = [
        run_task(writer, number, iter([batch_of(rows[100 * number : 100 * number + 100])]))
        for number in (1, 2, 3)
    ]

    bad = Path(runs[2].path)
    if damage == "flipped":
        data = bytearray(bad.read_bytes())
        data[5000] ^= 1
        bad.write_bytes(data)
    elif damage == "cut":
        os.truncate(bad, 5000)
    elif damage == "gone":
        bad.unlink()
    else:
        runs[2] = replace(runs[2], records=101)

    with pytest.raises((CorruptionError, DiskError), match="part-3-0"):
        writer.commit(list(runs))
    writer.abort([])

    if exists:
        check_holds(target, rows[:100])
    assert left_over(target) == []
    assert target.exists() == exists

    save(target, rows[100:] if exists else rows)
    check_holds(target, rows)


def test_store_that_another_holds_is_left_alone(tmp_path: Path) -> None:
    rows = numbered(0, 20)
    save(tmp_path / "s", rows)
    with rmqstore.open(tmp_path / "s") as held:
        with pytest.raises(StoreLockedError):
            save_or_abort(tmp_path / "s", numbered(20, 5))
        assert held.end_offset > 0
    check_holds(tmp_path / "s", rows)
    assert left_over(tmp_path / "s") == []


def test_target_that_appears_meanwhile_is_appended_to_or_left_alone(tmp_path: Path) -> None:
    rows = numbered(0, 20)
    writer = begin(tmp_path / "s", rows)
    run = run_task(writer, 0, iter([batch_of(rows[10:])]))
    save(tmp_path / "s", rows[:10])
    writer.commit([run])
    check_holds(tmp_path / "s", rows)
    writer = begin(tmp_path / "t", rows)
    run = run_task(writer, 0, iter([batch_of(rows)]))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes").write_text("mine")
    with pytest.raises(ArgumentError, match="not empty"):
        writer.commit([run])
    assert os.listdir(tmp_path / "t") == ["notes"]


class GivesOut:
    """Stands for place_records on a disk that gives out at the second piece."""

    def __init__(self) -> None:
        self.calls = 0
        self.place = core.place_records

    def __call__(self, *arguments: Any, **options: Any) -> tuple[int, int]:
        self.calls += 1
        if self.calls == 2:
            raise DiskError(28, "no space left on device")
        return self.place(*arguments, **options)


@pytest.mark.parametrize("truncates", [True, False])
def test_disk_that_gives_out_in_the_commit_leaves_the_store_as_it_was(
    truncates: bool, tmp_path: Path
) -> None:
    rows = numbered(0, 60)
    save(tmp_path / "s", rows)
    truncate_to = rmqstore.Store.truncate_to
    failures = [] if truncates else [NotWritable("the disk failed")]

    def truncate(store: rmqstore.Store, offset: int) -> None:
        if failures:
            raise failures.pop()
        truncate_to(store, offset)

    with (
        mock.patch.object(core, "place_records", GivesOut()),
        mock.patch.object(rmqstore.Store, "truncate_to", truncate),
        pytest.raises(DiskError, match="no space"),
    ):
        save_or_abort(tmp_path / "s", numbered(60, 10), numbered(70, 10))
    check_holds(tmp_path / "s", rows)
    assert left_over(tmp_path / "s") == []


def test_what_cannot_be_taken_back_is_told(tmp_path: Path) -> None:
    save(tmp_path / "s", numbered(0, 60))
    end = verify(tmp_path / "s").end
    stuck = mock.Mock(side_effect=NotWritable("the disk failed"))
    with (
        mock.patch.object(core, "place_records", GivesOut()),
        mock.patch.object(rmqstore.Store, "truncate_to", stuck),
        pytest.raises(DiskError, match="no space") as caught,
    ):
        save_or_abort(tmp_path / "s", numbered(60, 10), numbered(70, 10))
    assert f"physical offset {end} on are of this job" in "".join(caught.value.__notes__)


KILLED = """
import sys
from pathlib import Path
from tests.spark import writing as t
from rmqstore.spark.write import writer as w

target, first = Path(sys.argv[1]), int(sys.argv[2])
rows = t.numbered(first, 400)
place = w.core.place_records
calls = 0

def placing(*arguments, **options):
    global calls
    calls += 1
    if calls == 3:
        print("in the middle", flush=True)
        sys.stdin.read()
    return place(*arguments, **options)

w.core.place_records = placing
w._CHUNK_BYTES = 3000
t.save(target, rows[:200], rows[200:])
"""


@pytest.mark.parametrize("exists", [False, True])
def test_driver_killed_in_the_commit(exists: bool, tmp_path: Path) -> None:
    target = tmp_path / "s"
    rows = numbered(0, 420)
    first = 20 if exists else 0

    if exists:
        save(target, rows[:first])

    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(target), str(first)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "in the middle\n"
        os.kill(process.pid, signal.SIGKILL)

    (staging,) = left_over(target)
    assert staging.startswith(".s.rmqstore-")
    if not exists:
        assert not target.exists()
        return

    # A beginning of the job stays, whole records all of them; the store goes on.
    with rmqstore.open(target) as store:
        count = store.recovery.records
    assert first < len(list_bodies(target)) < 400
    assert count <= len(list_bodies(target))
    check_holds(target, rows[: len(list_bodies(target))])
