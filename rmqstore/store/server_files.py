"""Small files of servers: replaced as a whole, and on the device before the caller goes on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rmqstore._native.core import replace_small_file
from rmqstore.config import format_properties, parse_properties
from rmqstore.errors import ConfigError, disk_errors
from rmqstore.regular_file import read_regular

__all__ = ["change_properties", "replace_file"]


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


def change_properties(path: Path, changes: Mapping[str, str]) -> None:
    """Change pairs of a file of properties; comments are lost, as in RocketMQ.

    A missing file is made. Raises DiskError, ConfigError where the path cannot be a file.
    """
    with disk_errors("changing the configuration"):
        try:
            pairs = parse_properties(read_regular(path).decode("iso-8859-1"))
        except FileNotFoundError:
            pairs = {}
        replace_file(path, format_properties({**pairs, **changes}).encode("ascii"))
