"""What the metadata files have in common: how they are read, and saved so that none is lost."""

from __future__ import annotations

import itertools
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from rmqstore.errors import ArgumentError, CorruptionError, DiskError
from rmqstore.store.folder import Folder, FolderLike, folder_at
from rmqstore.store.metadata.json_text import parse, pretty
from rmqstore.store.metadata.members import Members

__all__ = ["Table"]


@dataclass(frozen=True, slots=True)
class Table:
    """What the files have in common: members of one JSON object, a version, and how they are
    kept."""

    FILE_NAME: ClassVar[str]

    @classmethod
    @abstractmethod
    def _from_members(cls, members: Members) -> Self: ...

    @abstractmethod
    def _members(self) -> dict[str, Any]: ...

    def _printed_members(self) -> dict[str, Any]:
        """Returns the members with the texts of entries that are printed already."""
        return self._members()

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the table a file's *text* holds. Raises ValueError naming the member at fault."""
        return cls._from_members(Members(parse(text), ""))

    def to_json(self) -> str:
        """Return the file's text as RocketMQ 5.3 writes it: tab-indented, numeric keys unquoted.

        Raises ArgumentError when a member is not a JSON value.
        """
        try:
            text = pretty(dict(sorted(self._printed_members().items())), depth=0)
            text.encode()
        except (RecursionError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"a member for {self.FILE_NAME} is not a JSON value ({error}); give text, numbers, "
                "lists or objects"
            ) from error
        return text

    def to_body(self) -> bytes:
        """Return the text as the body of a frame: strict JSON on one line."""
        import json

        members = self._members()
        return json.dumps(members, ensure_ascii=False, separators=(",", ":")).encode()

    @classmethod
    def load(cls, root: FolderLike) -> Self:
        """Return the table of the store at *root*; an empty one when there is no file.

        A missing, empty or unreadable file gives way to its .bak. Raises CorruptionError when a
        file is there and neither can be read, DiskError when the system refuses.
        """
        folder, name = folder_at(root), f"config/{cls.FILE_NAME}"
        problems: list[str] = []

        for candidate in (name, f"{name}.bak"):
            try:
                return cls.from_json(folder.read(candidate).decode())
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _disk_error(error, "read", folder.place(candidate)) from error
            except ValueError as error:
                problems.append(f"{folder.place(candidate)}: {error}")

        if not problems:
            return cls()
        raise CorruptionError(
            f"{'; '.join(problems)}; restore the file from a copy, or move it away to start empty",
            path=folder.place(name),
            kind="metadata",
            suggested_command="rmqstore verify PATH",
        )

    def save(self, root: FolderLike, *, is_file_whole: bool = False) -> None:
        """Write the table to the store at *root*; when this returns, it survives a power loss.

        At every moment before, the file or its .bak holds a whole older table. *is_file_whole*
        means that the caller wrote the present file, which is therefore not read again.
        Raises DiskError.
        """
        folder, name = folder_at(root), f"config/{self.FILE_NAME}"
        try:
            self._keep_predecessor(folder, name, is_whole=is_file_whole)
            folder.replace(name, self.to_json().encode())
        except OSError as error:
            raise _disk_error(error, "write", folder.place(name)) from error

    def _keep_predecessor(self, folder: Folder, name: str, *, is_whole: bool) -> None:
        """Copies a readable file to .bak; one that is not must not push out a good .bak."""
        try:
            old = folder.read(name)
        except FileNotFoundError:
            return
        try:
            if not is_whole:
                type(self).from_json(old.decode())
        except ValueError:
            names = (f"{name}.damaged{number or ''}" for number in itertools.count())
            folder.rename(name, next(each for each in names if not folder.has(each)))
        else:
            folder.replace(f"{name}.bak", old)


def _disk_error(error: OSError, act: str, place: str) -> DiskError:
    return DiskError(error.errno or 0, f"cannot {act} {place}: {error.strerror}")
