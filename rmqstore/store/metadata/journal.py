"""The journal beside the file of a large table: changes that are durable before the file has them.

A table of 100,000 topics is one JSON file, as RocketMQ writes it. A change is appended here, and
the file is written later. `config/topics.journal` is beside `config/topics.json`; RocketMQ does not
look at it. Each line is the CRC-32 of its JSON in eight hexadecimal digits, a space, and the
JSON:

    {"file":[2017879,3735928559]}                   first: the changes follow this topics.json
    {"entries":[["topic","orders",{...}],["topic","old",null]],"version":{...}}
    {"file":[2018031,305419896],"has":1}            or this one, which has the first change already

A file is named by its size and its CRC-32. The changes count only where the present file is named:
RocketMQ, or an operator, may have written another one meanwhile. A value is that of the file's
JSON, null for a removed entry; values are absolute, so a change that the file has already is
harmless. The last line may be torn: it was not acknowledged.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.data_version import DataVersion
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.version import version_of

__all__ = ["Change", "FileName", "change_line", "changes_after", "file_line", "name_of"]

FileName = tuple[int, int]
"""Size and CRC-32 of the content of a table's file."""

_CRC_DIGITS = 8


@dataclass(frozen=True, slots=True)
class Change:
    """Entries of a table, each with its kind, its key and its JSON value, and the version after
    them."""

    entries: Sequence[tuple[str, str, Any]]
    version: DataVersion


def name_of(content: bytes) -> FileName:
    """Return the name of a file's *content*."""
    return len(content), zlib.crc32(content)


def file_line(name: FileName, *, has: int = 0) -> bytes:
    """Return the line that names a file which has the first *has* changes."""
    return _line({"file": list(name), "has": has} if has else {"file": list(name)})


def change_line(change: Change) -> bytes:
    """Return the line of a change. Raises TypeError for a value that JSON has not."""
    entries = [list(each) for each in change.entries]
    return _line({"entries": entries, "version": change.version.to_json()})


def changes_after(file: FileName, journal: bytes) -> list[Change]:
    """Return the changes that *file* lacks; none where *journal* does not name it. Raises
    ValueError where a line before the last one is damaged."""
    changes: list[Change] = []
    begin: int | None = None
    for value in _values(journal):
        if "file" in value:
            if value["file"] == list(file):
                begin = value.get("has", 0)
        else:
            changes.append(_change(value))
    return [] if begin is None else changes[begin:]


def _line(value: dict[str, Any]) -> bytes:
    import json

    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _values(journal: bytes) -> Iterable[dict[str, Any]]:
    import json

    lines = journal.split(b"\n")
    for number, line in enumerate(lines, 1):
        crc, _, text = line.partition(b" ")
        if crc == b"%08x" % zlib.crc32(text) and len(crc) == _CRC_DIGITS:
            yield json.loads(text)
        elif any(lines[number:]):
            raise ValueError(f"line {number} is damaged")
        else:
            return


def _change(value: dict[str, Any]) -> Change:
    entries = [(kind, key, each) for kind, key, each in value["entries"]]
    return Change(entries, version_of(Members({"dataVersion": value["version"]}, "")))
