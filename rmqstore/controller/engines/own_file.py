"""The engine for a controller with a single node: a durable file of its own.

Commands that arrive during the sync of a record are written together in the next record. After
every *snapshot_entries* commands the state is written to `snapshot`, and the log is started again.
After a crash in between, the log has entries that the snapshot covers; the next start skips them.

If a write fails, on a full disk for example, it is undone and its proposals are refused; later
proposals are attempted again. A failed sync, or a write that cannot be undone, ends the engine: the
bytes on the disk are unknown, and the next start reads them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from rmqstore import arguments
from rmqstore.controller.engines.engine import (
    Applied,
    Apply,
    Leadership,
    Outcome,
    Restore,
    Snapshot,
)
from rmqstore.controller.engines.files import AppendFile, Directory, OsDirectory
from rmqstore.controller.engines.log_file import (
    COMMANDS,
    RECORD_SIZE_MAX,
    TERM,
    LogContent,
    Record,
    SnapshotContent,
    encode_header,
    encode_record,
    encode_snapshot,
    parse_log,
    parse_snapshot,
    record_size,
)
from rmqstore.errors import (
    ArgumentError,
    CorruptionError,
    DiskError,
    StoreError,
    disk_errors,
)
from rmqstore.net.identity_log import IdentityLog

__all__ = ["OwnFileEngine"]

_LOG, _SNAPSHOT = "log", "snapshot"
_BATCH_COUNT_MAX = 1000
_BATCH_BYTES_MAX = 1024 * 1024
_logger = IdentityLog("rmqstore.controller")

_Proposal = tuple[bytes, "asyncio.Future[Applied]"]


class OwnFileEngine:
    """A log in one directory, which one process uses at a time."""

    def __init__(
        self,
        directory: str | os.PathLike[str] | Directory,
        *,
        node_id: str = "n0",
        snapshot_entries: int = 10_000,
    ) -> None:
        self._place = directory
        self._node_id = node_id
        self._snapshot_entries = arguments.integer("snapshot_entries", snapshot_entries, low=1)
        self._directory: Directory | None = None
        self._file: AppendFile | None = None
        self._end = 0
        self._index = self._term = self._snapshot_index = 0
        self._failure: StoreError | None = None
        self._waiting: list[_Proposal] = []
        self._arrived = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="rmqstore-controller-log")
        self._watchers: list[Callable[[Leadership], None]] = []
        self._apply: Apply = _unstarted
        self._snapshot: Snapshot = _no_state

    @property
    def failure(self) -> StoreError | None:
        """The reason why the engine ended; None while it works."""
        return self._failure

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        """Apply the log, then begin a term. Raises CorruptionError, DiskError or
        StoreLockedError."""
        self._apply, self._snapshot = apply, snapshot
        loop = asyncio.get_running_loop()
        try:
            kept, content = await loop.run_in_executor(self._thread, self._open)
            if kept is not None:
                restore(kept.state)
                self._index, self._term = kept.index, kept.term
                self._snapshot_index = kept.index
            for record in content.records:
                self._replay(record)
            await loop.run_in_executor(self._thread, self._begin_term)
        except BaseException:
            await loop.run_in_executor(self._thread, self._close_files)
            self._thread.shutdown()
            raise
        self._writer = asyncio.create_task(self._write_proposals())
        self._notify()

    def _replay(self, record: Record) -> None:
        for number, command in enumerate(record.commands or (b"",)):
            index = record.index + number
            if index <= self._snapshot_index:
                continue
            if record.kind == COMMANDS:
                self._apply(index, record.term, command)
            self._index = index
        self._term = max(self._term, record.term)

    def _open(self) -> tuple[SnapshotContent | None, LogContent]:
        """Reads both files, on the thread of the log."""
        with disk_errors("opening the log of the controller"):
            place = self._place
            directory = OsDirectory(place) if isinstance(place, str | os.PathLike) else place
            self._directory = directory
            data, log = directory.read(_SNAPSHOT), directory.read(_LOG)
            kept = None if data is None else parse_snapshot(data, f"{directory.path}/{_SNAPSHOT}")
            if log is None:
                if kept is not None:
                    raise CorruptionError(
                        f"{directory.path}/{_LOG} is missing beside a snapshot; restore the "
                        "directory from a copy",
                        path=directory.path,
                        kind="controller log",
                    )
                log = encode_header(0, 0)
                directory.replace(_LOG, log)
            content = parse_log(log, f"{directory.path}/{_LOG}")
            if content.base_index > (0 if kept is None else kept.index):
                raise CorruptionError(
                    f"{directory.path}: the log begins after index {content.base_index}, and the "
                    f"snapshot goes to {0 if kept is None else kept.index}; restore the directory "
                    "from a copy",
                    path=directory.path,
                    kind="controller log",
                )
            self._file = directory.open(_LOG)
            self._cut_torn(directory, self._file, log, content.end)
        return kept, content

    def _cut_torn(self, directory: Directory, file: AppendFile, log: bytes, end: int) -> None:
        """Removes a torn record from the log, and keeps a copy of its bytes."""
        self._end = end
        if end == len(log):
            return
        name = f"torn-{end}"
        directory.replace(name, log[end:])
        file.truncate(end)
        file.sync()
        _logger.warning(
            "%s: the last record is incomplete; its %d bytes were moved to %s",
            directory.path,
            len(log) - end,
            name,
        )

    def _begin_term(self) -> None:
        with disk_errors("beginning a term in the log of the controller"):
            record = Record(TERM, self._index + 1, self._term + 1)
            self._append(record)
        self._index, self._term = record.index, record.term

    def _append(self, record: Record) -> None:
        """Writes a record durably, on the thread of the log.

        Raises OSError if the file has no byte of the record. Any other failure is stored in
        `failure` and ends the engine.
        """
        file = self._file
        assert file is not None, "the log is open"
        data = encode_record(record, self._end)
        try:
            file.write(data)
        except OSError:
            # Bytes of a refused record must not reappear after a crash.
            with self._fatal("taking back a record"):
                file.truncate(self._end)
                file.sync()
            raise
        with self._fatal("syncing the log of the controller"):
            file.sync()
        self._end += len(data)

    @contextlib.contextmanager
    def _fatal(self, act: str) -> Iterator[None]:
        """Ends the engine after an error in the context."""
        try:
            with disk_errors(act):
                yield
        except StoreError as error:
            self._failure = error
            raise

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        """Commit *command*; see `Engine.propose`."""
        if record_size([command]) > RECORD_SIZE_MAX:
            raise ArgumentError(
                f"a command has {len(command)} bytes; the log takes up to {RECORD_SIZE_MAX}"
            )
        if not self.leadership().is_leader:
            return Outcome.NOT_LEADER, None
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting.append((command, future))
        self._arrived.set()
        try:
            async with asyncio.timeout(timeout):
                return Outcome.COMMITTED, await asyncio.shield(future)
        except (TimeoutError, _EndedError):
            return Outcome.UNKNOWN, None
        finally:
            # A later failure has no caller to report to.
            future.add_done_callback(_take_exception)

    async def _write_proposals(self) -> None:
        """Writes the waiting proposals, until the engine ends."""
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                while self._waiting:
                    await self._write_batch(self._take_batch())
                    await self._compact()
        except (StoreError, asyncio.CancelledError) as error:
            self._end_with(error if isinstance(error, StoreError) else None)
        except BaseException as error:
            _logger.exception("the log of the controller ended")
            self._end_with(StoreError(f"the log of the controller ended: {error!r}"))

    def _take_batch(self) -> list[_Proposal]:
        size, count = 0, 0
        for command, _ in self._waiting[:_BATCH_COUNT_MAX]:
            size += len(command)
            if count and size > _BATCH_BYTES_MAX:
                break
            count += 1
        batch = self._waiting[:count]
        del self._waiting[:count]
        return batch

    async def _write_batch(self, batch: list[_Proposal]) -> None:
        commands = tuple(command for command, _ in batch)
        record = Record(COMMANDS, self._index + 1, self._term, commands)
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, self._append, record)
        except OSError as error:
            if self._failure is not None:
                _end_all(batch)
                raise self._failure from error
            refused = _disk_error(error)
            _logger.error("%s", refused)
            for _, future in batch:
                if not future.done():
                    future.set_exception(refused)
            return
        except BaseException:
            _end_all(batch)
            raise
        for number, (command, future) in enumerate(batch):
            index = record.index + number
            try:
                result = self._apply(index, self._term, command)
            except BaseException:
                _end_all(batch)
                raise
            self._index = index
            if not future.done():
                future.set_result(Applied(index, self._term, result))

    async def _compact(self) -> None:
        """Writes a snapshot and starts the log again, after enough entries."""
        if self._index - self._snapshot_index < self._snapshot_entries:
            return
        content = SnapshotContent(self._index, self._term, self._snapshot())
        loop = asyncio.get_running_loop()
        try:
            await loop.run_in_executor(self._thread, partial(self._write_snapshot, content))
        except OSError as error:
            if self._failure is not None:
                raise
            _logger.warning("no snapshot of the controller: %s", _disk_error(error))
        # After a failure the next attempt follows after the same number of entries.
        self._snapshot_index = content.index

    def _write_snapshot(self, content: SnapshotContent) -> None:
        directory, old = self._directory, self._file
        assert directory is not None, "the log is open"
        assert old is not None, "the log is open"
        directory.replace(_SNAPSHOT, encode_snapshot(content))
        header = encode_header(content.index, content.term)
        try:
            directory.replace(_LOG, header)
        except OSError:
            # If the new log already has the name, later records would go to an unlinked file.
            with self._fatal("beginning the log of the controller again"):
                if len(directory.read(_LOG) or b"") != self._end:
                    raise
            raise
        with self._fatal("beginning the log of the controller again"):
            self._file = directory.open(_LOG)
            self._end = len(header)
            old.close()

    async def read_barrier(self, *, timeout: float) -> int | None:
        """Return the last applied index; None once the engine has ended. No other node can lead
        while this process holds the directory."""
        return self._index if self.leadership().is_leader else None

    def leadership(self) -> Leadership:
        """Return this node as the leader, until it fails or is closed."""
        is_leader = self._writer is not None and self._failure is None
        return Leadership(self._term, is_leader, self._node_id if is_leader else None)

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        """Call *on_change* at each change of leadership; return a function that ends the calls."""
        self._watchers.append(on_change)
        return partial(_remove, self._watchers, on_change)

    def _notify(self) -> None:
        for each in list(self._watchers):
            each(self.leadership())

    def _end_with(self, failure: StoreError | None) -> None:
        self._failure = self._failure or failure
        self._writer = None
        waiting, self._waiting = self._waiting, []
        _end_all(waiting)
        if failure is not None:
            _logger.error("the controller no longer leads: %s", failure)
        self._notify()

    async def close(self) -> None:
        """End the engine; proposals without an outcome become UNKNOWN."""
        writer = self._writer
        loop = asyncio.get_running_loop()
        if writer is not None:
            writer.cancel()
            await asyncio.wait([writer])
        with contextlib.suppress(RuntimeError):  # The thread was shut down by an earlier close.
            await loop.run_in_executor(self._thread, self._close_files)
        self._thread.shutdown()

    def _close_files(self) -> None:
        file, directory = self._file, self._directory
        self._file = self._directory = None
        if file is not None:
            file.close()
        if directory is not None:
            directory.close()


class _EndedError(Exception):
    """The engine ended before an outcome was known."""


def _end_all(proposals: list[_Proposal]) -> None:
    for _, future in proposals:
        if not future.done():
            future.set_exception(_EndedError())


def _take_exception(future: asyncio.Future[Applied]) -> None:
    if not future.cancelled():
        future.exception()


def _disk_error(error: OSError) -> DiskError:
    if isinstance(error, DiskError):
        return error
    text = f"the log of the controller cannot be written: {error.strerror or error}"
    found = DiskError(error.errno or 0, text)
    if found.lacks_space:
        return DiskError(error.errno or 0, f"{text}; make room on its disk")
    return found


def _remove(
    watchers: list[Callable[[Leadership], None]], one: Callable[[Leadership], None]
) -> None:
    with contextlib.suppress(ValueError):
        watchers.remove(one)


def _unstarted(index: int, term: int, command: bytes) -> bytes:
    raise AssertionError("the engine was not started")


def _no_state() -> bytes:
    raise AssertionError("the engine was not started")
