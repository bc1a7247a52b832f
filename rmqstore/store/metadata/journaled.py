"""Tables whose changes are durable in a journal before their file has them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self, TypeVar

from rmqstore.data_version import DataVersion
from rmqstore.errors import CorruptionError
from rmqstore.store.folder import FolderLike, folder_at
from rmqstore.store.metadata.journal import (
    Change,
    FileName,
    change_line,
    changes_after,
    file_line,
    name_of,
)
from rmqstore.store.metadata.table import Table, disk_error

__all__ = ["JournaledFile", "JournaledTable"]


@dataclass(frozen=True, slots=True)
class JournaledTable(Table):
    """A table of entries, each with a kind and a key."""

    JOURNAL_NAME: ClassVar[str]

    @classmethod
    @abstractmethod
    def entry(cls, kind: str, key: str, value: Any) -> Any:
        """Return the entry of a JSON value; None stands for a removed one. Raises ValueError."""

    @abstractmethod
    def with_entries(self, entries: Sequence[tuple[str, str, Any]], version: DataVersion) -> Self:
        """Return the table with entries that `entry` returned, None for removed ones."""

    @classmethod
    def load(cls, root: FolderLike) -> Self:
        return JournaledFile(root, cls).load()


T = TypeVar("T", bound=JournaledTable)


class JournaledFile(Generic[T]):
    """The file of one table below *root*, and its journal. One thread at a time may use it, but for
    `write`, beside which changes may be appended."""

    def __init__(self, root: FolderLike, table_type: type[T]) -> None:
        self._folder = folder_at(root)
        self._type = table_type
        self._journal = f"config/{table_type.JOURNAL_NAME}"
        self._file: FileName | None = None
        """The file that the journal follows; None where the file must be written first."""
        self._lines: list[bytes] = []
        """The changes in the journal."""
        self._is_begun = False
        """Whether the journal is there, and names the file."""
        self._was_left = False
        """Whether `load` found changes in the journal."""

    @property
    def takes_changes(self) -> bool:
        """Whether `append` is possible: the present file is known, and the journal is whole."""
        return self._file is not None

    @property
    def change_count(self) -> int:
        """Changes that were appended since the file."""
        return len(self._lines)

    @property
    def lacks_changes(self) -> bool:
        """Whether the journal has changes that the file lacks."""
        return bool(self._lines) or self._was_left

    def load(self) -> T:
        """Return the table with the changes of the journal. Raises as `Table.load`, and
        CorruptionError for a damaged journal."""
        table, content = self._type.loaded(self._folder)
        try:
            journal = self._folder.read(self._journal)
        except FileNotFoundError:
            self._file = None if content is None else name_of(content)
            return table
        except OSError as error:
            raise disk_error(error, "read", self._folder.place(self._journal)) from error

        # What is there is not appended to: its end may be torn.
        self._file = None
        try:
            changes = changes_after(name_of(content or b""), journal)
            for change in changes:
                entries = [
                    (kind, key, self._type.entry(kind, key, value))
                    for kind, key, value in change.entries
                ]
                table = table.with_entries(entries, change.version)
        except (ValueError, KeyError, TypeError) as error:
            place = self._folder.place(self._journal)
            raise CorruptionError(
                f"{place}: {error}; restore it from a copy, or move it away to go on without its "
                f"changes to {self._type.FILE_NAME}",
                path=place,
                kind="metadata",
                suggested_command="rmqstore verify PATH",
            ) from error
        self._was_left = bool(changes)
        return table

    def append(self, change: Change) -> None:
        """Have a change durably on return. Raises DiskError; then the file must be written."""
        file, line = self._file, change_line(change)
        assert file is not None, "the journal follows a known file"
        self._file = None
        try:
            if self._is_begun:
                self._folder.append(self._journal, line)
            else:
                self._folder.replace(self._journal, file_line(file) + line)
        except OSError as error:
            raise disk_error(error, "write", self._folder.place(self._journal)) from error
        self._file, self._is_begun = file, True
        self._lines.append(line)

    def announce(self, content: bytes, *, has: int) -> None:
        """Let the journal count for a file of *content*, too, which `write` is to put in place: it
        has the first *has* changes. Raises DiskError."""
        if self._file is None or not self._is_begun:
            return
        file, self._file = self._file, None
        try:
            self._folder.append(self._journal, file_line(name_of(content), has=has))
        except OSError as error:
            raise disk_error(error, "write", self._folder.place(self._journal)) from error
        self._file = file

    def write(self, content: bytes, *, is_own: bool) -> None:
        """Put the file in place; *is_own* as `is_file_whole` of `Table.save`. Raises DiskError."""
        self._type.write(self._folder, content, is_file_whole=is_own)

    def restart(self, content: bytes, *, has: int) -> None:
        """Begin the journal again behind the file of *content*, without its first *has* changes.
        Raises DiskError."""
        file, left = name_of(content), self._lines[has:]
        self._file = None
        try:
            if left:
                self._folder.replace(self._journal, file_line(file) + b"".join(left))
            else:
                self._folder.remove(self._journal)
        except OSError as error:
            raise disk_error(error, "write", self._folder.place(self._journal)) from error
        self._file, self._lines, self._is_begun = file, left, bool(left)
        self._was_left = False
