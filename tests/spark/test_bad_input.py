"""Damage, absence and extremes: told by file and offset, passed over and counted, or made rows."""

from __future__ import annotations

import errno
import logging
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore import CompressionType, CorruptionError, DiskError, Message, NotFoundError, compress
from rmqstore.errors import ArgumentError, StoreError
from rmqstore.spark.read import partitions
from tests.spark.reading import Read, Row, read
from tests.support.effort import rounds

FILE_BYTES = 4096
MESSAGES = 60


class Written(NamedTuple):
    """A store of several small files and where its records lie."""

    root: Path
    rows: list[Row]

    def file(self, index: int) -> Path:
        """Return one file of the log."""
        return sorted((self.root / "commitlog").iterdir())[index]

    def first_in(self, index: int) -> Row:
        """Return the row of the second record of a file: both neighbours are in it as well."""
        start = int(self.file(index).name)
        return [row for row in self.rows if row["physicalOffset"] >= start][1]

    def damage(self, place: int, data: bytes) -> None:
        """Put *data* at a physical offset."""
        with self.file(place // FILE_BYTES).open("r+b") as file:
            file.seek(place % FILE_BYTES)
            file.write(data)


@pytest.fixture(autouse=True)
def by_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read chosen topics by their queues, however large their share of the log is."""
    monkeypatch.setattr(partitions, "_SPARSE", 10.0)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    root = tmp_path / "store"
    with rmqstore.open(root, commit_log_file_size_bytes=FILE_BYTES) as store:
        for number in range(MESSAGES):
            store.put("orders", bytes([number]) * (100 + number), queue=number % 3, tags="t")
    return Written(root, read(root))


def _read(written: Written, *, bare: bool = False, **options: object) -> list[Row]:
    """Read the store or, without anything beside it, its log."""
    return read(written.root / "commitlog" if bare else written.root, **options)


def _skips(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "rmqstore.spark"]


def _body(row: Row) -> int:
    """Return where the body of a record of version 1 with IPv4 hosts begins."""
    return int(row["physicalOffset"]) + 88


MAGIC = 4

DAMAGES: dict[str, Callable[[Row], tuple[int, bytes]]] = {
    "magic": lambda row: (row["physicalOffset"] + MAGIC, b"\xff"),
    "size": lambda row: (row["physicalOffset"], b"\x7f\xff\xff\xff"),
    "body-bit": lambda row: (_body(row), b"\xff"),
    "hole": lambda row: (row["physicalOffset"], bytes(row["size"])),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
every_way = pytest.mark.parametrize(
    "options",
    [
        pytest.param({}, id="one-partition"),
        pytest.param({"maxPartitionBytes": 1}, id="one-record-a-partition"),
        pytest.param({"topic": "orders"}, id="by-queues"),
        pytest.param({"topic": "orders", "maxPartitionBytes": 1}, id="by-queues-split"),
        pytest.param({"bare": True}, id="bare"),
        pytest.param({"bare": True, "maxPartitionBytes": 1}, id="bare-split"),
    ],
)


@every_damage
@every_way
def test_damage_fails_with_file_and_offset(
    written: Written, damage: Callable[[Row], tuple[int, bytes]], options: dict[str, Any]
) -> None:
    row = written.first_in(2)
    written.damage(*damage(row))
    with pytest.raises(CorruptionError) as caught:
        _read(written, checkCrc=True, **options)
    assert caught.value.physical_offset == row["physicalOffset"]
    message = str(caught.value)
    assert str(written.file(2)) in message
    assert str(row["physicalOffset"]) in message
    assert "onCorrupt" in message


@every_damage
@every_way
def test_damage_is_skipped_and_counted(
    written: Written,
    damage: Callable[[Row], tuple[int, bytes]],
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = written.first_in(2)
    written.damage(*damage(row))
    with caplog.at_level(logging.WARNING):
        found = _read(written, checkCrc=True, onCorrupt="skip", **options)
    expected = [each for each in written.rows if each != row]
    assert _sorted(found) == expected
    (answer,) = _skips(caplog)
    assert answer.startswith(f"1 places of {row['size']} bytes")
    assert str(written.file(2)) in answer


@every_damage
@every_way
def test_damage_becomes_a_row(
    written: Written, damage: Callable[[Row], tuple[int, bytes]], options: dict[str, Any]
) -> None:
    row = written.first_in(2)
    written.damage(*damage(row))

    found = _read(written, checkCrc=True, onCorrupt="row", **options)
    (bad,) = [each for each in found if each["error"] is not None]
    assert (bad["path"], bad["physicalOffset"], bad["size"]) == (
        str(written.file(2)),
        row["physicalOffset"],
        row["size"],
    )

    assert all(
        value is None
        for name, value in bad.items()
        if name not in ("path", "physicalOffset", "size", "error")
    )

    good = [each for each in found if each["error"] is None]
    expected = [each | {"error": None} for each in written.rows if each != row]
    assert _sorted(good) == expected


def test_a_flipped_body_without_a_check_is_a_row_that_tells(written: Written) -> None:
    row = written.first_in(1)
    written.damage(_body(row), b"\xff")
    (found,) = [each for each in read(written.root) if not each["bodyCrcOk"]]
    assert found["physicalOffset"] == row["physicalOffset"]
    assert found["body"] == b"\xff" + row["body"][1:]


def test_a_file_cut_short_is_damage_to_its_end(
    written: Written, caplog: pytest.LogCaptureFixture
) -> None:
    row = written.first_in(1)
    os.truncate(written.file(1), row["physicalOffset"] % FILE_BYTES + 30)
    with pytest.raises(StoreError, match=written.file(1).name):
        read(written.root)
    found = read(written.root, onCorrupt="skip", failOnDataLoss=False)
    lost = [each for each in written.rows if each["path"] == str(written.file(1))][1:]
    assert found == [each for each in written.rows if each not in lost]
    assert _skips(caplog)


def test_any_flipped_byte_costs_at_most_its_own_record(tmp_path: Path) -> None:
    root = tmp_path / "store"

    with rmqstore.open(root, commit_log_file_size_bytes=FILE_BYTES) as store:
        for number in range(8):
            store.put("orders", b"%d" % number * 30, queue=number % 2, keys=["k"])

    # A flipped timestamp may be one that Python's datetime cannot hold.
    columns = "topic,queueId,queueOffset,physicalOffset,size,keys,properties,body,flag"
    good = read(root, columns=columns)

    log = next((root / "commitlog").iterdir())
    whole = log.read_bytes()
    places = random.Random(5).sample(range(good[-1]["physicalOffset"]), rounds(150, 1700))

    for place in places:
        log.write_bytes(
            whole[:place]
            + bytes([whole[place] ^ random.Random(place).randrange(1, 256)])
            + whole[place + 1 :]
        )

        for options in ({}, {"topic": "orders", "maxPartitionBytes": 300}):
            found = read(
                root, checkCrc=True, onCorrupt="row", columns=f"{columns},error", **options
            )

            own = max(row["physicalOffset"] for row in good if row["physicalOffset"] <= place)
            others = [row | {"error": None} for row in good if row["physicalOffset"] != own]
            missing = [row for row in others if row not in found]
            assert not missing, place

            extra = [row for row in found if row not in others]
            # A byte without a checksum changes its record; one of a topic makes it another's.
            assert len(extra) <= 1, place
            assert all(row["physicalOffset"] == own for row in extra), place


def _sorted(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: int(row["physicalOffset"]))


def test_an_empty_store_has_the_columns_and_no_rows(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store"):
        pass
    planned = Read(tmp_path / "store")
    assert planned.rows() == []
    assert "topic" in planned.schema.fieldNames()
    assert read(tmp_path / "store", topic="orders") == []


def test_a_topic_without_messages_gives_no_rows(written: Written) -> None:
    with rmqstore.open(written.root) as store:
        store.create_topic("idle", read_queue_count=2, write_queue_count=2)
    assert read(written.root, topic="idle") == []


@pytest.mark.parametrize("size", [0, FILE_BYTES])
def test_a_preallocated_file_behind_the_end_adds_nothing(written: Written, size: int) -> None:
    last = int(written.file(-1).name)
    (written.root / "commitlog" / f"{last + FILE_BYTES:020d}").write_bytes(bytes(size))
    assert read(written.root) == written.rows
    assert read(written.root, topic="orders") == written.rows
    shutil.rmtree(written.root / "consumequeue")
    assert read(written.root) == written.rows


def test_a_bare_commit_log_directory_is_read_like_its_store(written: Written) -> None:
    assert read(written.root / "commitlog") == written.rows


def test_a_directory_that_is_no_store_is_an_error_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("no log")
    with pytest.raises(StoreError, match="other"):
        read(tmp_path / "other")


@pytest.mark.parametrize("path", ["nothing-here", "nothing-*"])
def test_a_path_that_matches_nothing_is_an_error_with_its_name(tmp_path: Path, path: str) -> None:
    with pytest.raises(NotFoundError, match="nothing"):
        read(tmp_path / path)


def test_files_of_mixed_sizes_are_refused_by_name(written: Written) -> None:
    """No release writes such a log, and Java refuses to load one."""
    os.truncate(written.file(1), FILE_BYTES + 512)
    with pytest.raises(CorruptionError, match=f"{written.file(1).name}.*{FILE_BYTES + 512}.*size"):
        read(written.root, onCorrupt="skip")


def test_a_file_that_may_not_be_read_is_an_error_with_its_name(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned = Read(written.root)
    refused = str(written.file(1))
    real = os.open

    def refusing(path: Any, *arguments: Any, **named: Any) -> int:
        # The superuser is refused nothing.
        if path == refused:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refusing)
    with pytest.raises(DiskError, match=written.file(1).name) as caught:
        planned.rows()
    assert caught.value.errno == errno.EACCES


@pytest.mark.parametrize("options", [{}, {"topic": "orders"}], ids=["log", "queues"])
def test_a_file_deleted_after_planning_is_data_loss(
    written: Written, options: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    strict = Read(written.root, **options)
    lenient = Read(written.root, failOnDataLoss=False, **options)
    gone = written.file(0)
    gone.unlink()
    with pytest.raises(NotFoundError, match=f"{gone}.*failOnDataLoss"):
        strict.rows()
    with caplog.at_level(logging.WARNING):
        assert lenient.rows() == [row for row in written.rows if row["path"] != str(gone)]
    (answer,) = _skips(caplog)
    assert "data loss" in answer
    assert str(gone) in answer


def test_queue_files_deleted_after_planning_are_data_loss(written: Written) -> None:
    strict = Read(written.root, topic="orders")
    lenient = Read(written.root, topic="orders", failOnDataLoss=False)
    shutil.rmtree(written.root / "consumequeue" / "orders" / "1")
    with pytest.raises(NotFoundError, match="failOnDataLoss"):
        strict.rows()
    assert lenient.rows() == []


def test_a_large_body_passes_whatever_the_size_of_a_batch(tmp_path: Path) -> None:
    root = tmp_path / "store"
    large = random.Random(1).randbytes(4 << 20)

    with rmqstore.open(
        root, commit_log_file_size_bytes=16 << 20, message_size_bytes_max=5 << 20
    ) as store:
        for body in (b"before", large, b"between", large[::-1], b"after"):
            store.put("orders", body)

    for options in ({}, {"topic": "orders"}, {"batchBytes": 65_536}, {"maxPartitionBytes": 1}):
        planned = Read(root, columns="body", **options)
        sizes = [batch.nbytes for batch in planned.batches()]
        assert max(sizes) < (14 << 20)
        assert [row["body"] for row in planned.rows()] == [
            b"before",
            large,
            b"between",
            large[::-1],
            b"after",
        ]


def test_batches_keep_to_their_bytes(written: Written) -> None:
    planned = Read(written.root, columns="body,queueOffset", batchBytes=1000)
    sizes = [sum(len(row["body"]) for row in batch.to_pylist()) for batch in planned.batches()]
    assert len(sizes) > 5
    assert max(sizes) < 1000 + 300


def test_a_batch_that_could_overflow_a_binary_column_is_refused(written: Written) -> None:
    with pytest.raises(ArgumentError, match="batchBytes"):
        read(written.root, batchBytes="3g")


def _compressed(root: Path) -> list[bytes]:
    """Put bodies of which the third and the last claim to be compressed and are not whole."""
    plain = [b"%d" % number * 2000 for number in range(6)]
    kinds = (CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD)
    with rmqstore.open(root, commit_log_file_size_bytes=1 << 20) as store:
        for number, body in enumerate(plain):
            kind = kinds[number % 3]
            stored = compress(body, kind)
            broken = number in (2, 5)
            store.put(
                Message("orders", stored[:-3] if broken else stored, sys_flag=int(kind.sys_flag))
            )
        store.put("orders", b"plain")
    return [plain[0], plain[1], plain[3], plain[4], b"plain"]


def test_a_broken_frame_fails_with_file_and_offset(tmp_path: Path) -> None:
    _compressed(tmp_path / "store")
    rows = read(tmp_path / "store")
    with pytest.raises(CorruptionError, match="zstd") as caught:
        read(tmp_path / "store", decompress=True)
    assert caught.value.physical_offset == rows[2]["physicalOffset"]
    assert rows[2]["path"] in str(caught.value)


def test_broken_frames_are_skipped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = _compressed(tmp_path / "store")
    with caplog.at_level(logging.WARNING):
        found = read(tmp_path / "store", decompress=True, onCorrupt="skip")
    assert [row["body"] for row in found] == expected
    (answer,) = _skips(caplog)
    assert answer.startswith("2 places")


def test_broken_frames_become_rows(tmp_path: Path) -> None:
    expected = _compressed(tmp_path / "store")
    places = [row["physicalOffset"] for row in read(tmp_path / "store")]
    found = read(tmp_path / "store", decompress=True, onCorrupt="row")
    bad = [row for row in found if row["error"] is not None]
    assert [row["physicalOffset"] for row in bad] == [places[2], places[5]]
    assert all("decompressed" in row["error"] for row in bad)
    assert [row["body"] for row in found if row["error"] is None] == expected


def test_bodies_that_grow_far_beyond_a_batch_are_cut_into_several(tmp_path: Path) -> None:
    root = tmp_path / "store"
    plain = [bytes([number]) * 200_000 for number in range(20)]
    with rmqstore.open(root, commit_log_file_size_bytes=1 << 20) as store:
        for body in plain:
            kind = CompressionType.ZLIB
            store.put(Message("orders", compress(body, kind), sys_flag=int(kind.sys_flag)))
    planned = Read(root, decompress=True, batchBytes=500_000, columns="body")
    batches = list(planned.batches())
    assert [row["body"] for row in planned.rows()] == plain
    assert all(batch.nbytes < 600_000 for batch in batches)


def test_error_rows_need_columns_that_may_be_null(written: Written) -> None:
    from pyspark.sql.types import IntegerType, StringType, StructField, StructType

    written.damage(written.first_in(0)["physicalOffset"] + MAGIC, b"\xff")
    schema = StructType(
        [StructField("queueId", IntegerType(), False), StructField("error", StringType())]
    )
    with pytest.raises(ArgumentError, match="queueId"):
        read(written.root, schema=schema, onCorrupt="row")
