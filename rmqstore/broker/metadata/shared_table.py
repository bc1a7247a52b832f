"""A table of a broker that its slaves copy: its file, its entries, its version."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rmqstore.broker.metadata.changes import ChangeLog, Entry
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.folder import FolderLike
from rmqstore.store.metadata import DataVersion
from rmqstore.store.metadata.journal import Change
from rmqstore.store.metadata.journaled import JournaledTable
from rmqstore.store.metadata.table import Table

__all__ = ["LargeTable", "SharedTable", "Versions"]


class Versions:
    """Makes the next versions of the tables of one broker."""

    def __init__(self, wall_ms: Callable[[], int]) -> None:
        self._wall_ms = wall_ms
        self.state_version = 0
        """The epoch of the master."""

    def now_ms(self) -> int:
        """Return the time of the wall clock."""
        return self._wall_ms()

    def after(self, version: DataVersion) -> DataVersion:
        """Return the version that follows *version*."""
        return version.next(now_ms=self.now_ms(), state_version=self.state_version)


class SharedTable(ABC):
    """One table. The master changes it; a slave takes it whole, and then entry by entry.

    `Tables` attaches it, and loads it after that.
    """

    name: ClassVar[str]
    """In the log, and among the files that are saved."""
    kinds: ClassVar[tuple[str, ...]]
    """The names of its kinds of entries in a change."""
    is_urgent: ClassVar[bool] = True
    """Whether a request waits until a change is kept. A table that is not urgent may be as old as
    its last regular save, on a master too."""
    version_name: ClassVar[str] = ""
    """The name of its version in a change; "" for a table without one."""
    file_type: ClassVar[type[Table]]
    code: ClassVar[RequestCode | None]
    """The request for the whole table. None: a slave that joins gets every entry as a change."""
    may_lack: ClassVar[bool] = False
    """Whether a master of RocketMQ may be without the table."""

    def attach(self, log: ChangeLog, versions: Versions) -> None:
        """Note changes in *log*, with versions that *versions* makes."""
        self._log = log
        self._versions = versions

    def load(self, root: FolderLike) -> None:
        """Have what the file of a store holds. Raises CorruptionError, DiskError."""
        self.take_whole(self.file_type.load(root))

    @abstractmethod
    def whole(self) -> Table:
        """Return the table of this moment."""

    def saved(self) -> Table:
        """Return what the file is to hold."""
        return self.whole()

    @abstractmethod
    def take_whole(self, table: Any) -> None:
        """Have exactly *table*, of `file_type`, with its version."""

    def of_master(self, table: Any) -> Any:
        """Return what a slave takes of the *table* of its master."""
        return table

    def is_at(self, table: Any) -> bool:
        """Return whether `take_whole` of *table* would change nothing."""
        return bool(self.whole() == table)

    @property
    def version(self) -> DataVersion:
        """The present version; an empty one for a table without versions."""
        return DataVersion()

    def take_version(self, version: DataVersion) -> None:  # noqa: B027
        """Have the version of a master whose entries are all here."""

    @abstractmethod
    def lead(self) -> None:
        """Begin as the table of a new master, whose epoch the next versions have."""

    def note_all(self) -> None:  # noqa: B027
        """Note every entry as changed; a table with a request for the whole needs it not."""

    @abstractmethod
    def value_of(self, entry: Entry) -> Any:
        """Return the JSON value of an entry, None for one that is not there."""

    @abstractmethod
    def read(self, entry: Entry, value: Any) -> Any:
        """Return the JSON value of an entry as `take` takes it; None stands for a removed entry.
        Raises ValueError."""

    @abstractmethod
    def take(self, changes: Sequence[tuple[Entry, Any]]) -> None:
        """Set entries of a master to values that `read` returned; None removes one."""


class LargeTable(SharedTable):
    """A table whose changes are saved one by one, so that a change costs the same in a large table
    as in a small one. Each change takes a step of the version."""

    file_type: ClassVar[type[JournaledTable]]

    def __init__(self) -> None:
        self._version = self._saved_version = DataVersion()
        self._unsaved: dict[Entry, None] = {}
        self.is_replaced = False
        """Whether the table was replaced since `whole_to_save`, so that no change leads there."""
        self.take_whole(self.file_type())
        self.loaded()

    def loaded(self) -> None:
        """Have the present content as what is saved."""
        self._unsaved.clear()
        self.is_replaced, self._saved_version = False, self._version

    def whole_to_save(self) -> JournaledTable:
        """Return the table of this moment; `change_to_save` returns what changes after it."""
        whole: JournaledTable = self.saved()  # type: ignore[assignment]
        self.loaded()
        return whole

    def change_to_save(self) -> Change | None:
        """Return what changed since the last call, None for nothing."""
        if not self._unsaved and self._saved_version == self._version:
            return None
        entries = [(*entry, self.value_of(entry)) for entry in self._unsaved]
        self.loaded()
        return Change(entries, self._version)

    @property
    def version(self) -> DataVersion:
        return self._version

    def take_version(self, version: DataVersion) -> None:
        self._version = version

    def lead(self) -> None:
        if self._version.state_version != self._versions.state_version:
            self._version = self._versions.after(self._version)

    def read(self, entry: Entry, value: Any) -> Any:
        return self.file_type.entry(entry.table, entry.key, value)

    def take(self, changes: Sequence[tuple[Entry, Any]]) -> None:
        for entry, value in changes:
            self._set(entry, value)

    @abstractmethod
    def _entries_of(self, kind: str) -> dict[str, Any]:
        """Return the entries of a kind, by key."""

    def _set(self, entry: Entry, value: Any) -> None:
        entries = self._entries_of(entry.table)
        if value is None:
            entries.pop(entry.key, None)
        else:
            entries[entry.key] = value
        self._unsaved[entry] = None

    def _change(self, kind: str, key: str, value: Any) -> int:
        """Set an entry, as a master; None removes it. Return the number of the change."""
        self._set(Entry(kind, key), value)
        self._version = self._versions.after(self._version)
        return self._log.note(kind, key, is_removed=value is None)
