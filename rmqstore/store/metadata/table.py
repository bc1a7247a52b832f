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

__all__ = ["Table", "disk_error"]


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
        return cls.loaded(root)[0]

    @classmethod
    def loaded(cls, root: FolderLike) -> tuple[Self, bytes | None]:
        """Return the table of `load`, and the content of the file that it was read from; None
        without one."""
        folder, name = folder_at(root), f"config/{cls.FILE_NAME}"
        problems: list[str] = []

        for candidate in (name, f"{name}.bak"):
            try:
                content = folder.read(candidate)
                return cls.from_json(content.decode()), content
            except FileNotFoundError:
                continue
            except OSError as error:
                raise disk_error(error, "read", folder.place(candidate)) from error
            except ValueError as error:
                problems.append(f"{folder.place(candidate)}: {error}")

        if not problems:
            return cls(), None
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
        self.write(root, self.to_json().encode(), is_file_whole=is_file_whole)

    @classmethod
    def write(cls, root: FolderLike, content: bytes, *, is_file_whole: bool = False) -> None:
        """Write the *content* of a table's file, as `save` does."""
        folder, name = folder_at(root), f"config/{cls.FILE_NAME}"
        try:
            cls._keep_predecessor(folder, name, is_whole=is_file_whole)
            folder.replace(name, content)
        except OSError as error:
            raise disk_error(error, "write", folder.place(name)) from error

    @classmethod
    def _keep_predecessor(cls, folder: Folder, name: str, *, is_whole: bool) -> None:
        """Copies a readable file to .bak; one that is not must not push out a good .bak."""
        try:
            old = folder.read(name)
        except FileNotFoundError:
            return
        try:
            if not is_whole:
                cls.from_json(old.decode())
        except ValueError:
            names = (f"{name}.damaged{number or ''}" for number in itertools.count())
            folder.rename(name, next(each for each in names if not folder.has(each)))
        else:
            folder.replace(f"{name}.bak", old)


def disk_error(error: OSError, act: str, place: str) -> DiskError:
    """Return the error of a failure to *act* on the file at *place*."""
    return DiskError(error.errno or 0, f"cannot {act} {place}: {error.strerror}")
