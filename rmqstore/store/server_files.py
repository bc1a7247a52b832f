"""Small files of servers: replaced as a whole, and on the device before the caller goes on."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from rmqstore._native.core import replace_small_file
from rmqstore.config import format_properties, parse_properties, with_changes, without_mark
from rmqstore.config.changes import ServerConfig
from rmqstore.errors import ConfigError, DiskError, disk_errors
from rmqstore.regular_file import read_regular

__all__ = ["replace_file", "save_changes", "stored_config"]

_log = logging.getLogger("rmqstore")
_NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Errors of a file that may not be replaced, such as one that is mounted into a container."""


def replace_file(path: Path, content: bytes) -> None:
    """Put *content* in the place of a file, in directories made as needed; durable on return.

    Raises DiskError, ConfigError where the path cannot be a file.
    """
    directory = path.absolute().parent
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            [f"{path}: the directory cannot be made: {error.strerror}; give another path"]
        ) from error
    replace_small_file(os.fspath(directory), path.name, content)


def save_changes(config: ServerConfig, file: Path | None, changes: Mapping[str, str]) -> None:
    """Save changed pairs in the configStorePath of *config*, or else in the *file* that *config*
    came from; without both do nothing. Comments of the file are lost, as in RocketMQ.

    A missing file is made. Raises DiskError, ConfigError where the file cannot be written.
    """
    path = Path(config.config_store_path) if config.config_store_path else file
    if path is None:
        return
    try:
        with disk_errors("changing the configuration"):
            content = format_properties({**_pairs(path), **changes})
            replace_file(path, content.encode("ascii"))
    except DiskError as error:
        if error.errno not in _NOT_WRITABLE:
            raise
        raise ConfigError(
            [
                f"the configuration is unchanged: {path} cannot be written: "
                f"{os.strerror(error.errno)}; set configStorePath to a file that the server may "
                "write"
            ]
        ) from error


def stored_config(config: ServerConfig, keys: Collection[str]) -> ServerConfig:
    """Return *config* with the changes of *keys* that its configStorePath has from requests.

    Raises DiskError, ConfigError with the path for wrong content.
    """
    if not config.config_store_path:
        return config
    path = Path(config.config_store_path)
    try:
        with disk_errors("reading changes of the configuration"):
            changes = {key: value for key, value in _pairs(path).items() if key in keys}
        if not changes:
            return config
        _log.info("%s: changed by requests: %s", path, ", ".join(sorted(changes)))
        return with_changes(config, changes)
    except ConfigError as error:
        raise ConfigError(error.violations, source=str(path)) from error


def _pairs(path: Path) -> dict[str, str]:
    try:
        return parse_properties(without_mark(read_regular(path).decode("iso-8859-1")))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigError([str(error)], source=str(path)) from error
