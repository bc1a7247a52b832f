"""A streaming query over a log that was cut or lost files: an error that says so, or the rest."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="streaming is Spark's: pip install rmqstore[spark]")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes

import rmqstore
from rmqstore import CorruptionError, Message, NotFoundError, OffsetOutOfRange
from rmqstore.epochs import EpochEntry, format_epochs
from tests.reference.checkpoint import Checkpoint
from tests.spark import streaming
from tests.spark.jvm_streaming import JvmQuery
from tests.spark.plan_reader import PlanReader, missing, plan_reader
from tests.spark.streaming import Query, ends_of_records, messages, numbers, open_store

MakeQuery = Callable[..., Query]


@pytest.fixture(scope="module")
def java() -> Iterator[PlanReader]:
    """Yield one process for all tests."""
    with plan_reader() as started:
        yield started


@pytest.fixture(
    params=[
        "python",
        pytest.param("jvm", marks=pytest.mark.skipif(missing() is not None, reason=str(missing()))),
    ]
)
def query_all(request: pytest.FixtureRequest) -> MakeQuery:
    """Return a function that makes a query over all that is written, for either reader."""
    if request.param == "python":
        return streaming.query_all
    java: PlanReader = request.getfixturevalue("java")

    def make(path: object, **options: object) -> Query:
        return JvmQuery(java, path, **{"startingOffsets": "earliest", "upTo": "max", **options})

    return make


# ---- logs that are cut ----


def _read_half(
    store: rmqstore.Store, path: Path, make: MakeQuery = streaming.query_all
) -> tuple[Query, int]:
    """Return a query that has read what the store holds, and where."""
    store.put_many(messages(100))
    query = make(path)
    assert len(query.rows()) == 100
    return query, store.end_offset


@pytest.mark.parametrize("restarts", [False, True])
def test_a_log_cut_below_what_was_read_is_an_error_naming_both_offsets(
    store: rmqstore.Store, path: Path, restarts: bool, query_all: MakeQuery
) -> None:
    query, end = _read_half(store, path, query_all)
    cut = sorted(ends_of_records(store))[60]
    store.truncate_to(cut)
    if restarts:
        query.restarted()
    with pytest.raises(OffsetOutOfRange, match=rf"offset {end}, but the log ends at {cut}\b"):
        query.batch()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("more", [0, 50])
def test_a_log_cut_and_written_anew_is_an_error_even_where_records_end_alike(
    store: rmqstore.Store, path: Path, restarts: bool, more: int
) -> None:
    store.put_many([Message("orders", b"%d:" % number) for number in range(100, 200)])
    query = streaming.query_all(path)
    assert len(query.rows()) == 100
    end = store.end_offset
    store.truncate_to(sorted(ends_of_records(store))[60])
    store.put_many([Message("orders", b"%d:" % number) for number in range(200, 240 + more)])
    assert end in ends_of_records(store)
    if restarts:
        query.restarted()
    with pytest.raises(OffsetOutOfRange, match=f"offset {end}, but below it lie other records"):
        query.batch()


def test_a_log_cut_behind_what_was_read_is_read_on(
    store: rmqstore.Store, path: Path, query_all: MakeQuery
) -> None:
    query, end = _read_half(store, path, query_all)
    store.put_many(messages(100, first=1000))
    assert query.plan(ReadMaxBytes(1000))
    query.read()
    query.commit()
    cut = query.places()[str(path)]
    assert cut > end
    store.truncate_to(cut)
    store.put_many(messages(50, first=2000))
    assert numbers(query.rows()) == list(range(2000, 2050))


def test_a_planned_batch_cut_off_before_it_is_read_is_an_error(
    store: rmqstore.Store, path: Path, query_all: MakeQuery
) -> None:
    query, end = _read_half(store, path, query_all)
    store.put_many(messages(20, first=100))
    assert query.plan()
    planned = store.end_offset
    store.truncate_to(end)
    with pytest.raises(OffsetOutOfRange, match=rf"offset {planned}, but the log ends at {end}\b"):
        query.restarted().read()


def test_a_log_cut_under_a_task_is_an_error(
    store: rmqstore.Store, path: Path, query_all: MakeQuery
) -> None:
    query, end = _read_half(store, path, query_all)
    store.put_many(messages(20, first=100))
    assert query.plan()
    partitions = query.planned()
    store.truncate_to(end)
    with pytest.raises(CorruptionError, match=rf"nothing was written at physical offset {end},"):
        list(map(query.task_rows, partitions))


def test_an_offset_amid_a_record_is_an_error(store: rmqstore.Store, path: Path) -> None:
    store.put_many(messages(100))
    at = sorted(ends_of_records(store))[50]
    query = streaming.query_all(path)
    for offset, wrong in ((at, False), (at + 4, True)):
        log = {str(path): {"physicalOffset": offset}}
        start = {"version": 1, "commitLog": log}
        if wrong:
            with pytest.raises(OffsetOutOfRange, match=f"offset {offset}, but below it lie"):
                query.reader.latestOffset(start, ReadAllAvailable())
        else:
            found = query.reader.latestOffset(start, ReadAllAvailable())
            assert found["commitLog"][str(path)]["physicalOffset"] == store.end_offset


def _elect(path: Path, *entries: tuple[int, int]) -> None:
    text = format_epochs([EpochEntry(*entry) for entry in entries])
    (path / "epochFileCheckpoint").write_text(text, encoding="ascii")


def test_a_new_epoch_behind_what_was_read_is_read(store: rmqstore.Store, path: Path) -> None:
    _elect(path, (3, 0))
    query, end = _read_half(store, path)
    assert json.loads(query.offsets[-1])["commitLog"][str(path)]["epoch"] == 3
    _elect(path, (3, 0), (4, end))
    store.put_many(messages(10, first=100))
    assert numbers(query.rows()) == list(range(100, 110))
    assert json.loads(query.offsets[-1])["commitLog"][str(path)]["epoch"] == 4


def test_a_new_epoch_below_what_was_read_is_an_error_naming_both_offsets(
    store: rmqstore.Store, path: Path
) -> None:
    _elect(path, (3, 0))
    query, end = _read_half(store, path)
    cut = sorted(ends_of_records(store))[60]
    _elect(path, (3, 0), (4, cut))
    with pytest.raises(OffsetOutOfRange, match=f"offset {end}, but an epoch .* begins at {cut}"):
        query.batch()


def test_a_confirm_offset_that_goes_back_is_no_loss(path: Path) -> None:
    with open_store(path) as store:
        store.put_many(messages(100))
        borders = [record.physical_offset for record in store.scan_log()]
    (path / "abort").write_text("1", encoding="ascii")
    _elect(path, (1, 0))

    def confirm(offset: int) -> None:
        data = Checkpoint(confirm_offset=offset).encode()
        (path / "checkpoint").write_bytes(data.ljust(4096, b"\0"))

    query = Query(path, startingOffsets="earliest")
    confirm(borders[50])
    rows = query.rows()
    confirm(borders[30])
    assert query.batch() is None
    assert query.restarted().batch() is None
    confirm(borders[80])
    rows += query.rows()
    assert numbers(rows) == list(range(80))


# ---- logs that lose their first files ----


@pytest.mark.parametrize("restarts", [False, True])
def test_files_deleted_before_they_are_read_are_an_error_or_left_out(
    store: rmqstore.Store,
    path: Path,
    restarts: bool,
    query_all: MakeQuery,
    caplog: pytest.LogCaptureFixture,
) -> None:
    store.put_many(messages(300))

    query = query_all(path, maxBytesPerTrigger=2000)
    rows = query.batch() or []
    read_to = query.places()[str(path)]

    store.expire_files(2)
    if restarts:
        query.restarted()

    with pytest.raises(OffsetOutOfRange, match=f"offset {read_to}, but .* starts at 32768"):
        query.batch()

    query.restarted(failOnDataLoss=False)
    with caplog.at_level(logging.WARNING, "rmqstore.spark"):
        more = query.rows()
    assert f"offset {read_to}" in caplog.text

    kept = [int(record.body.partition(b":")[0]) for record in store.scan_log()]
    assert numbers(more) == kept
    assert len(rows) + len(kept) < 300


def test_a_planned_batch_whose_files_are_deleted_fails_or_gives_what_is_left(
    store: rmqstore.Store, path: Path, query_all: MakeQuery
) -> None:
    store.put_many(messages(300))
    query = query_all(path)
    assert query.plan()
    store.expire_files(2)
    with pytest.raises(OffsetOutOfRange, match=r"offset 0, but .* starts at 32768"):
        query.restarted().read()
    kept = [int(record.body.partition(b":")[0]) for record in store.scan_log()]
    assert numbers(query.restarted(failOnDataLoss=False).read()) == kept
    query.commit()
    assert query.batch() is None


@pytest.mark.parametrize("fails", [True, False])
def test_files_deleted_under_a_task_fail_it_or_are_left_out(
    store: rmqstore.Store, path: Path, fails: bool, query_all: MakeQuery
) -> None:
    store.put_many(messages(300))
    query = query_all(path, failOnDataLoss=fails)
    assert query.plan()
    partitions = query.planned()
    store.expire_files(2)
    if fails:
        with pytest.raises(NotFoundError, match="failOnDataLoss"):
            list(map(query.task_rows, partitions))
    else:
        rows = [row for each in partitions for row in query.task_rows(each)]
        assert numbers(rows) == [int(record.body.partition(b":")[0]) for record in store.scan_log()]


def test_a_store_that_is_gone_is_an_error_or_left_out(tmp_path: Path, query_all: MakeQuery) -> None:
    for number in range(2):
        with open_store(tmp_path / f"{number}.store") as store:
            store.put_many(messages(10, first=number * 10))

    query = query_all(tmp_path / "*.store")
    assert len(query.rows()) == 20

    (tmp_path / "1.store").rename(tmp_path / "hidden")
    with open_store(tmp_path / "0.store") as store:
        store.put_many(messages(5, first=20))

    with pytest.raises(NotFoundError, match=r"1\.store"):
        query.batch()

    query.restarted(failOnDataLoss=False)
    assert numbers(query.rows()) == list(range(20, 25))

    # It is not forgotten: brought back, it is read on.
    (tmp_path / "hidden").rename(tmp_path / "1.store")
    with open_store(tmp_path / "1.store") as store:
        store.put_many(messages(5, first=30))
    assert numbers(query.rows()) == list(range(30, 35))
