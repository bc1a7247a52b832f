"""A node of a Raft group: csrc/raft. This extension is left out where libraft is not installed."""

from collections.abc import Sequence
from typing import Self, final

APPLY: int
RESTORE: int
SNAPSHOT: int
DONE: int
LEADERSHIP: int
FAILED: int
CLOSED: int
OK: int
NOT_LEADER: int
UNKNOWN: int

class RaftError(Exception):
    is_damage: bool

    def __init__(self, message: str, is_damage: bool) -> None: ...

def found(
    directory: str,
    *,
    node_id: int,
    bind_address: str,
    peers: Sequence[tuple[int, str]],
    election_ms: int,
    heartbeat_ms: int,
    snapshot_entries: int,
    trailing_entries: int,
) -> None: ...

@final
class Node:
    def __new__(
        cls,
        directory: str,
        *,
        node_id: int,
        bind_address: str,
        peers: Sequence[tuple[int, str]],
        election_ms: int,
        heartbeat_ms: int,
        snapshot_entries: int,
        trailing_entries: int,
    ) -> Self: ...
    def fileno(self) -> int: ...
    def next_event(self) -> tuple[int, int, int, int, int, bytes] | None: ...
    def propose(self, request: int, command: bytes) -> None: ...
    def barrier(self, request: int) -> None: ...
    def give_snapshot(self, state: bytes) -> None: ...
    def close(self) -> None: ...
    def free(self) -> None: ...
