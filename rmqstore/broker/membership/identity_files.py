"""The files of a broker's identity; `rmqstore.broker.membership.identity` explains their texts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from rmqstore.broker.membership.identity import (
    Application,
    GroupName,
    Kept,
    Life,
    format_application,
    format_identity,
    format_life,
    settle,
)
from rmqstore.errors import CorruptionError, DiskError
from rmqstore.store.folder import DiskFolder, Folder

__all__ = ["IdentityFiles"]

_TEXT_MAX = 4096


class IdentityFiles:
    """The files at *path*, at *path* with `-temp` and with `-life`.

    Each is replaced whole: it is written aside, synced and renamed. All methods raise DiskError.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        group: GroupName,
        *,
        folder_of: Callable[[Path], Folder] = DiskFolder,
    ) -> None:
        """*folder_of* returns the folder at a path."""
        self.path = Path(path)
        self.group = group
        self._folder = folder_of(self.path.parent)
        self._identity = self.path.name
        self._application = f"{self.path.name}-temp"
        self._life = f"{self.path.name}-life"

    def read(self) -> Kept:
        """Return what is kept. Raises ConfigError for the files of another group, CorruptionError
        where the id cannot be known."""
        return settle(
            self.group,
            identity=self._text(self._identity),
            application=self._text(self._application),
            life=self._text(self._life),
            path=str(self.path),
        )

    def save_application(self, application: Application) -> None:
        """Keep an application."""
        self._replace(self._application, format_application(self.group, application))

    def drop_application(self) -> None:
        """Remove the application, if there is one."""
        try:
            self._folder.remove(self._application)
        except OSError as error:
            raise self._disk_error(error, "remove", self._application) from error

    def save_identity(self, broker_id: int) -> None:
        """Keep the id, then remove the application."""
        self._replace(self._identity, format_identity(self.group, broker_id))
        self.drop_application()

    def begin_life(self, broker_id: int, *, former: Life, wall_ms: int) -> Life:
        """Return the life of this process, once it is kept."""
        life = former.next(broker_id, wall_ms)
        self._replace(self._life, format_life(self.group, life))
        return life

    def _text(self, name: str) -> str | None:
        try:
            data = self._folder.read(name)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise self._disk_error(error, "read", name) from error
        if len(data) > _TEXT_MAX:
            place = self._folder.place(name)
            raise CorruptionError(
                f"{place}: {len(data)} bytes, where the identity of a broker has at most "
                f"{_TEXT_MAX}; restore the file from a copy",
                path=place,
                kind="broker identity",
            )
        return data.decode(errors="replace")

    def _replace(self, name: str, text: str) -> None:
        try:
            self._folder.replace(name, text.encode())
        except OSError as error:
            raise self._disk_error(error, "write", name) from error

    def _disk_error(self, error: OSError, act: str, name: str) -> DiskError:
        place = self._folder.place(name)
        return DiskError(error.errno or 0, f"cannot {act} {place}: {error.strerror}")
