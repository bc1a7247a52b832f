"""The file of the key-value configuration.

A change replaces the whole file, which is on the device before the request is answered.
RocketMQ keeps a copy of the previous content as NAME.bak, and 5.5 writes the file itself in place:
after a crash of a Java nameserver the copy may be all that is left.
"""

from __future__ import annotations

import os
from pathlib import Path

from rmqstore.errors import CorruptionError, RemotingFrameError
from rmqstore.nameserver.kv import KvConfig
from rmqstore.net.identity_log import IdentityLog
from rmqstore.regular_file import read_regular
from rmqstore.store.server_files import replace_file

__all__ = ["KvFile"]

_log = IdentityLog("rmqstore.nameserver")


class KvFile:
    """The key-value configuration at *path*, a kvConfig.json of RocketMQ or of this library."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def load(self) -> KvConfig:
        """Return the content, an empty configuration where there is no file.

        Where only the copy NAME.bak exists, its content is returned, with a warning. Raises
        CorruptionError for a file that cannot be read as a configuration; nothing is changed.
        """
        copy = self.path.with_name(f"{self.path.name}.bak")
        try:
            return self._parse(self.path)
        except FileNotFoundError:
            pass
        try:
            config = self._parse(copy)
        except FileNotFoundError:
            return KvConfig()
        _log.warning("%s is missing; its copy %s is used", self.path, copy)
        return config

    def save(self, config: KvConfig) -> None:
        """Replace the file; it is on the device on return. Raises DiskError; then the previous file
        remains."""
        replace_file(self.path, config.encode())

    def _parse(self, path: Path) -> KvConfig:
        content = read_regular(path)
        try:
            return KvConfig.decode(content)
        except RemotingFrameError as error:
            raise _damaged(path, len(content), error) from error


def _damaged(path: Path, size_bytes: int, error: Exception) -> CorruptionError:
    return CorruptionError(
        f"{path} ({size_bytes} bytes) is not a key-value configuration: {error}; restore it from a "
        "copy, or move it away to begin without one",
        path=os.fspath(path),
        kind="key-value configuration",
    )
