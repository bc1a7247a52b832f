"""The engine for a group of controllers whose log is in an etcd cluster.

`etcd_keys` defines the keys. A node leads while the key `leader` is the key of its campaign; etcd
deletes that key when its lease is not kept alive. Only the leader writes, one request at a time,
each on the condition that the node still leads. A request whose answer is lost is repeated, and
takes effect once. The other nodes read; a watch wakes them.

A leader steps down when, on its own clock, four fifths of its lease have passed since its request
for the lease. This allows for clocks that run 10 % apart. No guarantee depends on this time: a
proposal is committed, and a read barrier passed, only by an answer of etcd's quorum.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
import ssl
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from rmqstore import arguments
from rmqstore.controller.engines.engine import (
    Applied,
    Apply,
    Leadership,
    Outcome,
    Restore,
    Snapshot,
)
from rmqstore.controller.engines.etcd_gateway import Answer, Gateway, GatewayRefused
from rmqstore.controller.engines.etcd_keys import (
    COMMAND,
    TERM,
    Entry,
    Keys,
    Manifest,
    Stored,
    damage,
    get,
    range_of,
)
from rmqstore.errors import ArgumentError, DiskError, StoreError, StoreTimeout
from rmqstore.net.identity_log import IdentityLog

__all__ = ["COMMAND_BYTES_MAX", "EtcdEngine"]

COMMAND_BYTES_MAX = 1024 * 1024
"""Bytes of the largest command; etcd takes requests of up to 1.5 MiB by default."""

_BATCH_COUNT_MAX = 100
"""etcd takes up to 128 operations in a request by default."""
_BATCH_BYTES_MAX = 512 * 1024
_PART_BYTES = 512 * 1024
_READ_COUNT = 64
_READ_S = 10.0
_POLL_S = 1.0
_WATCH_S = 30.0
_PAUSE_S = 0.1
_REVOKE_S = 3.0
_HELD = 0.8
"""The share of a lease during which a node leads, by its own clock."""
_TXN = "/v3/kv/txn"
_logger = IdentityLog("rmqstore.controller")

_Result = tuple[Outcome, Applied | None] | DiskError
_Proposal = tuple[bytes, "asyncio.Future[_Result]"]


@dataclass(slots=True)
class _Reign:
    """A term of this node; it ends at *until* unless its lease is kept alive."""

    term: int
    lease: str
    ttl_s: int
    until: float

    def rest(self) -> float:
        return self.until - asyncio.get_running_loop().time()


class EtcdEngine:
    """A node of a group whose log is in etcd, below *prefix*; *endpoints* are the URLs of etcd's
    members.

    A leader that is silent for *lease_seconds* is replaced. Raises ArgumentError.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        *,
        prefix: str = "rmqstore/controller",
        node_id: str = "n0",
        lease_seconds: int = 5,
        snapshot_entries: int = 10_000,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._gateway = Gateway(endpoints, context=context)
        self._keys = Keys(prefix)
        self._node_id = node_id
        self._lease_seconds = arguments.integer("lease_seconds", lease_seconds, low=1)
        self._snapshot_entries = arguments.integer("snapshot_entries", snapshot_entries, low=1)
        self._process = secrets.token_bytes(8)
        self._number = 0
        self._index = self._revision = 0
        """The last applied entry, and the revision that created its key; 0 if not known."""
        self._snapshot_due = snapshot_entries
        self._reign: _Reign | None = None
        self._leader = (0, "")
        """Term and node of the last leader that etcd reported."""
        self._told = Leadership(0, False, None)
        self._failure: StoreError | None = None
        self._waiting: list[_Proposal] = []
        self._asking: list[asyncio.Future[int | None]] = []
        self._is_asking = False
        self._arrived = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_reached = True
        self._watchers: list[Callable[[Leadership], None]] = []
        self._apply: Apply = _unstarted
        self._snapshot: Snapshot = _no_state
        self._restore: Restore = _take_nothing

    @property
    def failure(self) -> StoreError | None:
        """The reason why the engine ended; None while it works."""
        return self._failure

    async def start(self, apply: Apply, snapshot: Snapshot, restore: Restore) -> None:
        """Apply the log, then take part in the group.

        Raises StoreTimeout if etcd does not answer within 10 s, and CorruptionError.
        """
        self._apply, self._snapshot, self._restore = apply, snapshot, restore
        try:
            await self._catch_up()
        except BaseException:
            await self._gateway.close()
            raise
        self._start_task(self._run())

    async def close(self) -> None:
        """End the engine and resign leadership; proposals without an outcome become UNKNOWN."""
        for each in list(self._tasks):
            each.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._gateway.close()

    def _start_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        """Follows the leader, or leads if there is no leader, until the engine ends."""
        try:
            while True:
                try:
                    await self._follow()
                    await self._campaign()
                    await asyncio.sleep(_PAUSE_S)
                except (StoreTimeout, GatewayRefused) as error:
                    if self._is_reached:
                        _logger.warning("the log of the controller cannot be read: %s", error)
                    self._is_reached = False
                    await asyncio.sleep(_PAUSE_S)
        except StoreError as error:
            self._end_with(error)
        except Exception as error:
            _logger.exception("the log of the controller ended")
            self._end_with(StoreError(f"the log of the controller ended: {error!r}"))

    def _end_with(self, failure: StoreError) -> None:
        self._failure = failure
        _logger.error("the controller no longer takes part in its group: %s", failure)
        self._notify()

    # Following.

    async def _follow(self) -> None:
        """Applies the leader's entries; returns when there is no leader."""
        watcher = asyncio.create_task(self._watch_keys())
        try:
            while await self._catch_up():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S):
                        await self._changed.wait()
                self._changed.clear()
        finally:
            watcher.cancel()
            await asyncio.wait([watcher])

    async def _watch_keys(self) -> None:
        request = self._keys.watch_all()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_S):
                    await self._gateway.wait_for_changes(request, self._changed)
            await asyncio.sleep(_PAUSE_S)

    async def _catch_up(self) -> Stored | None:
        """Applies every committed entry; returns the leader's key, None without a leader."""
        while True:
            request = self._keys.read(max(self._index, 1), limit=_READ_COUNT)
            answer = (await self._call(_TXN, request, timeout=_READ_S)).body
            leader, snapshot, entries, last = (range_of(answer, number) for number in range(4))
            last_index = self._keys.index_of(last[0].key) if last else 0
            kept = Manifest.decode(snapshot[0].value, snapshot[0].key).index if snapshot else 0
            if last_index < max(self._index, kept):
                raise damage(
                    self._keys.log(max(self._index, kept)),
                    f"it was applied, and the log ends at {last_index}",
                )
            if self._index < last_index:
                await self._take_entries(entries, snapshot)
                continue
            self._leader = (0, "")
            if leader:
                _, node_id = Keys.leader_of(leader[0].value)
                self._leader = (leader[0].create_revision, node_id)
            self._notify()
            return leader[0] if leader else None

    async def _take_entries(self, entries: list[Stored], snapshot: list[Stored]) -> None:
        indices = [self._keys.index_of(each.key) for each in entries]
        if self._index and self._revision and indices and indices[0] == self._index:
            if entries[0].create_revision != self._revision:
                raise damage(entries[0].key, "this node has applied another entry of that index")
        if self._index + 1 not in indices[:2]:
            await self._take_state(snapshot)
            return
        for index, stored in zip(indices, entries, strict=True):
            if index > self._index:
                entry = Entry.decode(stored.value, stored.key)
                self._take(index, entry, stored.create_revision)

    async def _take_state(self, snapshot: list[Stored]) -> None:
        """Restores the last snapshot, which is newer than the state of this node."""
        key = self._keys.snapshot
        if not snapshot:
            raise damage(self._keys.log(self._index + 1), "it is missing, and there is no snapshot")
        manifest = Manifest.decode(snapshot[0].value, key)
        if manifest.index <= self._index:
            raise damage(
                self._keys.log(self._index + 1),
                f"it is missing, and the snapshot goes to {manifest.index}",
            )
        parts = [
            await self._read(self._keys.part(manifest.index, n)) for n in range(manifest.parts)
        ]
        state = b"".join(each.value for each in parts if each is not None)
        if len(state) != manifest.size or zlib.crc32(state) != manifest.crc:
            present = await self._read(key)
            if present is not None and present.mod_revision != snapshot[0].mod_revision:
                return
            raise damage(key, "the state is not the one that was written")
        self._restore(state)
        self._index, self._revision = manifest.index, 0
        self._snapshot_due = manifest.index + self._snapshot_entries

    def _take(self, index: int, entry: Entry, revision: int) -> bytes:
        """Applies the next entry; returns its result."""
        if index != self._index + 1:
            raise damage(self._keys.log(self._index + 1), f"it is missing, and {index} is there")
        result = b""
        if entry.kind == COMMAND:
            result = self._apply(index, entry.term, entry.command)
        self._index, self._revision = index, revision
        return result

    async def _read(self, key: str) -> Stored | None:
        answer = await self._call(_TXN, {"success": [get(key)]}, timeout=_READ_S)
        found = range_of(answer.body, 0)
        return found[0] if found else None

    async def _call(self, path: str, body: Mapping[str, Any], *, timeout: float) -> Answer:
        answer = await self._gateway.call(path, body, timeout=timeout)
        if not self._is_reached:
            _logger.info("the log of the controller can be read again")
        self._is_reached = True
        return answer

    # Leading.

    async def _campaign(self) -> None:
        """Tries to become leader; returns after a failure, or when the leadership has ended."""
        asked = asyncio.get_running_loop().time()
        grant = {"TTL": str(self._lease_seconds)}
        granted = (await self._call("/v3/lease/grant", grant, timeout=_READ_S)).body
        lease, ttl_s = str(granted["ID"]), int(granted["TTL"])
        campaign = secrets.token_bytes(16)
        try:
            request = self._keys.campaign(campaign, self._node_id, lease)
            await self._call(_TXN, request, timeout=_READ_S)
            # The former leader can no longer write: this is the whole log.
            leader = await self._catch_up()
            if leader is not None and Keys.leader_of(leader.value)[0] == campaign:
                until = asked + ttl_s * _HELD
                await self._lead(_Reign(leader.create_revision, lease, ttl_s, until))
        finally:
            with contextlib.suppress(StoreTimeout, GatewayRefused):
                await self._call("/v3/lease/revoke", {"ID": lease}, timeout=_REVOKE_S)

    async def _lead(self, reign: _Reign) -> None:
        keeper = asyncio.create_task(self._keep_alive(reign))
        writer = asyncio.create_task(self._write(reign))
        try:
            await asyncio.wait([keeper, writer], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (keeper, writer):
                each.cancel()
            await asyncio.wait([keeper, writer])
            self._reign = None
            waiting, self._waiting = self._waiting, []
            _end_all(waiting, (Outcome.NOT_LEADER, None))
            self._notify()
        for each in (keeper, writer):
            if not each.cancelled():
                each.result()

    async def _keep_alive(self, reign: _Reign) -> None:
        """Returns when the lease has ended or may have ended."""
        clock = asyncio.get_running_loop().time
        while (rest := reign.rest()) > 0:
            await asyncio.sleep(min(reign.ttl_s / 5, rest))
            asked = clock()
            request = {"ID": reign.lease}
            try:
                answer = await self._call("/v3/lease/keepalive", request, timeout=reign.rest())
            except StoreTimeout:
                continue
            except GatewayRefused:
                return
            ttl_s = int(answer.body["result"].get("TTL", "0"))
            if ttl_s <= 0:
                return
            reign.until = max(reign.until, asked + ttl_s * _HELD)

    async def _write(self, reign: _Reign) -> None:
        """Writes the waiting proposals in batches, until the leadership has ended."""
        if not await self._append(reign, TERM, [(b"", _new_future())]):
            return
        self._reign = reign
        self._notify()
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._waiting:
                if not await self._append(reign, COMMAND, self._take_batch()):
                    return
                await self._compact(reign)

    def _take_batch(self) -> list[_Proposal]:
        size, count = 0, 0
        for command, _ in self._waiting[:_BATCH_COUNT_MAX]:
            size += len(command)
            if count and size > _BATCH_BYTES_MAX:
                break
            count += 1
        batch = self._waiting[:count]
        del self._waiting[:count]
        return batch

    async def _append(self, reign: _Reign, kind: int, batch: list[_Proposal]) -> bool:
        """Writes and applies a batch; returns whether this node still leads."""
        entries = []
        for command, _ in batch:
            self._number += 1
            entries.append(Entry(kind, reign.term, self._process, self._number, command))
        index = self._index + 1
        try:
            outcome, revision = await self._commit(reign, index, entries)
            if isinstance(outcome, DiskError):
                _logger.error("%s", outcome)
            elif outcome is Outcome.COMMITTED:
                for number, (entry, (_, future)) in enumerate(zip(entries, batch, strict=True)):
                    result = self._take(index + number, entry, revision)
                    if not future.done():
                        applied = Applied(index + number, reign.term, result)
                        future.set_result((Outcome.COMMITTED, applied))
                return True
        except BaseException:
            _end_all(batch, (Outcome.UNKNOWN, None))
            raise
        _end_all(batch, outcome if isinstance(outcome, DiskError) else (outcome, None))
        return isinstance(outcome, DiskError) and kind == COMMAND

    async def _commit(
        self, reign: _Reign, index: int, entries: list[Entry]
    ) -> tuple[Outcome | DiskError, int]:
        """Writes entries; returns the outcome, and the revision in which they were written."""
        values = [each.encode() for each in entries]
        request = self._keys.append(reign.term, index, values)
        is_repeated = False
        while (rest := reign.rest()) > 0:
            try:
                answer = await self._call(_TXN, request, timeout=rest)
            except StoreTimeout:
                is_repeated = True
                continue
            except GatewayRefused as error:
                is_repeated = is_repeated or error.is_repeated
                return await self._refused(
                    error, self._keys.log(index), values[0], is_repeated=is_repeated
                )
            if answer.body.get("succeeded"):
                return Outcome.COMMITTED, int(answer.body["header"]["revision"])
            is_repeated = is_repeated or answer.is_repeated
            leader, first = range_of(answer.body, 0), range_of(answer.body, 1)
            if first and first[0].value == values[0]:
                # An earlier attempt wrote all entries.
                return Outcome.COMMITTED, first[0].create_revision
            if first and leader and leader[0].create_revision == reign.term:
                raise damage(first[0].key, "another process wrote it in the term of this node")
            return (Outcome.UNKNOWN if is_repeated else Outcome.NOT_LEADER), 0
        return (Outcome.UNKNOWN if is_repeated else Outcome.NOT_LEADER), 0

    async def _refused(
        self, error: GatewayRefused, key: str, value: bytes, *, is_repeated: bool
    ) -> tuple[Outcome | DiskError, int]:
        """Returns the outcome of entries that etcd refused. etcd may have written them: it checks
        its quota again during the write, and may report a full disk after writing."""
        try:
            found = await self._read(key)
        except (StoreTimeout, GatewayRefused):
            return Outcome.UNKNOWN, 0
        if found is not None and found.value == value:
            return Outcome.COMMITTED, found.create_revision
        if is_repeated or found is not None:
            return Outcome.UNKNOWN, 0
        return _disk_error(error), 0

    async def _compact(self, reign: _Reign) -> None:
        """Writes a snapshot after enough entries, and deletes the entries that it covers."""
        if self._index < self._snapshot_due:
            return
        # After a failure the next attempt follows after the same number of entries.
        self._snapshot_due = self._index + self._snapshot_entries
        state, keys = self._snapshot(), self._keys
        parts = [state[at : at + _PART_BYTES] for at in range(0, len(state), _PART_BYTES)]
        manifest = Manifest(self._index, reign.term, len(state), zlib.crc32(state), len(parts))
        first_kept = max(1, self._index - self._snapshot_entries // 10)
        try:
            former = await self._read(keys.snapshot)
            for number, data in enumerate(parts):
                request = keys.put_part(reign.term, self._index, number, data)
                await self._call(_TXN, request, timeout=_READ_S)
            request = keys.put_snapshot(
                reign.term,
                manifest,
                former=0 if former is None else former.mod_revision,
                first_kept=first_kept,
            )
            await self._call(_TXN, request, timeout=_READ_S)
        except (StoreTimeout, GatewayRefused) as error:
            _logger.warning("no snapshot of the controller: %s", error)

    # The interface.

    async def propose(self, command: bytes, *, timeout: float) -> tuple[Outcome, Applied | None]:
        """Commit *command*; see `Engine.propose`."""
        if len(command) > COMMAND_BYTES_MAX:
            raise ArgumentError(
                f"a command has {len(command)} bytes; the log takes up to {COMMAND_BYTES_MAX}"
            )
        if not self.leadership().is_leader:
            return Outcome.NOT_LEADER, None
        future = _new_future()
        self._waiting.append((command, future))
        self._arrived.set()
        try:
            async with asyncio.timeout(timeout):
                result = await asyncio.shield(future)
        except TimeoutError:
            return Outcome.UNKNOWN, None
        if isinstance(result, DiskError):
            raise result
        return result

    async def read_barrier(self, *, timeout: float) -> int | None:
        """Return the last index applied here, once etcd's quorum has confirmed that this node led
        after the call began; None if that is not certain."""
        if not self.leadership().is_leader:
            return None
        future: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        self._asking.append(future)
        if not self._is_asking:
            self._is_asking = True
            self._start_task(self._ask())
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(future)
        except TimeoutError:
            return None

    async def _ask(self) -> None:
        """Requests proof of leadership from etcd; one request serves all waiting barriers."""
        asking: list[asyncio.Future[int | None]] = []
        try:
            while self._asking:
                asking, self._asking = self._asking, []
                index = await self._barrier()
                for each in asking:
                    if not each.done():
                        each.set_result(index)
        finally:
            self._is_asking = False
            for each in (*asking, *self._asking):
                if not each.done():
                    each.set_result(None)
            self._asking.clear()

    async def _barrier(self) -> int | None:
        reign, index = self._reign, self._index
        if reign is None:
            return None
        try:
            request = self._keys.read_led(reign.term)
            answer = await self._call(_TXN, request, timeout=reign.rest())
        except (StoreTimeout, GatewayRefused):
            return None
        return index if answer.body.get("succeeded") else None

    def leadership(self) -> Leadership:
        """Return the last leader that etcd reported; this node only while its lease is certain."""
        term, node_id = self._leader
        if self._failure is not None:
            return Leadership(term, False, None)
        reign = self._reign
        if reign is not None and reign.rest() > 0:
            return Leadership(reign.term, True, self._node_id)
        return Leadership(term, False, node_id or None)

    def watch(self, on_change: Callable[[Leadership], None]) -> Callable[[], None]:
        """Call *on_change* at each change of leadership; return a function that ends the calls."""
        self._watchers.append(on_change)
        return partial(_remove, self._watchers, on_change)

    def _notify(self) -> None:
        leadership = self.leadership()
        if leadership != self._told:
            self._told = leadership
            for each in list(self._watchers):
                each(leadership)


def _new_future() -> asyncio.Future[_Result]:
    return asyncio.get_running_loop().create_future()


def _end_all(proposals: list[_Proposal], result: _Result) -> None:
    for _, future in proposals:
        if not future.done():
            future.set_result(result)


def _disk_error(error: GatewayRefused) -> DiskError:
    if error.is_full:
        return DiskError(
            errno.ENOSPC,
            f"the log of the controller cannot be written: {error}; compact and defragment etcd, "
            "then disarm its alarm",
        )
    return DiskError(errno.EIO, f"the log of the controller cannot be written: {error}")


def _remove(
    watchers: list[Callable[[Leadership], None]], one: Callable[[Leadership], None]
) -> None:
    with contextlib.suppress(ValueError):
        watchers.remove(one)


def _unstarted(index: int, term: int, command: bytes) -> bytes:
    raise AssertionError("the engine was not started")


def _no_state() -> bytes:
    raise AssertionError("the engine was not started")


def _take_nothing(state: bytes) -> None:
    raise AssertionError("the engine was not started")
