"""A DataFrame becomes a store, or more messages of one: `df.write.format("rmqstore")`.

    frame.write.format("rmqstore").mode("append").save("/data/broker-a/store")

Columns, by name: topic STRING and body BINARY (or STRING, stored as UTF-8), neither null. And, as
wanted: queueId INT (0 where null), tags STRING, keys STRING (separated by spaces) or ARRAY<STRING>,
properties MAP<STRING, STRING>, bornTimestamp TIMESTAMP (null: when the task wrote the row), and
storeTimestamp TIMESTAMP. A row becomes one message. Bodies are stored as they are, without a
compression flag, and properties are stored without being acted upon: DELAY delays nothing. Topics
are not written to config/topics.json; a broker that is to serve the store needs them created.

Order: the partitions one after the other by number, the rows of a partition as they come. So
`frame.orderBy(...)` writes that order, and each queue gets its messages in it.

Store timestamps. RocketMQ looks messages up by time, and recovers after a crash, in the belief that
they do not descend in the log. Without a column storeTimestamp each message gets the clock of the
commit, as with every put, and likewise where the column is null in all rows, as SQL fills it in
INSERT INTO ... (topic, body). With it the times given are kept, in milliseconds, provided that they
ascend (or stay equal) over all rows in the order above, begin no earlier than the last message
already in the store, and do not lie in the future; otherwise the job fails and nothing is stored.

Columns that only a read has (msgId, physicalOffset, ...) are ignored, so that a DataFrame as the
source reads it can be stored; the option strictColumns true refuses them. A row whose sysFlag marks
a compressed body, a prepared or a rolled back message is refused: the mark is not stored.

Other options are the settings of a store by their RocketMQ names, of any case, for a store that is
made: `mappedFileSizeCommitLog`, `mappedFileSizeConsumeQueue`, `maxHashSlotNum`, `maxIndexNum`,
`enabledAppendPropCRC`, `maxMessageSize`, `brokerIP1`, `listenPort`, `compatibility` and all others
of `rmqstore.StoreConfig`, but no paths. A store already there keeps the sizes it has.

How a job goes. Each task writes a file of records into a staging directory beside the target,
`.<name>.rmqstore-<id>`. The commit, on the driver, appends these staged files to one log and
builds queues and index, with everything on the disk before it returns. Driver and executors must
share the file system.

What a failure leaves. A store that did not exist is built in the staging directory and renamed
into place: it is there whole or not at all, whatever happens. To a store that exists, the commit
appends while holding its lock. When the job fails, the messages are cut off again; readers of the
store may have seen them meanwhile, and queues it made stay, empty. When the driver is killed in the
middle of an append, a beginning of the rows may stay: there is no journal. A killed driver also
leaves its staging directory, which may be deleted.

Modes: append. Overwrite is refused unless there is nothing to overwrite; messages are not deleted.
"""

from __future__ import annotations

import difflib
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from rmqstore._native import core
from rmqstore.config import StoreConfig
from rmqstore.errors import ArgumentError, CorruptionError, DiskError, MessageRejected, StoreError
from rmqstore.spark.worker import plain_errors
from rmqstore.spark.write.rows import cells_of, is_null_in_all, marked_row, validate_columns
from rmqstore.store import Store
from rmqstore.store.directory import Directory
from rmqstore.store.durable_files import sync_directory
from rmqstore.store.settings import adapt, is_remembered, native_settings, remembered

if TYPE_CHECKING:
    import logging

    import pyarrow

__all__ = ["RmqStoreWriter", "StagedFile"]

_CHUNK_BYTES = 4 << 20
"""What a task writes, and the commit reads and places, at a time."""
_DISPATCH_TIMEOUT_S = 3600.0

_SOME_TIMESTAMPS = (
    "storeTimestamp is null in some rows and not in others; fill it in all rows, or in none"
)
_STRICT = "strictColumns"
_PATH_SETTINGS = ("root_path", "commit_log_paths", "commit_log_read_only_paths")


@dataclass(frozen=True, slots=True)
class StagedFile(WriterCommitMessage):
    """What a task wrote: records of one partition, in order."""

    partition: int
    path: str
    """"" for a partition without rows."""

    records: int
    chunks: tuple[tuple[int, int], ...]
    """Size in bytes and CRC-32 of each chunk, whole records all of them."""

    keeps_timestamps: bool = False
    """Whether its rows have a storeTimestamp, all of them."""


class RmqStoreWriter(DataSourceArrowWriter):
    """One job that stores rows; see the module.

    Made on the driver, which validates schema, options and target before any task runs, and makes
    the staging directory. Raises ArgumentError that lists everything wrong with columns or options,
    ConfigError, UnsupportedStoreError for a store that can only be read, DiskError.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        options, strict = _strictness(options)
        self._columns = validate_columns(schema, strict=strict)
        self._settings = _settings(options)
        self._target = _target(options)
        is_there = _holds_store(self._target)
        if overwrite and is_there:
            raise ArgumentError(
                f"{self._target} is a store, and mode overwrite would delete its messages: use "
                "append, or another path, or remove the directory yourself"
            )
        self._config = _config(self._target, self._settings)
        self._staging = _make_staging(self._target)

    # -- on the executors

    @plain_errors()
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> StagedFile:
        """Stage the rows of one partition, and return what the commit needs of the file.

        Raises MessageRejected that names the first row which is not a message.
        """
        partition, attempt = _task()
        path = os.path.join(self._staging, f"part-{partition}-{attempt}")
        encoder = _encoder(self._config)
        writer: _StagedWriter | None = None
        keeps_timestamps = False
        rows = 0

        try:
            for batch in iterator:
                if batch.num_rows == 0:
                    continue
                marked = marked_row(batch, self._columns)
                if marked is not None:
                    row, flag = marked
                    raise MessageRejected(
                        f"row {rows + row} of partition {partition}: sysFlag {flag} marks a "
                        "compressed body or a transaction that is not committed, and would be "
                        "lost; leave such rows out, or drop the column sysFlag (and read with the "
                        "option decompress)",
                        status="MESSAGE_ILLEGAL",
                    )
                has_timestamps = not is_null_in_all("storeTimestamp", batch, self._columns)
                if writer and has_timestamps != keeps_timestamps:
                    raise MessageRejected(
                        f"row {rows} of partition {partition}: {_SOME_TIMESTAMPS}",
                        status="MESSAGE_ILLEGAL",
                    )
                keeps_timestamps = has_timestamps
                left_out = () if has_timestamps else ("storeTimestamp",)
                writer = writer or _StagedWriter(path, encoder, self._config)
                try:
                    cells = cells_of(batch, self._columns, left_out=left_out)
                    writer.add(batch.num_rows, cells)
                except MessageRejected as error:
                    raise MessageRejected(
                        f"row {rows + encoder.row} of partition {partition}: {error}",
                        status=error.status,
                    ) from None
                rows += batch.num_rows
            return (
                StagedFile(partition, path, rows, writer.end(), keeps_timestamps)
                if writer
                else StagedFile(partition, "", 0, ())
            )
        finally:
            if writer:
                writer.close()

    # -- on the driver

    @plain_errors()
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Append all staged files; on return every message is on the disk and in its queue.

        Raises DiskError, StoreLockedError (another process holds the store), CorruptionError (a
        staged file is not what its task wrote), MessageRejected (store timestamps descend). Then
        nothing of the job is in the store, see the module for the one exception.
        """
        try:
            files = sorted(_staged(messages), key=lambda staged: staged.partition)
            _check_timestamps(files)
            if _holds_store(self._target):
                self._append(files)
            else:
                self._make(files)
        finally:
            _remove(self._staging)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Leave everything as it was. Tasks that still run find their directory gone."""
        _remove(self._staging)

    def _make(self, files: Sequence[StagedFile]) -> None:
        made = os.path.join(self._staging, "store")
        store = Store(made, **self._settings)

        try:
            self._place(store, files, least_timestamp=0)
            store.close()
        finally:
            if not store.closed:
                store.abandon()

        to_sync = [
            os.path.dirname(path) for path in (*_missing_parents(self._target), self._target)
        ]

        try:
            os.makedirs(to_sync[-1], exist_ok=True)
            # Only an empty directory gives way.
            os.rename(made, self._target)
            for folder in to_sync:
                sync_directory(Path(folder))
        except OSError as error:
            raise DiskError(
                error.errno or 0,
                f"the store made for {self._target} cannot be moved there: {error.strerror}; "
                "another process may have made it; save again, to append, or save to another path",
            ) from error

    def _append(self, files: Sequence[StagedFile]) -> None:
        store = Store(self._target, **self._settings)
        former_end = store.end_offset
        try:
            least = _newest_timestamp(store) if _keep_timestamps(files) else 0
            self._place(store, files, least_timestamp=least)
            store.close()
        except BaseException as error:
            self._take_back(store, former_end, error)
            raise

    def _place(self, store: Store, files: Sequence[StagedFile], *, least_timestamp: int) -> None:
        keeps_timestamps = _keep_timestamps(files)
        least: int | None = least_timestamp if keeps_timestamps else None

        for staged in files:
            records = 0
            for chunk in _chunks_of(staged):
                try:
                    count, last = core.place_records(store, chunk, least_timestamp=least)
                except MessageRejected as error:
                    advice = (
                        "; order the rows by storeTimestamp, or leave the column out"
                        if keeps_timestamps
                        else ""
                    )
                    raise MessageRejected(
                        f"partition {staged.partition}: {error}{advice}", status=error.status
                    ) from error
                records += count
                least = None if least is None else last

            if records != staged.records:
                raise CorruptionError(
                    f"{staged.path} holds {records} records, its task wrote {staged.records}; "
                    "write the rows again",
                    path=staged.path,
                    kind="staged file",
                )

        store.flush()
        store.wait_dispatched(timeout=_DISPATCH_TIMEOUT_S)

    def _take_back(self, store: Store, former_end: int, cause: BaseException) -> None:
        """Cuts off what was appended, if need be with a store that is opened again: one whose disk
        gave out accepts no further calls."""
        try:
            if not store.closed:
                try:
                    store.truncate_to(former_end)
                    store.close()
                    return
                except StoreError:
                    if not store.closed:
                        store.abandon()
            with Store(self._target, **self._settings) as reopened:
                reopened.truncate_to(former_end)
        except StoreError as error:
            cause.add_note(
                f"{self._target} could not be brought back ({error}): its messages from physical "
                f"offset {former_end} on are of this job; cut them off with "
                f"rmqstore.open(...).truncate_to({former_end})"
            )


# ---- a task


class _StagedWriter:
    """A staged file, written chunk by chunk.

    It is not synced: the file ends with the job, and each chunk is compared with its CRC when it is
    read back.
    """

    def __init__(self, path: str, encoder: core.RowEncoder, config: StoreConfig) -> None:
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileNotFoundError as error:
            raise StoreError(
                f"{os.path.dirname(path)} does not exist: the job was aborted, or this executor "
                "does not share the file system of the driver; mount it on every executor"
            ) from error
        except OSError as error:
            raise DiskError(error.errno or 0, f"{path}: {error.strerror}") from error
        self._path = path
        self._encoder = encoder
        self._buffer = bytearray(_CHUNK_BYTES + _record_size_max(config))
        self._used = 0
        self._written = 0
        self._chunks: list[tuple[int, int]] = []

    def add(self, rows: int, cells: Mapping[str, Any]) -> None:
        encoder = self._encoder
        encoder.begin(rows, cells)
        now_ms = time.time_ns() // 1_000_000
        while encoder.row < rows:
            self._used += encoder.encode(
                self._buffer,
                begin=self._used,
                place=self._written + self._used,
                now_ms=now_ms,
            )
            if self._used >= _CHUNK_BYTES:
                self._write()

    def end(self) -> tuple[tuple[int, int], ...]:
        if self._used:
            self._write()
        self.close()
        return tuple(self._chunks)

    def close(self) -> None:
        if self._file >= 0:
            file, self._file = self._file, -1
            self._checked(os.close, file)

    def _write(self) -> None:
        with memoryview(self._buffer) as view:
            chunk = view[: self._used]
            self._chunks.append((self._used, core.crc32(chunk)))
            at = 0
            while at < self._used:
                at += self._checked(os.write, self._file, chunk[at:])
            chunk.release()
        self._written += self._used
        self._used = 0

    def _checked(self, call: Any, *arguments: Any) -> Any:
        try:
            return call(*arguments)
        except OSError as error:
            raise DiskError(error.errno or 0, f"{self._path}: {error.strerror}") from error


def _task() -> tuple[int, str]:
    """Returns number of the partition and a name for the attempt."""
    context = TaskContext.get()
    if context is None:
        return 0, uuid.uuid4().hex
    return context.partitionId(), str(context.taskAttemptId())


def _native_limits(config: StoreConfig) -> dict[str, Any]:
    return native_settings(config, Directory(Path()), read_only=False)


def _record_size_max(config: StoreConfig) -> int:
    size: int = _native_limits(config)["record_size_max"]
    return size


def _encoder(config: StoreConfig) -> core.RowEncoder:
    limits = _native_limits(config)
    names = ("body_size_max", "record_size_max", "version_by_topic_size", "append_property_crc")
    return core.RowEncoder(
        **{name: limits[name] for name in names},
        log_file_size=limits["log_file_size"],
        host=limits["store_host"],
    )


# ---- judging what is asked for


def _strictness(options: Mapping[str, str]) -> tuple[dict[str, str], bool]:
    """Returns the other options, and whether columns that only a read has are refused."""
    left = {key: value for key, value in options.items() if key.lower() != _STRICT.lower()}
    texts = [value.lower() for key, value in options.items() if key not in left]
    if not set(texts) <= {"true", "false"}:
        raise ArgumentError(f"option {_STRICT}: {texts[0]} is not true or false")
    return left, "true" in texts


def _settings(options: Mapping[str, str]) -> dict[str, Any]:
    """Returns the fields of StoreConfig that the options set."""
    known = StoreConfig.options()
    names = {about.key.lower(): name for name, about in known.items()}
    values: dict[str, Any] = {}

    wrong = []
    for key, value in options.items():
        name = names.get(key.lower())
        if key.lower() == "path":
            continue
        if name is None:
            near = difflib.get_close_matches(key.lower(), names, n=1)
            right = known[names[near[0]]].key if near else ""
            advice = f"did you mean {right}?" if right else "they are settings of a RocketMQ store"
            wrong.append(f"option {key}: unknown; {advice}")
        elif name in _PATH_SETTINGS:
            wrong.append(f"option {known[name].key}: a store is made in one directory, path")
        else:
            try:
                values[name] = known[name].parse(value)
            except ValueError as error:
                wrong.append(f"option {known[name].key}: {error}")

    if wrong:
        raise ArgumentError("\n  ".join(("unknown or wrong writer options:", *wrong)))
    return values


def _target(options: Mapping[str, str]) -> str:
    path = next((value for key, value in options.items() if key.lower() == "path"), "")
    if not path:
        raise ArgumentError(
            "there is no path; give save(...) the directory of the store, such as '/data/store'"
        )
    for prefix in ("file://", "file:"):
        if path.startswith(prefix):
            path = path.removeprefix(prefix)
            break
    if "://" in path:
        raise ArgumentError(
            f"{path}: a store is written to a file system that driver and executors mount; save it "
            "there and copy it"
        )
    return os.path.realpath(path)


def _holds_store(target: str) -> bool:
    """Returns whether messages are to be appended to a store there; False for nothing at all."""
    try:
        names = sorted(os.listdir(target))
    except FileNotFoundError:
        return False
    except NotADirectoryError:
        raise ArgumentError(
            f"{target} is a file; save the store to a directory, or to a path that does not exist"
        ) from None
    except OSError as error:
        raise DiskError(error.errno or 0, f"{target}: {error.strerror}") from error

    if not names:
        return False

    facts = Directory.inspect(target)
    if not facts.is_store and not is_remembered(target) and "commitlog" not in names:
        raise ArgumentError(
            f"{target} is not a store and not empty (it has {', '.join(names[:3])}"
            f"{', ...' if len(names) > 3 else ''}); save to another path"
        )

    facts.require_writable_parts()
    return True


def _config(target: str, settings: Mapping[str, Any]) -> StoreConfig:
    """Returns the configuration that the store at *target* has, or will have."""
    config = remembered(target).replace(**settings)
    found = adapt(config, Directory.inspect(target), ())
    wrong = [
        f"option {about.key}: the store at {target} has {getattr(found, name)}, not "
        f"{settings[name]}; leave it out"
        for name, about in StoreConfig.options().items()
        if name in settings and getattr(found, name) != settings[name]
    ]
    if wrong:
        raise ArgumentError("\n  ".join(("a store keeps the sizes it was made with:", *wrong)))
    return found


# ---- directories and files


def _missing_parents(target: str) -> list[str]:
    """Returns the folders above *target* that are not there, the uppermost first."""
    missing: list[str] = []
    parent = os.path.dirname(target)
    while not os.path.lexists(parent):
        missing.insert(0, parent)
        parent = os.path.dirname(parent)
    return missing


def _make_staging(target: str) -> str:
    """Makes a directory on the file system of *target*, beside it or the first folder missing."""
    beside = next(iter(_missing_parents(target)), target)
    name = f".{os.path.basename(target)}.rmqstore-{uuid.uuid4().hex}"
    path = os.path.join(os.path.dirname(beside), name)
    try:
        os.mkdir(path)
    except OSError as error:
        raise DiskError(error.errno or 0, f"{path}: {error.strerror}") from error
    return path


def _remove(staging: str) -> None:
    """Removes the directory of a job, under another name, so that a task that still runs cannot
    make files in it."""
    gone = f"{staging}.removed"
    try:
        os.rename(staging, gone)
    except FileNotFoundError:
        pass
    except OSError as error:
        _log().warning("%s: left behind: %s", staging, error)
        return
    shutil.rmtree(gone, ignore_errors=True)
    if os.path.exists(gone):
        _log().warning("%s: left behind; it may be deleted", gone)


def _staged(messages: Sequence[WriterCommitMessage | None]) -> Iterator[StagedFile]:
    for message in messages:
        if not isinstance(message, StagedFile):
            raise ArgumentError(
                f"a task returned {message!r}, which is not a staged file; write the rows again"
            )
        if message.records:
            yield message


def _keep_timestamps(files: Sequence[StagedFile]) -> bool:
    return any(staged.keeps_timestamps for staged in files)


def _check_timestamps(files: Sequence[StagedFile]) -> None:
    """Raise MessageRejected where some files have store timestamps and others do not."""
    without = next((staged for staged in files if not staged.keeps_timestamps), None)
    if without is not None and _keep_timestamps(files):
        raise MessageRejected(
            f"row 0 of partition {without.partition}: {_SOME_TIMESTAMPS}", status="MESSAGE_ILLEGAL"
        )


def _chunks_of(staged: StagedFile) -> Iterator[memoryview]:
    """Yields each chunk in one buffer, so that it must be used before the next one is taken."""
    try:
        with open(staged.path, "rb", buffering=0) as file:
            with memoryview(bytearray(max(size for size, _ in staged.chunks))) as buffer:
                at = 0
                for size, crc in staged.chunks:
                    with buffer[:size] as chunk:
                        if _fill(file, chunk) < size or core.crc32(chunk) != crc:
                            raise CorruptionError(
                                f"{staged.path}: {size} bytes at {at} are not those that the task "
                                f"of partition {staged.partition} wrote; write the rows again",
                                path=staged.path,
                                kind="staged file",
                            )
                        yield chunk
                    at += size
    except OSError as error:
        if isinstance(error, StoreError):
            raise
        raise DiskError(error.errno or 0, f"{staged.path}: {error.strerror}") from error


def _fill(file: Any, chunk: memoryview) -> int:
    at = 0
    while at < len(chunk):
        count = file.readinto(chunk[at:])
        if not count:
            break
        at += count
    return at


def _newest_timestamp(store: Store) -> int:
    """Returns the newest store timestamp of the last messages of all queues, 0 without any."""
    newest = 0
    for queue in store.queues():
        if len(queue):
            newest = max(newest, queue.get(queue.end - 1).store_timestamp)
    return newest


def _log() -> logging.Logger:
    import logging

    return logging.getLogger("rmqstore.spark")
