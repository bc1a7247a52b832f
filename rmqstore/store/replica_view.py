"""The inner interface of a store that replication uses.

What applications see of a store is `rmqstore.Store`. Replication also appends bytes that are not
whole records yet, cuts and restarts the log, bounds what readers see, and decides who may put.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from rmqstore import forks
from rmqstore._native.core import AckBoard, Pump
from rmqstore.errors import ArgumentError, CorruptionError

if TYPE_CHECKING:
    from rmqstore.store.store import Recovery, Store
    from rmqstore.store.watchers import Watchers

__all__ = ["ReplicaView"]

_taking = threading.Lock()
"""Held while a view takes a store."""


class ReplicaView:
    """A store as the replication of it sees and changes it; one at a time for a store.

    A context manager. Offsets are physical ones. Every method may be called from any thread, and
    raises StoreClosedError once the store is closed.

    Raises ArgumentError for a store that is opened read-only, or has a view already.
    """

    def __init__(self, store: Store) -> None:
        if store.read_only:
            raise ArgumentError(f"store {store.path} is opened read-only; open it for writing")
        with _taking:
            if store._replica_view is not None:
                raise ArgumentError(
                    f"store {store.path} is replicated already; use what does that, or close it"
                )
            store._replica_view = self
        self._store = store

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another view take the store. A second call does nothing."""
        if self._store._replica_view is self:
            self._store._replica_view = None

    @property
    def path(self) -> str:
        """The root of the store."""
        return self._store.path

    @property
    def watchers(self) -> Watchers:
        """Who is notified when the log grows, files expire or the store closes."""
        return self._store.watchers

    @property
    def recovery(self) -> Recovery:
        """What opening the store found."""
        return self._store.recovery

    # -- offsets

    @property
    def start_offset(self) -> int:
        """The first byte held; -1 while the log is empty."""
        return self._store.start_offset

    @property
    def end_offset(self) -> int:
        """After the last byte held; 0 for a log that never held one."""
        return self._store.end_offset

    @property
    def flushed_offset(self) -> int:
        """Everything below it is on the disk."""
        return self._store.flushed_offset

    @property
    def dispatched_offset(self) -> int:
        """Queues and index hold everything below it."""
        return self._store.dispatched_offset

    @property
    def confirm_bound(self) -> int:
        """The confirm offset that was set, which may be past the log's end; -1 for none."""
        return self._store._confirm_bound

    @property
    def raw_end(self) -> int:
        """After the last byte that `append_raw` appended since the log was settled; 0 for none."""
        return self._store._raw_end

    @property
    def file_size(self) -> int:
        """The size of each log file."""
        return self._store.config.commit_log_file_size_bytes

    # -- reading

    def read(self, offset: int, size: int) -> bytes:
        """Return a copy of *size* bytes of the log. Raises OffsetOutOfRange unless all are held."""
        return self._store._log_bytes(offset, size)

    def is_border(self, offset: int) -> bool:
        """Return whether a record begins, or the log ends, at *offset*."""
        return self._store._is_border(offset)

    def last_record(self) -> int:
        """Return where the last whole record begins, -1 when there is none."""
        return self._store._last_record()

    def whole_end(self, border: int) -> tuple[int, CorruptionError | None]:
        """Return where the last whole record after *border* ends, and what is wrong there.

        Records are checked, CRCs included; *border* must be where one begins.
        """
        return self._store._whole_end(border)

    def wait_flushed(self) -> None:
        """Return when the log is on the disk. Raises as `Store.wait_flushed`."""
        self._store.wait_flushed()

    def wait_dispatched(self, offset: int, *, timeout: float) -> None:
        """Return when readers see the log below *offset*. Raises as `Store.wait_dispatched`."""
        self._store.wait_dispatched(offset, timeout=timeout)

    def wait_dispatched_beyond(self, seen: int, timeout: float) -> None:
        """Return when the dispatched offset is above *seen*, or after *timeout* seconds."""
        self._store._await_change(seen, timeout)

    # -- changing the log

    def append_raw(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Append bytes of another log; see `Store.append_raw`."""
        self._store.append_raw(offset, data)

    def truncate_to(self, offset: int) -> None:
        """End the log at *offset*; see `Store.truncate_to`."""
        self._store.truncate_to(offset)

    def restart(self, offset: int) -> None:
        """Remove the whole log; the next byte is the one at *offset*.

        That is 0, or where a log file of this store's size begins, not below the log's end. Raises
        OffsetOutOfRange for any other offset; nothing has changed then.
        """
        self._store._restart(offset)

    def settle(self, whole_end: int) -> None:
        """Cut the log after its last whole record, which ends at *whole_end*, and let puts go on,
        dispatched or not."""
        self._store._settle_raw(whole_end)

    def copy_cut(self, start: int, stop: int) -> str:
        """Copy bytes that are about to be cut; return the path of the copy below the root."""
        return self._store._copy_cut(start, stop)

    def set_confirm_offset(self, offset: int) -> None:
        """Dispatch nothing past *offset*, and keep it in the checkpoint; -1: no bound."""
        self._store._set_confirm_offset(offset)

    # -- files beside the log

    def replace_file(self, name: str, data: bytes) -> None:
        """Replace a file under the root, whole or not at all; durable on return."""
        self._store._replace_file(name, data)

    def remove_file(self, name: str) -> None:
        """Remove a file under the root if it is there; durable on return."""
        self._store._remove_file(name)

    # -- puts

    @property
    def master_hint(self) -> str | None:
        """The address of the master, for the error of refused puts; None: unknown."""
        return self._store._master_hint

    @master_hint.setter
    def master_hint(self, address: str | None) -> None:
        self._store._master_hint = address

    def refuse_puts(self) -> None:
        """Refuse puts from now on. On return no put that was admitted can still append."""
        self._store._refuse("role")

    def accept_puts(self, board: AckBoard) -> None:
        """Let *board* admit puts, and let them wait there for copies."""
        self._store._board = board
        self._store._refuse("role", False)

    def leave_board(self) -> None:
        """Take the board away; puts that wait there go on to wait."""
        self._store._board = None

    # -- the native parts of a master and a slave

    def make_board(self) -> AckBoard:
        """Return a board of the acknowledgements of this store's replicas."""
        return AckBoard(self._store)

    def make_pump(self, board: AckBoard | None = None) -> Pump:
        """Return a pump of the log, a master's with its *board*. A forked child does not keep
        it."""
        return forks.make(
            lambda: Pump(self._store, board),
            Pump.disown,
            before=Pump.before_fork,
            in_parent=Pump.after_fork,
        )
