"""The keys of a controller's log in etcd, and the requests on them.

Below the prefix:

    leader                    the leading node; bound to a lease that the node keeps alive
    log/<index, 20 digits>    one entry
    snapshot                  description of the state: index, term, size, CRC-32, parts
    state/<index, 20 digits>/<part, 4 digits>    the state up to that index

    at  size  entry                                   at  size  leader          at  size  snapshot
    0   1     1: a term begins; 2: a command          0   16    campaign        0   8     index
    1   8     term                                    16        id of the node  8   8     term
    9   8     process that wrote it                                              16  8     size
    17  8     number of the entry in that process                               24  4     CRC-32
    25        command                                                           28  4     parts

A term is the revision in which its leader created the key `leader`. Every write is conditional on
that revision of the key, so nothing is written in a term that ended.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rmqstore.errors import CorruptionError

__all__ = ["COMMAND", "TERM", "Entry", "Keys", "Manifest", "Stored", "range_of", "stored_of"]

TERM, COMMAND = 1, 2
_ENTRY = struct.Struct(">BQ8sQ")
_MANIFEST = struct.Struct(">QQQII")
_CAMPAIGN_SIZE = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the log; *process* and *number* make it unique."""

    kind: int
    term: int
    process: bytes
    number: int
    command: bytes = b""

    def encode(self) -> bytes:
        """Return the value of the entry's key."""
        return _ENTRY.pack(self.kind, self.term, self.process, self.number) + self.command

    @classmethod
    def decode(cls, data: bytes, key: str) -> Entry:
        """Return the entry in the value of *key*. Raises CorruptionError."""
        if len(data) < _ENTRY.size or data[0] not in (TERM, COMMAND):
            raise damage(key, "it is not an entry of a controller's log")
        kind, term, process, number = _ENTRY.unpack_from(data)
        return cls(kind, term, process, number, data[_ENTRY.size :])


@dataclass(frozen=True, slots=True)
class Manifest:
    """Description of the last snapshot's state."""

    index: int
    term: int
    size: int
    crc: int
    parts: int

    def encode(self) -> bytes:
        """Return the value of the key `snapshot`."""
        return _MANIFEST.pack(self.index, self.term, self.size, self.crc, self.parts)

    @classmethod
    def decode(cls, data: bytes, key: str) -> Manifest:
        """Return the manifest in the value of *key*. Raises CorruptionError."""
        if len(data) != _MANIFEST.size:
            raise damage(key, "it is not a snapshot of a controller")
        return cls(*_MANIFEST.unpack(data))


@dataclass(frozen=True, slots=True)
class Stored:
    """A key and its value in etcd."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int


class Keys:
    """The keys below one prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix.strip("/") + "/"
        self.leader = self._prefix + "leader"
        self.snapshot = self._prefix + "snapshot"
        self._log = self._prefix + "log/"
        self._state = self._prefix + "state/"

    def log(self, index: int) -> str:
        """Return the key of an entry."""
        return f"{self._log}{index:020d}"

    def index_of(self, key: str) -> int:
        """Return the index of an entry's key. Raises CorruptionError."""
        digits = key.removeprefix(self._log)
        if len(digits) != 20 or not digits.isascii() or not digits.isdecimal():
            raise damage(key, "it is not the key of an entry")
        return int(digits)

    def part(self, index: int, number: int) -> str:
        """Return the key of a part of a state."""
        return f"{self._state}{index:020d}/{number:04d}"

    def watch_all(self) -> dict[str, Any]:
        """Return the request for a watch of every key."""
        return {"create_request": _span(self._prefix, _after(self._prefix))}

    def read(self, index: int, *, limit: int) -> dict[str, Any]:
        """Return the request that reads, in one transaction, the leader, the snapshot, up to
        *limit* entries from *index* on, and the last entry."""
        end = _after(self._log)
        entries = {"request_range": {**_span(self.log(index), end), "limit": limit}}
        last = {**_span(self._log, end), "limit": 1, "sort_order": "DESCEND", "sort_target": "KEY"}
        return {
            "success": [
                get(self.leader),
                get(self.snapshot),
                entries,
                {"request_range": last},
            ]
        }

    def campaign(self, campaign: bytes, node_id: str, lease: str) -> dict[str, Any]:
        """Return the request that makes a node leader if there is no leader."""
        return {
            "compare": [_compare(self.leader, "CREATE", 0)],
            "success": [put(self.leader, campaign + node_id.encode(), lease=lease)],
        }

    def append(self, term: int, index: int, values: Sequence[bytes]) -> dict[str, Any]:
        """Return the request that writes entries from *index* on, all or none. If it writes none,
        the answer has the leader and the entry at *index*."""
        keys = [self.log(index + number) for number in range(len(values))]
        return {
            "compare": [self.leads(term), *(_compare(each, "CREATE", 0) for each in keys)],
            "success": [put(key, value) for key, value in zip(keys, values, strict=True)],
            "failure": [get(self.leader), get(keys[0])],
        }

    def put_part(self, term: int, index: int, number: int, data: bytes) -> dict[str, Any]:
        """Return the request that writes a part of a state."""
        return {"compare": [self.leads(term)], "success": [put(self.part(index, number), data)]}

    def put_snapshot(
        self, term: int, manifest: Manifest, *, former: int, first_kept: int
    ) -> dict[str, Any]:
        """Return the request that replaces the manifest of revision *former* (0 for none) by
        *manifest*, and deletes the entries before *first_kept* and older states."""
        return {
            "compare": [self.leads(term), _compare(self.snapshot, "MOD", former)],
            "success": [
                put(self.snapshot, manifest.encode()),
                _delete(self._log, self.log(first_kept)),
                _delete(self._state, self.part(manifest.index, 0)),
            ],
        }

    def read_led(self, term: int) -> dict[str, Any]:
        """Return the request that succeeds while the leader of *term* leads.

        Because of the read it waits for a quorum: etcd answers a request with only conditions from
        the state of one member.
        """
        return {
            "compare": [self.leads(term)],
            "success": [get(self.leader)],
            "failure": [get(self.leader)],
        }

    def leads(self, term: int) -> dict[str, Any]:
        """Return the condition that the leader of *term* still leads."""
        return _compare(self.leader, "CREATE", term)

    @staticmethod
    def leader_of(data: bytes) -> tuple[bytes, str]:
        """Return campaign and node id in the value of the key `leader`."""
        return data[:_CAMPAIGN_SIZE], data[_CAMPAIGN_SIZE:].decode(errors="replace")


def get(key: str) -> dict[str, Any]:
    """Return the operation that reads a key."""
    return {"request_range": {"key": _base64(key.encode())}}


def put(key: str, value: bytes, *, lease: str = "0") -> dict[str, Any]:
    """Return the operation that writes a key."""
    return {
        "request_put": {
            "key": _base64(key.encode()),
            "value": _base64(value),
            "lease": lease,
        }
    }


def range_of(answer: Mapping[str, Any], number: int) -> list[Stored]:
    """Return the keys in operation *number* of an answer."""
    found = answer["responses"][number]["response_range"]
    return [stored_of(each) for each in found.get("kvs", [])]


def stored_of(fields: Mapping[str, str]) -> Stored:
    """Return a key from its fields in an answer."""
    return Stored(
        base64.b64decode(fields["key"]).decode(errors="replace"),
        base64.b64decode(fields.get("value", "")),
        int(fields["create_revision"]),
        int(fields["mod_revision"]),
    )


def damage(key: str, what: str) -> CorruptionError:
    """Return the error for a key that no controller can have written."""
    return CorruptionError(
        f"etcd key {key}: {what}; give the controllers a separate prefix (etcdPrefix), or "
        "restore etcd from a backup",
        path=key,
        kind="controller log",
    )


def _span(first: str, end: str) -> dict[str, Any]:
    return {"key": _base64(first.encode()), "range_end": _base64(end.encode())}


def _after(prefix: str) -> str:
    """Returns the first key after those with *prefix*, which ends in a slash."""
    return prefix[:-1] + chr(ord("/") + 1)


def _delete(first: str, end: str) -> dict[str, Any]:
    return {"request_delete_range": _span(first, end)}


def _compare(key: str, target: str, revision: int) -> dict[str, Any]:
    field = {"CREATE": "create_revision", "MOD": "mod_revision"}[target]
    return {
        "result": "EQUAL",
        "target": target,
        "key": _base64(key.encode()),
        field: str(revision),
    }


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
