"""The broker id of a replica that was given none: `config/replica.properties` of its store."""

from __future__ import annotations

import secrets
from pathlib import Path

from rmqstore.config import format_properties, parse_properties
from rmqstore.errors import CorruptionError
from rmqstore.regular_file import read_regular
from rmqstore.store.durable_files import replace_durably, sync_directory

__all__ = ["kept_id"]


def kept_id(store_path: str) -> int:
    """Return the broker id kept with the store; without one a random id is made and kept.

    Raises CorruptionError for a file with another value, DiskError.
    """
    path = Path(store_path, "config", "replica.properties")
    if path.exists():
        text = parse_properties(read_regular(path).decode("iso-8859-1")).get("brokerId", "")
        if text.isascii() and text.isdecimal() and int(text) < 2**63:
            return int(text)
        raise CorruptionError(
            f"{path}: brokerId {text!r} is not an id; write the id that this replica "
            "had, or remove the file for another",
            path=str(path),
            kind="replica settings",
        )
    found = secrets.randbits(48)
    if not path.parent.is_dir():
        path.parent.mkdir()
        sync_directory(path.parent.parent)
    replace_durably(path, format_properties({"brokerId": str(found)}).encode("iso-8859-1"))
    return found
