"""The commit log of a store, as the machines of replication see and change it.

Bytes from a master arrive in pieces that ignore record boundaries. `check` walks the appended
bytes, with their CRCs, and only complete records are confirmed, so that neither queues nor readers
get a damaged record (docs/defects.md, H23). Messages that were put to this store are complete from
the start and are not walked.

The epoch list is in two files under the root of the store, each replaced durably (H12). So are the
file of further epoch state, and the file with the promised offset: a physical offset in decimal
digits, or "confirm" if it is the confirm offset of the checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.errors import ArgumentError, CorruptionError, DiskError
from rmqstore.regular_file import read_regular
from rmqstore.replication.group.epoch_state import (
    EpochState,
    format_epoch_state,
    parse_epoch_state,
)
from rmqstore.replication.protocol.events import (
    CUT_BYTES_MAX,
    Append,
    Effect,
    FlushLog,
    PromiseConfirm,
    Restart,
    SaveEpochs,
    SaveEpochState,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.runtime.logger import log as logger
from rmqstore.store.directory import EPOCH_FILE, EPOCH_STATE_FILE, PROMISE_FILE
from rmqstore.store.replica_view import ReplicaView

__all__ = ["StoreLog"]


class StoreLog:
    """A LogView over a store, changed by effects; one at a time for a store.

    *is_gated*: readers see what is below the confirm offset that a master's frames or the replicas'
    acknowledgements name. Without it, as in the classic protocol, a slave's readers see every whole
    record, a master's everything. *cut_bytes_max* is that of `HaOptions`.

    Calls come from one thread at a time; retention may expire files beside them. Every method
    raises StoreError where the disk or the store refuses, and has then changed nothing that a
    second call would not put right.
    """

    def __init__(
        self,
        store: ReplicaView,
        *,
        is_gated: bool = True,
        cut_bytes_max: int = CUT_BYTES_MAX,
    ) -> None:
        self._store = store
        self._files = _EpochFolder(store)
        self._lock = threading.Lock()
        self._file_size = store.file_size
        self._cut_bytes_max = cut_bytes_max
        self._lowered_to: int | None = None
        self._checked = store.end_offset
        """Records end here, and those before it are whole."""
        if store.raw_end > 0:
            # The dispatcher may be ahead of a blank that is not whole.
            self._checked = min(store.dispatched_offset, self._checked_start())
        self.is_gated = is_gated
        self.damage: CorruptionError | None = None
        """What is wrong where the last `check` found damage."""
        self._epochs = self._load_epochs()
        self._epoch_state = self._load_epoch_state()
        self._promised: int | None = self._load_promise()
        """Up to here the log was promised, None for up to the confirm offset."""
        if not is_gated:
            self._promise(is_promise=False)
        if is_gated:
            self.gate()
        elif store.confirm_bound >= 0:
            self._confirm(self.whole_end)
        self._expiry = store.watchers.subscribe("expired", self._trim)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let the store go, its view with it. What is held back from readers stays so. Twice is
        harmless."""
        self._expiry.close()
        self._store.close()

    # ---- what there is

    @property
    def start_offset(self) -> int:
        """The first byte held."""
        return max(self._store.start_offset, 0)

    @property
    def end_offset(self) -> int:
        """Behind the last byte held; 0 for a log that never held one."""
        return self._store.end_offset

    @property
    def flushed_offset(self) -> int:
        """Behind the last byte known to be on the disk."""
        return min(self._store.flushed_offset, self.end_offset)

    @property
    def confirm_offset(self) -> int:
        """Up to here readers may see the log; its end where nothing is held back."""
        # The bound is read last: where it begins to hold, the log may go on beyond it at once.
        end = self.end_offset
        bound = self._store.confirm_bound
        return end if bound < 0 else min(max(bound, self.start_offset), end)

    @property
    def is_promised(self) -> bool:
        """Whether the confirm offset is a promise."""
        return self._promised is None

    @property
    def promised_offset(self) -> int:
        """Up to here the log was promised; its end at most."""
        if self._promised is None:
            return self.confirm_offset
        return min(self._promised, self.end_offset)

    @property
    def whole_end(self) -> int:
        """Behind the last whole record, as far as was checked."""
        end = self.end_offset
        if self._store.raw_end <= self._checked:
            self._checked = end
        return min(max(self._checked, self.start_offset), end)

    @property
    def last_file_start(self) -> int:
        """Where the last log file that holds bytes begins."""
        end = self.end_offset
        return max((end - 1) // self._file_size * self._file_size, self.start_offset)

    @property
    def last_record_start(self) -> int:
        """Where the last whole message begins (no blank); start_offset when there is none."""
        return max(self._store.last_record(), self.start_offset)

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """The entries of the log's epoch list, as saved."""
        return self._epochs.entries

    @property
    def epoch_state(self) -> EpochState:
        """What is kept about epochs beside the list, as saved."""
        return self._epoch_state

    def file_end(self, offset: int) -> int:
        """Return where the log file that holds *offset* ends, full or not."""
        return offset - offset % self._file_size + self._file_size

    def is_border(self, offset: int) -> bool:
        """Return whether a record begins or the log ends at *offset*."""
        return self._store.is_border(offset)

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of *size* bytes from *offset* on.

        Raises OffsetOutOfRange unless all of them are held.
        """
        return self._store.read(offset, size)

    # ---- whole records

    def check(self) -> int | None:
        """Walk the records that became complete since the last call; return the offset of damage.

        None without damage; otherwise `damage` describes it. Not to be called during an append.
        """
        border = self.whole_end
        self.damage = None
        if border < self.end_offset:
            self._checked, self.damage = self._store.whole_end(border)
        if not self.is_gated and self._store.confirm_bound >= 0:
            self._raise_confirm(self._checked)
        return self._checked if self.damage is not None else None

    def checked(self, border: int) -> None:
        """Record that the pump has checked all records below the record boundary *border*."""
        self._checked = max(self._checked, border)
        if not self.is_gated and self._store.confirm_bound >= 0:
            self._raise_confirm(self.whole_end)

    # ---- roles

    def gate(self) -> None:
        """Hide unconfirmed records from readers from now on; called before a slave begins.

        Present records count as confirmed, dispatched or not: readers saw them, or may see them.
        Does nothing if unconfirmed records are hidden already.
        """
        if self._store.confirm_bound < 0:
            self._confirm(self.whole_end)

    def settle(self) -> None:
        """Cut a partial record and let puts continue, dispatched or not; called before a master
        begins (H8).

        Undispatched records keep the queue offsets they took (H24). Without a gate everything is
        shown.
        """
        self.check()
        self._store.settle(self.whole_end)
        self.damage = None
        self._checked = self.end_offset
        if not self.is_gated:
            self._store.set_confirm_offset(-1)

    # ---- effects

    def carry_out(self, effect: Effect) -> None:
        """Apply *effect* to the log: Append, TruncateTo, Restart, FlushLog, SaveEpochs,
        SaveEpochState, SetConfirm or PromiseConfirm; durable on return if the effect requires it.

        Whole records are copied to `cut/` before they are cut or given up, with a warning: another
        replica may count them as stored here. A lower confirm offset takes effect with the cut that
        must follow. Raises ArgumentError for other effects, OffsetOutOfRange for an offset that is
        no border, StoreError.
        """
        lowered_to, self._lowered_to = self._lowered_to, None
        if lowered_to is not None and not isinstance(effect, TruncateTo | Restart):
            raise ArgumentError(
                f"the confirm offset goes back to {lowered_to} only with a cut, not before {effect}"
            )
        match effect:
            case Append(offset, data):
                self._append(offset, data)
            case TruncateTo(offset):
                self._keep(offset, offset)
                self._store.truncate_to(offset)
                if self._promised is not None and self._promised > offset:
                    self._save_promise(offset)
                self._checked = min(self._checked, offset)
                self.damage = None
            case Restart(offset):
                self._keep(self.start_offset, self._first_kept())
                self._store.restart(offset)
                self._checked = offset
                self.damage = None
            case FlushLog():
                self._store.wait_flushed()
            case SaveEpochs(entries):
                self._save(EpochList(entries))
            case SaveEpochState(state):
                self._store.replace_file(EPOCH_STATE_FILE, format_epoch_state(state).encode())
                self._epoch_state = state
            case PromiseConfirm(is_promise):
                self._promise(is_promise=is_promise)
            case SetConfirm(offset):
                if offset < self.confirm_offset:
                    self._lowered_to = offset
                else:
                    self._raise_confirm(min(offset, self.whole_end))
            case _:
                raise ArgumentError(f"{effect} is nothing that a log can do")

    def _append(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        # What was put until here is whole, and the first piece that comes raw may not be seen.
        self._checked = self.whole_end
        self.gate()
        self._store.append_raw(offset, data)

    def _keep(self, start: int, copy_start: int) -> None:
        """Copy the bytes that are cut from *start* on, if they are at or after *copy_start*."""
        stop = self.whole_end
        if start >= stop:
            return
        path = self._store.copy_cut(copy_start, stop)
        logger().warning(
            "%s: %d bytes of messages from %d to %d are taken off this log; other replicas may "
            "count them as stored here. Those from %d on are copied to %s",
            self._store.path,
            stop - start,
            start,
            stop,
            copy_start,
            Path(self._store.path, path),
        )

    def _first_kept(self) -> int:
        """Return where the copy begins of a log that is given up: at a log file."""
        first = self.file_end(self.whole_end - self._cut_bytes_max - 1)
        return max(min(first, self.last_file_start), self.start_offset)

    def _raise_confirm(self, offset: int) -> None:
        if 0 <= self._store.confirm_bound < offset:
            self._confirm(offset)

    def _confirm(self, offset: int) -> None:
        self._store.set_confirm_offset(offset)

    def _checked_start(self) -> int:
        end = self._store.end_offset
        return end - end % self._file_size if self._store.dispatched_offset > end else end

    # ---- the promise

    def _promise(self, *, is_promise: bool) -> None:
        if is_promise != self.is_promised:
            self._save_promise(None if is_promise else self.confirm_offset)

    def _save_promise(self, offset: int | None) -> None:
        text = "confirm" if offset is None else str(offset)
        self._store.replace_file(PROMISE_FILE, f"{text}\n".encode("ascii"))
        self._promised = offset

    def _load_promise(self) -> int | None:
        path = Path(self._store.path, PROMISE_FILE)
        try:
            text = path.read_bytes().decode("ascii", "replace").strip()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise DiskError(error.errno or 0, f"cannot read {path}: {error.strerror}") from error
        if text.isdecimal() and len(text) <= 19:
            return int(text)
        if self._store.confirm_bound == -1:
            # The store went on alone, without the confirm offset that was a promise.
            self._save_promise(0)
            return 0
        # What cannot be read is taken for the promise that keeps most.
        return None

    # ---- epochs

    def _load_epochs(self) -> EpochList:
        try:
            return EpochList.recover(
                self._files, log_start=self.start_offset, log_end=self.end_offset
            )
        except CorruptionError as error:
            path = Path(self._store.path, EPOCH_FILE)
            raise CorruptionError(
                f"{path} and its copy {path.name}.bak cannot be read: {error}. Nothing was "
                "changed; put those of a backup of this store in their place, or begin with an "
                "empty store that copies its master's log",
                path=str(path),
                kind=error.kind,
                suggested_command=f"rmqstore epoch {self._store.path}",
            ) from error

    def _load_epoch_state(self) -> EpochState:
        path = Path(self._store.path, EPOCH_STATE_FILE)
        try:
            return parse_epoch_state(path.read_bytes().decode("ascii", "replace"))
        except FileNotFoundError:
            return self._guessed_state()
        except OSError as error:
            raise DiskError(error.errno or 0, f"cannot read {path}: {error.strerror}") from error
        except CorruptionError as error:
            raise CorruptionError(
                f"{path}: {error}. Nothing was changed; restore the file from a backup of this "
                "store, or remove it and follow a master: without it this replica may acknowledge "
                "to a master that was replaced",
                path=str(path),
                kind=error.kind,
            ) from error

    def _guessed_state(self) -> EpochState:
        """Return the state of a store without the file: RocketMQ wrote it last, or it was never
        replicated."""
        last = self._epochs.last
        if last is None:
            return EpochState()
        # A RocketMQ broker that did not stop cleanly may have been the master of its last epoch.
        was_closed = self._store.recovery.was_closed
        return EpochState(master_epoch=-1 if was_closed else last.epoch, has_replicas=True)

    def _save(self, epochs: EpochList) -> None:
        with self._lock:
            epochs.save(self._files)
            self._epochs = epochs

    def _trim(self) -> None:
        with self._lock:
            kept = self._epochs.trim_before(self.start_offset)
            if kept != self._epochs:
                kept.save(self._files)
                self._epochs = kept


class _EpochFolder:
    """The two epoch files under the root of a store."""

    def __init__(self, store: ReplicaView) -> None:
        self._store = store

    def read(self, name: str) -> str | None:
        path = Path(self._store.path, EPOCH_FILE + name)
        try:
            return read_regular(path).decode("ascii", "replace")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise DiskError(error.errno or 0, f"cannot read {path}: {error.strerror}") from error

    def replace(self, name: str, text: str) -> None:
        self._store.replace_file(EPOCH_FILE + name, text.encode("ascii"))

    def remove(self, name: str) -> None:
        self._store.remove_file(EPOCH_FILE + name)
