"""The engine for a group of controllers: C-Raft, which runs on a separate thread.

The thread passes commands, outcomes and changes of leadership as events, which this module handles
on the event loop, in order. A leader proposes an entry of its own when its term begins, and acts
once that entry is applied. After a disk failure the thread acknowledges nothing more and ends.

The directory of a node holds `lock`, `group` (the ids of the node and of the members, as JSON) and
`raft`, the files of C-Raft. `raft` is created under another name and renamed when it contains the
group's first entry, so a node founds its group only once.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rmqstore import arguments
from rmqstore.controller.engines.engine import (
    Applied,
    Apply,
    Leadership,
    Outcome,
    Restore,
    Snapshot,
)
from rmqstore.controller.engines.files import OsDirectory
from rmqstore.errors import (
    ArgumentError,
    ConfigError,
    CorruptionError,
    DiskError,
    StoreError,
    disk_errors,
)
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.opening import open_on_thread
from rmqstore.store.durable_files import sync_directory

if TYPE_CHECKING:
    from rmqstore._native import raft

__all__ = ["COMMAND_SIZE_MAX", "RaftEngine", "binding", "is_built"]

COMMAND_SIZE_MAX = 1024 * 1024
"""Bytes of the largest command."""

_LOG, _NEW_LOG, _GROUP = "raft", "raft.new", "group"
_ROOM_BYTES = 32 * 1024 * 1024
"""Room for segments of 4 MiB, allocated in advance, and for two snapshots."""
_BATCH = 256
"""Events that are handled in one turn of the event loop."""
_logger = IdentityLog("rmqstore.controller")

_Address = tuple[str, int]


class RaftEngine:
    """A node of a group whose members are known from the start."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        node_id: str,
        members: Mapping[str, _Address],
        bind_host: str = "0.0.0.0",
        founds: bool = True,
        snapshot_entries: int = 10_000,
        election_ms: int = 1000,
        heartbeat_ms: int = 100,
    ) -> None:
        """Create a node that is not started.

        *members* are the hosts and ports of all nodes, including this one, for the Raft protocol.
        *founds* is False for a node that lost its directory: it copies the log from the others, and
        votes once it has the log. A snapshot is taken after *snapshot_entries* entries. A follower
        becomes a candidate after *election_ms* to twice that time without a message of the leader.

        Raises ConfigError if C-Raft is not part of this build, and ArgumentError.
        """
        if node_id not in members:
            raise ArgumentError(f"node {node_id} is not among the members {', '.join(members)}")
        self._raft = _binding_of_group()
        self._place = Path(directory).absolute()
        self._node_id = node_id
        self._members = dict(members)
        self._bind_host = bind_host
        self._founds = founds
        self._snapshot_entries = arguments.integer("snapshot_entries", snapshot_entries, low=1)
        self._heartbeat_ms = arguments.integer("heartbeat_ms", heartbeat_ms, low=1)
        self._election_ms = arguments.integer("election_ms", election_ms, low=heartbeat_ms + 1)
        self._names = {_number_of(each): each for each in members}
        self._directory: OsDirectory | None = None
        self._node: raft.Node | None = None
        self._descriptor = -1
        self._closed: asyncio.Future[None] | None = None
        self._failure: StoreError | None = None
        self._leadership = Leadership(0, False, None)
        self._watchers: list[Callable[[Leadership], None]] = []
        self._requests = 0
        self._waiting: dict[int, asyncio.Future[Applied]] = {}
        self._barrier: asyncio.Task[int | None] | None = None
        self._next_barrier: asyncio.Task[int | None] | None = None
        self._applied = Applied(0, 0, b"")
        self._apply: Apply = _unstarted
        self._snapshot: Snapshot = _no_state
        self._restore: Restore = _no_place

    @property
    def failure(self) -> StoreError | None:
        """The reason why the engine ended; None while it works."""
        return self._failure

    # Start and end.

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        """Read the log and take part in the group; the state is up to date once the node leads.

        Raises ArgumentError if an address cannot be used, ConfigError for the directory of another
        node or group, CorruptionError, DiskError, StoreLockedError or UnsupportedStoreError.
        """
        self._apply, self._snapshot, self._restore = apply, snapshot, restore
        self._follow(await open_on_thread(self._open, self._close_opened))

    def _follow(self, node: raft.Node) -> None:
        """Take the events of *node*."""
        loop = asyncio.get_running_loop()
        self._node = node
        self._closed = loop.create_future()
        self._descriptor = node.fileno()
        loop.add_reader(self._descriptor, self._take_events)

    async def _close_opened(self, node: raft.Node) -> None:
        self._follow(node)
        await self.close()

    def _open(self) -> raft.Node:
        addresses = {each: _resolve(each, *place) for each, place in self._members.items()}
        bind_address = f"{_resolve(self._node_id, self._bind_host, 0).rpartition(':')[0]}"
        port = self._members[self._node_id][1]
        _check_port(bind_address, port)
        options: dict[str, Any] = {
            "node_id": _number_of(self._node_id),
            "bind_address": f"{bind_address}:{port}",
            "peers": sorted((_number_of(each), place) for each, place in addresses.items()),
            "election_ms": self._election_ms,
            "heartbeat_ms": self._heartbeat_ms,
            "snapshot_entries": self._snapshot_entries,
            "trailing_entries": max(self._snapshot_entries // 2, 1),
        }
        directory = OsDirectory(self._place, log=_LOG, unfinished=(_NEW_LOG,))
        try:
            with disk_errors("opening the log of the controller"):
                self._make_log(directory, options)
                node: raft.Node = self._raft.Node(str(self._place / _LOG), **options)
        except self._raft.RaftError as error:
            directory.close()
            raise self._error_of(error) from error
        except BaseException:
            directory.close()
            raise
        self._directory = directory
        return node

    def _make_log(self, directory: OsDirectory, options: Mapping[str, Any]) -> None:
        """Founds the group at the first start; checks the identity of the node."""
        log = self._place / _LOG
        kept = directory.read(_GROUP)
        group = {"node": self._node_id, "members": sorted(self._members)}
        if kept is not None:
            self._check_group(kept, group)
            if not log.is_dir():
                raise CorruptionError(
                    f"{log} is missing; empty {self._place} and start the node with "
                    "controllerRaftJoin=true, so that it copies the log from the other nodes",
                    path=str(log),
                    kind="controller log",
                )
            return
        if not log.is_dir():
            new = self._place / _NEW_LOG
            shutil.rmtree(new, ignore_errors=True)
            new.mkdir()
            if self._founds:
                self._raft.found(str(new), **options)
            new.rename(log)
            sync_directory(self._place)
        directory.replace(_GROUP, json.dumps(group).encode())

    def _check_group(self, kept: bytes, group: Mapping[str, object]) -> None:
        try:
            found = json.loads(kept)
            node, members = found["node"], found["members"]
        except (ValueError, KeyError, TypeError):
            raise CorruptionError(
                f"{self._place / _GROUP} does not name a node; restore the directory from a copy",
                path=str(self._place / _GROUP),
                kind="controller log",
            ) from None
        if {"node": node, "members": members} != group:
            raise ConfigError(
                [
                    f"controllerStorePath: {self._place} belongs to node {node} of {members}, not "
                    f"to {self._node_id} of {group['members']}; name the directory of this node, "
                    "and the members that the group was founded with"
                ]
            )

    def _error_of(self, error: raft.RaftError) -> StoreError:
        place = self._place / _LOG
        if error.is_damage:
            return CorruptionError(
                f"{place}: {error}; empty {self._place} and start the node with "
                "controllerRaftJoin=true, so that it copies the log from the other nodes",
                path=str(place),
                kind="controller log",
            )
        return DiskError(errno.EIO, f"{place}: {error}")

    async def close(self) -> None:
        """Leave the group; proposals without an outcome become UNKNOWN."""
        node, self._node = self._node, None
        loop = asyncio.get_running_loop()
        if node is not None:
            assert self._closed is not None, "start made it"
            node.close()
            self._node = node  # The last events are still to be handled.
            await asyncio.shield(self._closed)
            self._node = None
            await loop.run_in_executor(None, node.free)
        if self._directory is not None:
            self._directory.close()
            self._directory = None

    # Events of the thread.

    def _take_events(self) -> None:
        node = self._node
        if node is None:
            return
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)
        for _ in range(_BATCH):
            event = node.next_event()
            if event is None:
                return
            self._handle(*event)
        asyncio.get_running_loop().call_soon(self._take_events)

    def _handle(
        self, kind: int, status: int, index: int, term: int, request: int, data: bytes
    ) -> None:
        raft = self._raft
        if kind == raft.CLOSED:
            self._ended()
        elif kind == raft.FAILED:
            reason = data.decode("utf-8", "replace")
            text = f"{self._place / _LOG}: {reason}{_room(self._place)}; restart the node"
            self._end_with(DiskError(errno.EIO, text))
        elif self._failure is None:
            try:
                self._carry_out(kind, status, index, term, request, data)
            except Exception as error:
                _logger.exception("the log of the controller ended")
                self._end_with(StoreError(f"the log of the controller ended: {error!r}"))

    def _carry_out(
        self, kind: int, status: int, index: int, term: int, request: int, data: bytes
    ) -> None:
        raft = self._raft
        if kind == raft.APPLY:
            self._applied = Applied(index, term, self._apply(index, term, data))
        elif kind == raft.DONE:
            self._done(request, status, index)
        elif kind == raft.LEADERSHIP:
            self._lead(Leadership(term, bool(status), self._names.get(request)))
        elif kind == raft.SNAPSHOT:
            assert self._node is not None, "its events are being taken"
            self._node.give_snapshot(self._snapshot())
        else:
            assert kind == raft.RESTORE, kind
            self._restore(data)

    def _done(self, request: int, status: int, index: int) -> None:
        future = self._waiting.pop(request, None)
        if future is None or future.done():
            return
        if status == self._raft.OK:
            is_command = self._applied.index == index
            future.set_result(self._applied if is_command else Applied(index, 0, b""))
        elif status == self._raft.NOT_LEADER:
            future.set_exception(_NotLeaderError())
        else:
            future.set_exception(_EndedError())

    def _lead(self, leadership: Leadership) -> None:
        if leadership == self._leadership:
            return
        self._leadership = leadership
        for each in list(self._watchers):
            each(leadership)

    def _end_with(self, failure: StoreError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        _logger.error("node %s of the controllers ends: %s", self._node_id, failure)
        self._end_waiting()
        self._lead(Leadership(self._leadership.term, False, None))
        if self._node is not None:
            self._node.close()

    def _end_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(_EndedError())

    def _ended(self) -> None:
        """Handles the last event."""
        asyncio.get_running_loop().remove_reader(self._descriptor)
        self._end_waiting()
        self._lead(Leadership(self._leadership.term, False, None))
        assert self._closed is not None, "start made it"
        self._closed.set_result(None)

    # Proposals.

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        """Commit *command*; see `Engine.propose`."""
        if len(command) > COMMAND_SIZE_MAX:
            raise ArgumentError(
                f"a command has {len(command)} bytes; the log takes up to {COMMAND_SIZE_MAX}"
            )
        if not self._leadership.is_leader:
            return Outcome.NOT_LEADER, None
        request, future = self._expect()
        assert self._node is not None, "the node leads"
        self._node.propose(request, command)
        try:
            async with asyncio.timeout(timeout):
                return Outcome.COMMITTED, await future
        except _NotLeaderError:
            return Outcome.NOT_LEADER, None
        except (TimeoutError, _EndedError):
            return Outcome.UNKNOWN, None
        finally:
            self._waiting.pop(request, None)

    def _expect(self) -> tuple[int, asyncio.Future[Applied]]:
        self._requests += 1
        future: asyncio.Future[Applied] = asyncio.get_running_loop().create_future()
        self._waiting[self._requests] = future
        return self._requests, future

    async def read_barrier(self, *, timeout: float) -> int | None:
        """Return the last index applied here; see `Engine.read_barrier`.

        A barrier is an entry of the log. Calls during a barrier in progress share the next barrier.
        """
        if self._next_barrier is None:
            self._next_barrier = asyncio.create_task(self._pass_barrier(self._barrier))
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(self._next_barrier)
        except TimeoutError:
            return None

    async def _pass_barrier(self, former: asyncio.Task[int | None] | None) -> int | None:
        if former is not None:
            await asyncio.wait([former])
        # Later calls need a barrier of their own.
        self._barrier, self._next_barrier = self._next_barrier, None
        if not self._leadership.is_leader:
            return None
        request, future = self._expect()
        assert self._node is not None, "the node leads"
        self._node.barrier(request)
        try:
            return (await future).index
        except (_NotLeaderError, _EndedError):
            return None

    def leadership(self) -> Leadership:
        """Return the leader according to this node."""
        return self._leadership

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        """Call *on_change* at each change of leadership; return a function that ends the calls."""
        self._watchers.append(on_change)
        return partial(self._unwatch, on_change)

    def _unwatch(self, on_change: Callable[[Leadership], None]) -> None:
        with contextlib.suppress(ValueError):
            self._watchers.remove(on_change)


class _EndedError(Exception):
    """The outcome is not known."""


class _NotLeaderError(Exception):
    """The proposal was refused."""


def binding() -> Any:
    """Return the extension module. Raises ImportError if it was not built, or libraft is
    missing."""
    from rmqstore._native import raft

    return raft


def is_built() -> bool:
    """Return whether C-Raft is part of this build."""
    try:
        binding()
    except ImportError:
        return False
    return True


def _binding_of_group() -> Any:
    try:
        return binding()
    except ImportError as error:
        raise ConfigError(
            [
                "controllerDLegerPeers: a group of controllers needs C-Raft, which this build "
                f"lacks ({error}); apt-get install libraft-dev libuv1-dev, then build it "
                "again, or name only this node"
            ]
        ) from error


def _number_of(node_id: str) -> int:
    """Returns the number of a node, which depends only on its id."""
    digest = hashlib.sha256(node_id.encode()).digest()
    return int.from_bytes(digest[:8], "big") or 1


def _resolve(node_id: str, host: str, port: int) -> str:
    """Returns "IPv4:port", the only form that C-Raft accepts."""
    try:
        found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except OSError as error:
        raise ArgumentError(
            f"node {node_id} of the controllers: {host} has no IPv4 address ({error}); correct "
            "controllerDLegerPeers or controllerRaftPeers"
        ) from error
    return f"{found[0][4][0]}:{port}"


def _check_port(host: str, port: int) -> None:
    """Raises ArgumentError if C-Raft could not listen there; C-Raft itself reports no reason."""
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
            trial.listen()
        except OSError as error:
            raise ArgumentError(
                f"cannot listen at {host}:{port} for the other controllers: {error.strerror}; "
                "name another port in controllerRaftPeers"
            ) from error


def _room(place: Path) -> str:
    """Returns a text about free space for messages: C-Raft does not report a full disk."""
    try:
        found = os.statvfs(place)
    except OSError:
        return ""
    free = found.f_bavail * found.f_frsize
    return f" ({free} bytes are free there; make room if that is below {_ROOM_BYTES})"


def _unstarted(index: int, term: int, command: bytes) -> bytes:
    raise AssertionError("the engine was not started")


def _no_state() -> bytes:
    raise AssertionError("the engine was not started")


def _no_place(state: bytes) -> None:
    raise AssertionError("the engine was not started")
