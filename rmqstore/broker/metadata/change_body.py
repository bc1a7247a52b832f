"""The body of an answer that holds the changes of a master's tables.

    {"entries":[["topic","orders",{...}],["group","old",null]],
     "versions":{"topics":{...},"groups":{...},"offsets":{...},"delays":{...}}}

An entry is a table, a key and the value of the file's JSON, null for a removed one. The versions
are those of the tables after the changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.tables import Tables
from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import data_version_of
from rmqstore.remoting.bodies.values import list_of, object_of
from rmqstore.store.metadata import DataVersion

__all__ = ["SIZE_MAX", "ChangeBody"]

SIZE_MAX = 8 * 1024 * 1024
"""Bytes of the largest body; a slave that would need more takes the whole tables."""


@dataclass(frozen=True, slots=True)
class ChangeBody:
    """Entries that changed, and the versions of all tables."""

    entries: tuple[tuple[Entry, Any], ...] = ()
    versions: Mapping[str, DataVersion] = field(default_factory=dict)

    @classmethod
    def of(cls, tables: Tables, changed: Iterable[Entry]) -> ChangeBody:
        """Return the present values of *changed*."""
        entries = tuple((entry, tables.value_of(entry)) for entry in changed)
        return cls(entries, tables.versions())

    @classmethod
    def decode(cls, body: bytes) -> ChangeBody:
        """Return what a body holds. Raises RemotingFrameError."""
        fields = object_of(fastjson.loads(body), "changes")
        entries = []
        for each in list_of(fields.get("entries"), "entries"):
            parts = list_of(each, "entries")
            if len(parts) != 3 or not isinstance(parts[0], str) or not isinstance(parts[1], str):
                raise RemotingFrameError(
                    f"an entry of {len(parts)} parts; send table, key and value"
                )
            entries.append((Entry(parts[0], parts[1]), parts[2]))
        versions = object_of(fields.get("versions"), "versions")
        return cls(
            tuple(entries), {name: data_version_of(versions[name], name) for name in versions}
        )

    @property
    def changed_topics(self) -> list[str]:
        """The topics that the master has made or changed."""
        return [entry.key for entry, value in self.entries if entry.table == "topic" and value]

    @property
    def deleted_topics(self) -> list[str]:
        """The topics that the master has deleted, and not made again."""
        return [entry.key for entry, value in self.entries if entry.table == "topic" and not value]

    def encode(self) -> bytes:
        """Return the body."""
        return fastjson.dumps(
            {
                "entries": [[entry.table, entry.key, value] for entry, value in self.entries],
                "versions": {name: each.to_json() for name, each in self.versions.items()},
            }
        )

    def apply(self, tables: Tables) -> frozenset[str]:
        """Bring *tables* to this state, all entries or none; return the names of the tables that
        changed. Raises RemotingFrameError."""
        missing = [name for name in tables.versions() if name not in self.versions]
        if missing:
            raise RemotingFrameError(f"the versions of {', '.join(missing)} are missing")
        try:
            changed = tables.take_entries(self.entries)
        except ValueError as error:
            raise RemotingFrameError(f"a change of the master cannot be read: {error}") from error
        tables.take_versions(self.versions)
        return changed
