"""The files of a broker's identity; `rmqstore.broker.identity` explains their texts."""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.broker.identity import (
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
from rmqstore.regular_file import read_regular
from rmqstore.store.durable_files import replace_durably, sync_directory

__all__ = ["IdentityFiles"]

_TEXT_MAX = 4096


class IdentityFiles:
    """The files at *path*, at *path* with `-temp` and with `-life`.

    Each is replaced whole: it is written aside, synced and renamed. All methods raise DiskError.
    """

    def __init__(self, path: str | os.PathLike[str], group: GroupName) -> None:
        self.path = Path(path)
        self.group = group
        self._application = self.path.with_name(f"{self.path.name}-temp")
        self._life = self.path.with_name(f"{self.path.name}-life")

    def read(self) -> Kept:
        """Return what is kept. Raises ConfigError for the files of another group, CorruptionError
        where the id cannot be known."""
        return settle(
            self.group,
            identity=self._text(self.path),
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
            self._application.unlink(missing_ok=True)
        except OSError as error:
            raise _disk_error(error, "remove", self._application) from error

    def save_identity(self, broker_id: int) -> None:
        """Keep the id, then remove the application."""
        self._replace(self.path, format_identity(self.group, broker_id))
        self.drop_application()

    def begin_life(self, broker_id: int, *, former: Life, wall_ms: int) -> Life:
        """Return the life of this process, once it is kept."""
        life = former.next(broker_id, wall_ms)
        self._replace(self._life, format_life(self.group, life))
        return life

    @staticmethod
    def _text(path: Path) -> str | None:
        try:
            data = read_regular(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _disk_error(error, "read", path) from error
        if len(data) > _TEXT_MAX:
            raise CorruptionError(
                f"{path}: {len(data)} bytes, where the identity of a broker has at most "
                f"{_TEXT_MAX}; restore the file from a copy",
                path=str(path),
                kind="broker identity",
            )
        return data.decode(errors="replace")

    @staticmethod
    def _replace(path: Path, text: str) -> None:
        try:
            if not path.parent.is_dir():
                path.parent.mkdir()
                sync_directory(path.parent.parent)
            replace_durably(path, text.encode())
        except OSError as error:
            raise _disk_error(error, "write", path) from error


def _disk_error(error: OSError, act: str, path: Path) -> DiskError:
    return DiskError(error.errno or 0, f"cannot {act} {path}: {error.strerror}")
