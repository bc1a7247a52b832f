"""Arrow columns of golden stores against their manifests; ranges, filters, damage and lifetimes."""

from __future__ import annotations

import ctypes
import gc
import hashlib
import random
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import rmqstore
from rmqstore.errors import (
    ArgumentError,
    MissingExtraError,
    NotFoundError,
    OffsetOutOfRange,
    StoreClosedError,
)
from rmqstore.store import Store, arrow
from tests.golden import GoldenCase, GoldenCases, every_case
from tests.reference import properties
from tests.reference.columns import NAMES, Row, rows_of

FIELDS = {
    "topic": "topic",
    "queue_id": "queueId",
    "queue_offset": "queueOffset",
    "physical_offset": "phyOffset",
    "size": "size",
    "store_timestamp": "storeTimestamp",
    "born_timestamp": "bornTimestamp",
    "born_host": "bornHost",
    "store_host": "storeHost",
    "tags": "tags",
    "keys": "keys",
    "properties": "properties",
    "body_crc": "bodyCRC",
    "sys_flag": "sysFlag",
    "flag": "flag",
    "reconsume_times": "reconsumeTimes",
    "prepared_transaction_offset": "preparedTransactionOffset",
    "message_id": "msgId",
    "version": "version",
}

Golden = Callable[[str, str], GoldenCase]


def kept(golden: GoldenCase) -> list[Any]:
    return [line for line in golden.manifest if not line.get("damaged")]


def expected(line: Any, columns: Sequence[str] = NAMES) -> Row:
    """The row of a manifest line; bodies are compared by their digests."""
    values = {name: line[field] for name, field in FIELDS.items()}
    values["unique_key"] = line["properties"].get("UNIQ_KEY")
    values["body"] = (line["bodyLength"], line["bodySha256"])
    values["body_crc_ok"] = True
    values["tags_code"] = properties.tags_code(
        line["properties"], topic=line["topic"], store_timestamp=line["storeTimestamp"]
    )
    values["record"] = line["size"]
    return {name: values[name] for name in columns}


def rows(table: Any) -> list[Row]:
    found = rows_of(table)
    for row in found:
        if "body" in row:
            row["body"] = (len(row["body"]), hashlib.sha256(row["body"]).hexdigest())
        if "record" in row:
            row["record"] = len(row["record"])
    return found


@pytest.fixture(scope="module")
def plain(golden_cases: GoldenCases, tmp_path_factory: pytest.TempPathFactory) -> GoldenCase:
    return golden_cases.copy("5.5.0", "plain", into=tmp_path_factory.mktemp("arrow"))


@pytest.fixture
def store(plain: GoldenCase) -> Iterator[Store]:
    with rmqstore.open(plain.root, read_only=True) as opened:
        yield opened


@pytest.fixture
def orders(tmp_path: Path) -> Iterator[Store]:
    """A store of one queue with a hundred messages, body and tag after their offset."""
    with rmqstore.open(tmp_path / "orders") as opened:
        for i in range(100):
            opened.put("orders", f"body {i}".encode(), tags=f"t{i % 3}")
        yield opened


@every_case()
def test_every_column_of_the_log_equals_the_manifest(
    golden_case: Golden, release: str, case_name: str
) -> None:
    golden = golden_case(release, case_name)
    with rmqstore.open(golden.root, read_only=True) as store:
        table = store.scan_arrow(columns=NAMES, check_crc=True).read_all()
    table.validate(full=True)
    assert rows(table) == [expected(line) for line in kept(golden)]


@every_case("batch", "ipv6", "crash-torn", "transactions")
@pytest.mark.parametrize("batch_rows", [1, 7, 1000])
def test_batches_of_any_size_hold_the_same_rows(
    golden_case: Golden, release: str, case_name: str, batch_rows: int
) -> None:
    golden = golden_case(release, case_name)
    columns = [name for name in NAMES if name not in ("tags_code", "record")]
    with rmqstore.open(golden.root, read_only=True) as store:
        batches = list(store.scan_arrow(batch_rows=batch_rows))
    assert [len(batch) for batch in batches[:-1]] == [batch_rows] * (len(batches) - 1)
    assert 0 < len(batches[-1]) <= batch_rows
    found = [row for batch in batches for row in rows(batch)]
    assert found == [expected(line, columns) for line in kept(golden)]


@every_case(without=["cq-ext"])
def test_every_queue_equals_the_manifest(golden_case: Golden, release: str, case_name: str) -> None:
    golden = golden_case(release, case_name)
    wanted: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for line in kept(golden):
        for unit in line["consumeQueues"]:
            key = unit["topic"], unit["queueId"]
            wanted.setdefault(key, []).append((unit["offset"], line["phyOffset"]))
    with rmqstore.open(golden.root, read_only=True) as store:
        start = max(store.start_offset, 0)
        for (topic, number), units in wanted.items():
            stream = store.queue(topic, number).to_arrow(["physical_offset"], batch_rows=7)
            found = stream.read_all().column(0).to_pylist()
            assert found == [place for _, place in sorted(units) if place >= start]


@pytest.mark.parametrize("seed", range(20))
def test_any_columns_in_any_order_come_alone(plain: GoldenCase, store: Store, seed: int) -> None:
    columns = random.Random(seed).sample(NAMES, 1 + seed % len(NAMES))
    table = store.scan_arrow(columns=columns).read_all()
    assert table.schema == arrow.schema(columns)
    assert rows(table) == [expected(line, columns) for line in plain.manifest]


def test_default_columns_are_all_but_tags_code_and_raw_record(store: Store) -> None:
    assert arrow.column_names() == NAMES
    assert store.scan_arrow().schema.names == list(NAMES[:-2])
    assert NAMES[-2:] == ("tags_code", "record")


@pytest.mark.parametrize("large", [False, True])
def test_bodies_are_large_binary_when_asked(store: Store, large: bool) -> None:
    table = store.scan_arrow(columns=["body", "record"], large_binary=large).read_all()
    kind = pa.large_binary() if large else pa.binary()
    assert [field.type for field in table.schema] == [kind, kind]
    assert table.schema == arrow.schema(["body", "record"], large_binary=large)


# -- ranges and filters


def test_scan_reads_from_start_to_before_stop(plain: GoldenCase, store: Store) -> None:
    places = [line["phyOffset"] for line in plain.manifest]
    for low, high in [(0, 5), (10, 11), (3, 3), (len(places) - 2, None)]:
        stop = None if high is None else places[high]
        table = store.scan_arrow(
            columns=["physical_offset"], start=places[low], stop=stop, batch_rows=3
        ).read_all()
        assert table.column(0).to_pylist() == places[low:high]


def test_queue_reads_from_start_to_before_stop(orders: Store) -> None:
    queue = orders.queue("orders")
    for start, stop in [(0, 1), (10, 90), (99, 100), (50, 50), (99, 1000), (100, None)]:
        stream = queue.to_arrow(["queue_offset"], start=start, stop=stop, batch_rows=9)
        wanted = list(range(100))[start:stop]
        assert stream.read_all().column(0).to_pylist() == wanted


def test_start_past_the_end_raises_with_the_bounds(orders: Store) -> None:
    queue = orders.queue("orders")
    calls: list[Callable[[], object]] = [
        lambda: queue.to_arrow(start=101),
        lambda: queue.records(start=101),
        lambda: queue.get(101),
        lambda: orders.scan_arrow(start=orders.end_offset + 1),
        lambda: orders.scan_log(start=orders.end_offset + 1),
    ]
    for call in calls:
        with pytest.raises(OffsetOutOfRange, match=r"101|past the end") as caught:
            call()
        assert (caught.value.start, caught.value.end) in ((0, 100), (0, orders.end_offset))
    assert list(queue.records(start=100)) == list(orders.scan_log(orders.end_offset)) == []


def test_filters_keep_the_rows_they_name(plain: GoldenCase, store: Store) -> None:
    middle = plain.manifest[len(plain.manifest) // 2]
    filters: list[tuple[dict[str, Any], Callable[[Any], bool]]] = [
        ({"topic": middle["topic"]}, lambda line: line["topic"] == middle["topic"]),
        ({"topic": "nobody's"}, lambda line: False),
        ({"queue_id": 1}, lambda line: line["queueId"] == 1),
        ({"tags": middle["tags"] or "A"}, lambda line: line["tags"] == (middle["tags"] or "A")),
        ({"tags": ["A", "C"]}, lambda line: line["tags"] in ("A", "C")),
        (
            {"begin_ms": middle["storeTimestamp"]},
            lambda line: line["storeTimestamp"] >= middle["storeTimestamp"],
        ),
        (
            {"end_ms": middle["storeTimestamp"], "queue_id": 2},
            lambda line: line["storeTimestamp"] < middle["storeTimestamp"] and line["queueId"] == 2,
        ),
    ]
    for options, wanted in filters:
        table = store.scan_arrow(columns=["physical_offset"], **options).read_all()
        assert table.column(0).to_pylist() == [
            line["phyOffset"] for line in plain.manifest if wanted(line)
        ], options


def test_queue_filters_by_tag_and_time(orders: Store) -> None:
    queue = orders.queue("orders")
    all_rows = rows_of(queue.to_arrow(["queue_offset", "tags", "store_timestamp"]).read_all())
    late = all_rows[60]["store_timestamp"]
    found = queue.to_arrow(["queue_offset"], tags=["t1", "t2"], begin_ms=late).read_all()
    assert found.column(0).to_pylist() == [
        row["queue_offset"]
        for row in all_rows
        if row["tags"] != "t0" and row["store_timestamp"] >= late
    ]


def test_batches_keep_to_their_bytes(orders: Store) -> None:
    batches = list(orders.scan_arrow(columns=["body"], batch_bytes=50))
    assert len(batches) > 10
    assert all(sum(map(len, batch.column(0).to_pylist())) <= 50 for batch in batches)
    assert sum(len(batch) for batch in batches) == 100


def test_reader_ends_where_the_store_ended_when_it_was_made(orders: Store) -> None:
    reader = orders.scan_arrow(columns=["queue_offset"], batch_rows=10).reader()
    reader.read_next_batch()
    orders.put("orders", b"late")
    assert reader.read_all().num_rows == 90
    assert orders.scan_arrow(columns=["queue_offset"]).read_all().num_rows == 101


def test_empty_store_gives_a_schema_and_no_rows(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path) as store:
        table = store.scan_arrow().read_all()
        assert (table.num_rows, table.schema) == (0, arrow.schema())
        with pytest.raises(NotFoundError, match="no queue 3 of topic nobody"):
            store.queue("nobody", 3).to_arrow().read_all()


@every_case("deleted-head")
def test_deleted_records_are_passed_over_and_counted(
    golden_case: Golden, release: str, case_name: str
) -> None:
    golden = golden_case(release, case_name)
    with rmqstore.open(golden.root, read_only=True) as store:
        stream = store.scan_arrow(columns=["physical_offset"], start=0)
        found = stream.read_all().column(0).to_pylist()
        assert stream.expired == store.start_offset > 0
        assert stream.rows == len(found)
        assert found == [line["phyOffset"] for line in kept(golden)]


@pytest.fixture
def many_files(tmp_path: Path) -> Iterator[Store]:
    """A store of one queue with 200 messages over many commit log files of 8 KiB."""
    with rmqstore.open(tmp_path / "many", commit_log_file_size_bytes=8192) as opened:
        opened.put_many([rmqstore.Message("orders", bytes(300)) for _ in range(200)])
        opened.wait_dispatched()
        yield opened


def test_files_deleted_under_a_scan_are_passed_over_and_counted(many_files: Store) -> None:
    places = many_files.scan_arrow(columns=["physical_offset"]).read_all().column(0).to_pylist()
    stream = many_files.scan_arrow(columns=["physical_offset"], batch_rows=5)
    reader = stream.reader()
    found = reader.read_next_batch().column(0).to_pylist()
    many_files._expire(3)
    found += reader.read_all().column(0).to_pylist()
    # The file being read stays readable; two files behind it are gone.
    assert found == [place for place in places if place < 8192 or place >= 3 * 8192]
    assert stream.expired == 2 * 8192


def test_files_deleted_under_a_queue_are_passed_over_and_counted(many_files: Store) -> None:
    stream = many_files.queue("orders").to_arrow(["queue_offset"], batch_rows=5)
    reader = stream.reader()
    found = reader.read_next_batch().column(0).to_pylist()
    many_files._expire(3)
    start = many_files.queue("orders").start
    assert start > 5
    found += reader.read_all().column(0).to_pylist()
    assert found == [*range(5), *range(start, 200)]
    assert stream.expired == start - 5


def test_log_cut_under_its_readers_ends_them_at_the_cut(many_files: Store) -> None:
    queue = many_files.queue("orders")
    place = queue.get(100).physical_offset
    readers = [
        stream.reader()
        for stream in (
            many_files.scan_arrow(columns=["queue_offset"], batch_rows=10),
            queue.to_arrow(["queue_offset"], batch_rows=10),
        )
    ]
    firsts = [len(reader.read_next_batch()) for reader in readers]
    many_files.truncate_to(place)
    rests = [reader.read_all().num_rows for reader in readers]
    assert (firsts, rests) == ([10, 10], [90, 90])


# -- damage


def damaged(golden: GoldenCase, line: Any, at: int, value: bytes) -> None:
    """Overwrite bytes of the record of *line* in its commit log file."""
    files = sorted((golden.root / "commitlog").iterdir())
    holder = max(path for path in files if int(path.name) <= line["phyOffset"])
    with holder.open("r+b") as file:
        file.seek(line["phyOffset"] - int(holder.name) + at)
        file.write(value)


MAGIC_AT, BODY_AT = 4, 88


@pytest.mark.parametrize("at", [MAGIC_AT, BODY_AT])
def test_damage_ends_the_reading_behind_the_rows_before_it(golden_case: Golden, at: int) -> None:
    golden = golden_case("5.3.3", "plain")
    with rmqstore.open(golden.root, read_only=True) as store:
        damaged(golden, golden.manifest[20], at, b"\xff\xfe")
        place = golden.manifest[20]["phyOffset"]
        reader = store.scan_arrow(columns=["body"], check_crc=True, batch_rows=15).reader()
        assert [len(reader.read_next_batch()) for _ in range(2)] == [15, 5]
        for _ in range(2):
            with pytest.raises(OSError, match=f"record at {place}"):
                reader.read_next_batch()


@pytest.mark.parametrize("at", [MAGIC_AT, BODY_AT])
def test_damage_is_skipped_and_counted_when_asked(golden_case: Golden, at: int) -> None:
    golden = golden_case("5.3.3", "plain")
    bad = (20, 21, 40)
    with rmqstore.open(golden.root, read_only=True) as store:
        for index in bad:
            damaged(golden, golden.manifest[index], at, b"\xff\xfe")
        stream = store.scan_arrow(
            columns=["physical_offset"], check_crc=True, on_corrupt="skip", batch_rows=15
        )
        found = stream.read_all().column(0).to_pylist()
        assert found == [
            line["phyOffset"] for i, line in enumerate(golden.manifest) if i not in bad
        ]
        assert stream.skipped_bytes == sum(golden.manifest[i]["size"] for i in bad)
        # Two neighbours without a magic are one stretch of unknown bytes.
        assert stream.skipped == (2 if at == MAGIC_AT else 3)


def test_damage_in_a_queue_fails_or_is_skipped(golden_case: Golden) -> None:
    golden = golden_case("5.3.3", "plain")
    line = golden.manifest[20]
    topic, number = line["topic"], line["queueId"]
    with rmqstore.open(golden.root, read_only=True) as store:
        damaged(golden, line, MAGIC_AT, b"\xff")
        queue = store.queue(topic, number)
        with pytest.raises(OSError, match=str(line["phyOffset"])):
            queue.to_arrow(["queue_offset"]).read_all()
        stream = queue.to_arrow(["queue_offset"], on_corrupt="skip")
        found = stream.read_all().column(0).to_pylist()
        assert found == [n for n in range(queue.start, queue.end) if n != line["queueOffset"]]
        assert (stream.skipped, stream.skipped_bytes) == (1, 0)


def test_hole_of_zeros_in_the_log_is_damage_not_its_end(golden_case: Golden) -> None:
    golden = golden_case("5.3.3", "plain")
    line = golden.manifest[20]
    with rmqstore.open(golden.root, read_only=True) as store:
        damaged(golden, line, 0, bytes(line["size"]))
        with pytest.raises(OSError, match=f"no record at offset {line['phyOffset']}"):
            store.scan_arrow(columns=["size"]).read_all()
        stream = store.scan_arrow(columns=["size"], on_corrupt="skip")
        assert stream.read_all().num_rows == len(golden.manifest) - 1
        assert (stream.skipped, stream.skipped_bytes) == (1, line["size"])


@pytest.mark.parametrize("seed", range(6))
def test_records_without_damage_are_all_read_from_a_riddled_log(
    golden_case: Golden, seed: int
) -> None:
    golden = golden_case("5.5.0", ("plain", "ipv6", "batch")[seed % 3])
    chance = random.Random(seed)
    touched = set(chance.sample(range(len(golden.manifest)), 25))

    with rmqstore.open(golden.root, read_only=True) as store:
        for index in touched:
            line = golden.manifest[index]
            damaged(golden, line, chance.randrange(line["size"]), chance.randbytes(1))

        wanted = {line["phyOffset"] for i, line in enumerate(golden.manifest) if i not in touched}

        table = store.scan_arrow(columns=NAMES, check_crc=True, on_corrupt="skip").read_all()
        table.validate(full=True)
        places = table.column("physical_offset").to_pylist()
        assert places == sorted(set(places))
        assert wanted <= set(places) <= {line["phyOffset"] for line in golden.manifest}

        for queue in store.queues():
            stream = queue.to_arrow(["physical_offset"], check_crc=True, on_corrupt="skip")
            found = stream.read_all().column(0).to_pylist()
            assert (
                set(found) & wanted
                == {
                    line["phyOffset"]
                    for line in golden.manifest
                    for unit in line["consumeQueues"]
                    if (unit["topic"], unit["queueId"]) == (queue.topic, queue.number)
                }
                & wanted
            )


# -- arguments


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"columns": ["queueOffset"]}, "did you mean queue_offset"),
        ({"columns": ["zzzzzz"]}, "there are topic, queue_id"),
        ({"columns": "body"}, r"columns is 'body'.*\['body'\]"),
        ({"columns": []}, "0 columns"),
        ({"columns": ["body", "body"]}, "body was asked for twice"),
        ({"batch_rows": 0}, "batch_rows is 0"),
        ({"batch_bytes": 1 << 31}, "batches of 2147483648 bytes"),
        ({"on_corrupt": "ignore"}, "give fail or skip"),
        ({"queue_id": -1}, "queue_id is -1"),
    ],
)
def test_wrong_arguments_are_told_at_once(
    store: Store, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        store.scan_arrow(**options)


def test_lack_of_pyarrow_names_the_extra(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtraError, match=r"pip install rmqstore\[arrow\]"):
        store.scan_arrow().read_all()
    assert store.scan_arrow().__arrow_c_stream__() is not None


# -- lifetimes


def test_stream_can_be_read_again(orders: Store) -> None:
    stream = orders.scan_arrow(columns=["body"])
    assert stream.read_all() == stream.read_all()
    assert stream.rows == 100


def test_capsules_have_the_names_of_the_interface(orders: Store) -> None:
    is_valid = ctypes.pythonapi.PyCapsule_IsValid
    is_valid.argtypes = [ctypes.py_object, ctypes.c_char_p]
    stream = orders.scan_arrow()
    assert is_valid(stream.__arrow_c_stream__(None), b"arrow_array_stream")
    assert is_valid(stream.__arrow_c_schema__(), b"arrow_schema")


def test_rows_outlive_reader_and_store(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path) as store:
        store.put("orders", b"paid")
        table = store.scan_arrow(columns=["topic", "body"]).read_all()
    gc.collect()
    assert table.to_pylist() == [{"topic": "orders", "body": b"paid"}]


def test_reader_keeps_its_store_alive(plain: GoldenCase) -> None:
    reader = rmqstore.open(plain.root, read_only=True).scan_arrow(batch_rows=10).reader()
    gc.collect()
    assert reader.read_all().num_rows == len(plain.manifest)


def test_reader_of_a_closed_store_gets_an_error(plain: GoldenCase) -> None:
    store = rmqstore.open(plain.root, read_only=True)
    stream = store.scan_arrow(batch_rows=10)
    reader = stream.reader()
    reader.read_next_batch()
    store.close()
    with pytest.raises(pa.ArrowInvalid, match="the store was closed"):
        reader.read_next_batch()
    with pytest.raises(StoreClosedError):
        stream.reader()


def test_store_closes_while_another_thread_reads(tmp_path: Path) -> None:
    store = rmqstore.open(tmp_path)
    store.put_many([rmqstore.Message("orders", bytes(100)) for _ in range(2000)])
    begun, outcomes = threading.Event(), []

    def read() -> None:
        reader = store.scan_arrow(columns=["body"], batch_rows=1).reader()
        try:
            for _ in reader:
                begun.set()
            outcomes.append("read")
        except pa.ArrowInvalid:
            outcomes.append("closed")

    thread = threading.Thread(target=read)
    thread.start()
    assert begun.wait(60)
    store.close()
    thread.join(60)
    assert outcomes in (["read"], ["closed"])
