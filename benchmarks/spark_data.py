"""Stores and the same rows as Parquet: what bench_spark reads."""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import rmqstore
from benchmarks.workloads import QUEUES, TAG, TOPIC
from rmqstore import Message

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "BATCH",
    "BODY",
    "RARE",
    "RARE_SHARE",
    "RECORD",
    "TAGS",
    "copy_log",
    "forget",
    "log_bytes",
    "messages",
    "read_into_cache",
    "size_of",
    "write_parquet",
    "write_store",
]

BODY = 1024
RECORD = BODY + 107
"""Bytes of a record in the log, as in every workload of 1 KiB."""

TAGS = ("TagA", "TagB", "TagC", "TagD")
"""As long as the tag of every workload."""

RARE = "rare00"
RARE_SHARE = 100
"""One message of so many goes to this topic, whose name is as long as that of the others."""

BATCH = 512
_NOISE = 1 << 26
_CHUNK = 16 << 20
_UNITS = {"k": 10, "m": 20, "g": 30, "": 0}


def size_of(text: str) -> int:
    """Return a size such as 512m in bytes. Raises ValueError for other text."""
    found = re.fullmatch(r"(\d+)([kmg]?)", text.lower())
    if found is None:
        raise ValueError(f"{text!r} is not a size: give 512m or 20g")
    return int(found[1]) << _UNITS[found[2]]


def messages(count: int, *, tags: Sequence[str], has_rare: bool) -> Iterator[list[Message]]:
    """Yield *count* messages in batches; no two bodies are alike, and none compresses well."""
    chance = random.Random(count)
    noise = base64.b64encode(chance.randbytes(_NOISE // 4 * 3))
    made = 0
    while made < count:
        batch = []
        for number in range(made, min(made + BATCH, count)):
            start = chance.randrange(_NOISE - BODY)
            body = b"%012d" % number + noise[start : start + BODY - 12]
            topic = RARE if has_rare and number % RARE_SHARE == 0 else TOPIC
            tag = tags[number // QUEUES % len(tags)]
            batch.append(Message(topic, body, queue=number % QUEUES, tags=tag))
        made += len(batch)
        yield batch


def write_store(
    root: Path, size: int, *, tags: Sequence[str] = (TAG,), has_rare: bool = False
) -> int:
    """Write a store of about *size* bytes of log and close it; return how many messages it has."""
    shutil.rmtree(root, ignore_errors=True)
    count = max(size // RECORD, 1)
    with rmqstore.open(root) as store:
        for batch in messages(count, tags=tags, has_rare=has_rare):
            store.put_many(batch)
    return count


def copy_log(root: Path, target: Path) -> None:
    """Copy a store without its index, which is made for its full size at once."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target, ignore=shutil.ignore_patterns("index"))


def write_parquet(spark: SparkSession, root: Path, target: Path) -> None:
    """Write all columns of a store as Parquet with snappy."""
    frame = spark.read.format("rmqstore").load(str(root))
    frame.write.mode("overwrite").option("compression", "snappy").parquet(str(target))


def log_bytes(root: Path) -> int:
    """Return the bytes of the log that hold records."""
    with rmqstore.open(root, read_only=True) as store:
        return store.end_offset - store.start_offset


def read_into_cache(root: Path) -> None:
    """Read all files below *root*, so that the next reader finds them in the page cache."""
    buffer = bytearray(_CHUNK)
    for path in _files(root):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def forget(root: Path) -> float:
    """Take all files below *root* out of the page cache; return how many seconds it took."""
    began = time.perf_counter()
    os.sync()
    for path in _files(root):
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return time.perf_counter() - began


def _files(root: Path) -> Iterator[Path]:
    yield from sorted(path for path in root.rglob("*") if path.is_file())
