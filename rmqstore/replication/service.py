"""Replicated stores: what an application holds of replication.

    with Master(store, listen="127.0.0.1:10912", quorum=Quorum(in_sync=2)) as master:
        master.wait_in_sync(2, timeout=5.0)
        store.put("orders", b"paid", durability=Durability.REPLICATED)

One daemon thread for each replicated store, "rmqstore-ha", runs an event loop with all of its
sockets, timers and decisions. Every verb here may be called from any thread, and from the
callbacks, which have a thread of their own.

Changing a role is a sequence of steps, each of which may be done again. Whatever fails between them
leaves the store readable, closed for puts and without a role, and the same call may be made again.
"""

from __future__ import annotations

import contextlib
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypedDict, TypeVar, Unpack

from rmqstore import arguments
from rmqstore.config.properties import format_properties, parse_properties
from rmqstore.errors import (
    ArgumentError,
    CorruptionError,
    StoreClosedError,
    StoreError,
    StoreTimeout,
)
from rmqstore.metadata import replace_durably, sync_directory
from rmqstore.regular_file import read_regular
from rmqstore.replication.calls import Calls, Waiting
from rmqstore.replication.epoch import EpochEntry
from rmqstore.replication.events import HaOptions
from rmqstore.replication.links import (
    Address,
    Allowed,
    Listener,
    LoopThread,
    listen_on,
    log,
    now_ms,
    parse_address,
)
from rmqstore.replication.log import StoreLog
from rmqstore.replication.node import HaProtocol
from rmqstore.replication.quorum import Lease, Mode, Quorum
from rmqstore.replication.roles import Roles, Settings
from rmqstore.replication.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.sync_state_set import Proposal
from rmqstore.store import Store

__all__ = ["Master", "ReplicatedStore", "Slave"]

T = TypeVar("T")

_CONNECTIONS_MAX = 1000
_WAIT_S = 30.0
_SLICE_S = 0.5


class _Options(TypedDict, total=False):
    """What Master and Slave hand on; see ReplicatedStore."""

    broker_id: int | None
    protocol: HaProtocol
    quorum: Quorum
    mode: Mode
    options: HaOptions
    lease: Lease | None
    is_gated: bool
    connections_max: int
    allow: Sequence[str]
    is_learner: bool
    sync_from_last_file: bool
    on_proposal: Callable[[Proposal], None] | None
    on_change: Callable[[Status], None] | None


class ReplicatedStore:
    """A store that is one replica of a log, in changing roles.

    Without a role, as at first and after `close`, it can be read and takes no puts: they raise
    NotWritable. A context manager; leaving it ends the replication and leaves the store open.

    *broker_id* is this replica's id among the others; None takes a random one that is kept in
    config/replica.properties, so a copied directory must lose that file. *listen* is the address
    that slaves connect to while this is master; its port is open in every role. *protocol* is that
    of all replicas. *quorum* is how many copies a put needs while this is master, *mode* where it
    learns who counts; that is SYNC_STATE_SET wherever `become_master` is given members. With a
    *lease* a master takes puts only while `renew_lease` is called, none before the first call.
    Without *is_gated* the confirm offset of a master is its log's end, as RocketMQ has it by
    default. At most *connections_max* slaves are served, from the networks that *allow* names, all
    when it is empty. *options* are timers and sizes of connections, in either role.

    Of a slave: a learner never counts; with *sync_from_last_file* an empty one begins at its
    master's last log file, as one of the classic protocol always does.

    *on_proposal* hears of changes that a master wishes for its set, to be answered by
    `set_sync_state_set`, `refuse_proposal` or `lose_proposal`; *on_change* that role, set, a
    connection or its state is another.

    Raises ArgumentError for an address that cannot be had, for a store that is read-only or
    replicated already, CorruptionError when the epoch list cannot be read.
    """

    def __init__(
        self,
        store: Store,
        *,
        broker_id: int | None = None,
        listen: str | Address | None = None,
        protocol: HaProtocol = "autoswitch",
        quorum: Quorum | None = None,
        mode: Mode = Mode.PLAIN,
        options: HaOptions | None = None,
        lease: Lease | None = None,
        is_gated: bool = True,
        connections_max: int = 64,
        allow: Sequence[str] = (),
        is_learner: bool = False,
        sync_from_last_file: bool = False,
        on_proposal: Callable[[Proposal], None] | None = None,
        on_change: Callable[[Status], None] | None = None,
    ) -> None:
        arguments.instance("store", store, Store)
        if broker_id is not None:
            broker_id = arguments.integer("broker_id", broker_id)
        connections_max = arguments.integer("connections_max", connections_max)
        arguments.text("protocol", protocol)
        arguments.instance("mode", mode, Mode)
        for name, value, kind in (
            ("quorum", quorum, Quorum),
            ("options", options, HaOptions),
            ("lease", lease, Lease),
        ):
            if value is not None:
                arguments.instance(name, value, kind)
        arguments.boolean("is_gated", is_gated)
        arguments.boolean("is_learner", is_learner)
        arguments.boolean("sync_from_last_file", sync_from_last_file)
        if on_proposal is not None:
            arguments.function("on_proposal", on_proposal)
        if on_change is not None:
            arguments.function("on_change", on_change)
        if store.read_only:
            raise ArgumentError(f"store {store.path} is opened read-only; open it for writing")
        if store._replication is not None:
            raise ArgumentError(f"store {store.path} is replicated already; use what does that")
        if not 1 <= connections_max <= _CONNECTIONS_MAX:
            raise ArgumentError(
                f"connections_max is {connections_max}; it must be from 1 to {_CONNECTIONS_MAX}"
            )
        if protocol not in ("autoswitch", "classic"):
            raise ArgumentError(f"protocol {protocol!r}; there are 'autoswitch' and 'classic'")
        self.store = store
        self.protocol = protocol
        self.broker_id = _kept_id(store) if broker_id is None else broker_id
        if self.broker_id < 0:
            raise ArgumentError(f"broker_id {broker_id}; ids are 0 or more")
        self._mode = mode
        self._is_closed = False
        self._changing = threading.RLock()
        listener = None if listen is None else listen_on(parse_address(listen, low_port=0))
        with contextlib.ExitStack() as undo:
            if listener is not None:
                undo.callback(listener.close)
            settings = Settings(
                broker_id=self.broker_id,
                address=None if listener is None else listener.getsockname()[:2],
                protocol=protocol,
                quorum=quorum or Quorum(),
                mode=mode,
                options=replace(options or HaOptions(), streams=True, checks=True),
                lease=lease or Lease(),
                is_gated=is_gated,
                connections_max=connections_max,
                allowed=Allowed(allow),
                is_learner=is_learner,
                sync_from_last_file=sync_from_last_file,
            )
            store._refuse("role")
            # No frame of the classic protocol tells a slave what is confirmed.
            self._log = StoreLog(
                store,
                is_gated=is_gated and protocol == "autoswitch",
                cut_bytes_max=settings.options.cut_bytes_max,
            )
            undo.callback(self._log.close)
            self._address = settings.address
            self._thread = LoopThread("rmqstore-ha")
            undo.callback(self._thread.stop)
            self._calls = Calls(on_proposal, on_change, self.status)
            undo.callback(self._calls.stop)
            self._roles = Roles(self._thread.loop, store, self._log, settings, self._calls)
            self._listener: Listener | None = None
            if listener is not None:
                self._listener = self._call(
                    lambda: Listener(self._thread.loop, listener, self._roles.accept)
                )
            undo.pop_all()
        store._replication = self

    # ---- life

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the role and all connections. The store stays open and takes no puts. Twice is
        harmless.

        The log of a master is brought to the disk, and that its role ended so is saved: only then
        may this store become master again without an epoch.
        """
        self._close(is_clean=True)

    def _abandon(self) -> None:
        """Ends as a process that dies: nothing more is saved."""
        self._close(is_clean=False)

    def _close(self, *, is_clean: bool) -> None:
        try:
            with self._changing:
                if self._is_closed:
                    return
                self._is_closed = True
                # In a forked child nothing of it runs.
                with contextlib.suppress(StoreClosedError):
                    self._end(is_clean)
        finally:
            # A call that is under way may still ask how things stand.
            self._calls.stop()
            self._thread.stop()

    def _end(self, is_clean: bool) -> None:
        try:
            was_master = self._call(self._end_role)
            if was_master and is_clean:
                # Not on the loop's thread, which answers others while the disk works.
                self.store.wait_flushed()
                self._call(self._roles.record_end)
        except StoreClosedError:
            raise
        except StoreError as error:
            log().warning(
                "%s: the end of the role of master was not saved, so this store becomes master "
                "again only with an epoch and others_asked: %s",
                self.store.path,
                error,
            )
        finally:
            self._call(self._release)

    def _end_role(self) -> bool:
        if self._listener is not None:
            self._listener.close()
        return self._roles.close()

    def _release(self) -> None:
        self.store._replication = None
        self._log.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.role or "no role"
        return f"<{type(self).__name__} {self.store.path!r} broker {self.broker_id} {state}>"

    # ---- roles

    def become_master(
        self,
        epoch: int | None = None,
        *,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
        allow_epoch_jump: bool = False,
        timeout: float = _WAIT_S,
    ) -> None:
        """Become master in *epoch*; return once puts are accepted.

        None is the first epoch of a store that has no other replicas, or the epoch of a master
        whose role ended cleanly (`close`) and that goes on. Anybody else needs an epoch above every
        one given before. A store that was master and did not close cleanly may lack what other
        replicas acknowledged: it also needs *others_asked*, by which the caller states that they
        were asked and that this is the replica to promote, or *members*, by which whoever keeps the
        sync-state set says so. A jump of more than 1,000,000 above the highest known epoch needs
        *allow_epoch_jump*.

        *members*, this store's id among them, is the sync-state set that goes with the election
        and *set_epoch* its version. Again in the same epoch only the set counts; in a later one
        connections stay, and so do puts that wait. *timeout* bounds the wait, in seconds, until
        queues and index have what is confirmed.

        Raises Fenced for an epoch that is over, StoreTimeout, ArgumentError where an epoch or
        *others_asked* is missing and for a set that cannot be; nothing has changed then. The log is
        cut to its last whole record before anything else.
        """
        if epoch is not None:
            epoch = arguments.integer("epoch", epoch)
        members = _broker_ids(members)
        set_epoch = arguments.integer("set_epoch", set_epoch)
        others_asked = arguments.boolean("others_asked", others_asked)
        allow_epoch_jump = arguments.boolean("allow_epoch_jump", allow_epoch_jump)
        timeout = arguments.seconds("timeout", timeout)
        wants_set = bool(members) or self._mode is Mode.SYNC_STATE_SET
        if members and self.broker_id not in members:
            raise ArgumentError(f"the members {sorted(members)} lack this store, {self.broker_id}")
        if members and (min(members) < 0 or self.protocol == "classic"):
            raise ArgumentError(
                f"the members {sorted(members)}: ids are 0 or more, and slaves of the classic "
                "protocol have none to be members by"
            )
        roles = self._roles
        with self._changing:
            self._check_open()
            new = self._call(
                lambda: roles.epoch_to_begin(
                    epoch,
                    others_asked=others_asked or bool(members),
                    allow_jump=allow_epoch_jump,
                )
            )
            if new == roles.epoch and roles.role == "master":
                if members and set_epoch > self.sync_state_set_epoch:
                    self.set_sync_state_set(members, set_epoch)
                return
            deadline = time.monotonic() + timeout
            try:
                if self._call(lambda: roles.rule_on(new, wants_set, members, set_epoch)):
                    return
                self._call(lambda: roles.take_office(new, wants_set, members, set_epoch))
                left = max(deadline - time.monotonic(), 0.001)
                self.store.wait_dispatched(self.confirm_offset, timeout=left)
                self._call(lambda: roles.open_office(new))
            except BaseException as error:
                reason = str(error)
                self._call(lambda: roles.end_role(reason))
                raise

    def become_slave(
        self,
        master: str | Address,
        epoch: int | None = None,
        *,
        begin_anew: bool = False,
        allow_epoch_jump: bool = False,
    ) -> None:
        """Follow *master*, "host:port"; return once this store takes no puts and is connecting,
        which it goes on doing until somebody is there.

        *epoch* is that of the master where it is known; it is on the disk on return. From then on
        nothing is acknowledged to a master of an older epoch, also after a restart; the classic
        protocol does not carry it, so there only later orders are checked. With *begin_anew* this
        store gives up its whole log if it ends before the first byte of the master's log; the last
        log files are copied to `cut/` (`HaOptions.cut_bytes_max`). Without it such a slave halts.
        Under the same master nothing but the epoch and this permission changes, except that a slave
        that has halted tries again. Puts that wait end with ReplicaTimeout.

        Raises Fenced for an epoch that is over, and for the one in which this store itself is
        master; ArgumentError for a jump of more than 1,000,000 without *allow_epoch_jump*.
        """
        place = parse_address(master)
        if epoch is not None:
            epoch = arguments.integer("epoch", epoch)
        begin_anew = arguments.boolean("begin_anew", begin_anew)
        allow_epoch_jump = arguments.boolean("allow_epoch_jump", allow_epoch_jump)
        with self._changing:
            self._check_open()
            self._call(
                lambda: self._roles.follow(
                    place, epoch, begin_anew=begin_anew, allow_jump=allow_epoch_jump
                )
            )

    # ---- the sync-state set and the lease

    def set_sync_state_set(self, members: Collection[int], set_epoch: int) -> None:
        """Take the set that the group's authority has confirmed; one that is older than what is
        known changes nothing.

        A newer set without this master means that another was elected: the role ends, puts are
        refused, and `status` says so. Raises ArgumentError on a slave, in a mode without a set,
        and for two sets of one version.
        """
        taken = _broker_ids(members)
        version = arguments.integer("set_epoch", set_epoch)
        self._call(lambda: self._roles.take_set(taken, version))

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """Changes of the set that this master wishes and nobody has answered."""
        return self._call(lambda: self._roles.known_set()[2])

    def refuse_proposal(self, number: int) -> None:
        """Answer the proposal of that number: it will never take effect."""
        number = arguments.integer("number", number)
        self._call(
            lambda: self._roles.of_master().change(
                lambda group, now: group.refuse_proposal(number, now)
            )
        )

    def lose_proposal(self, number: int) -> None:
        """Tell that a proposal's answer will never come; it may have taken effect."""
        number = arguments.integer("number", number)
        self._call(
            lambda: self._roles.of_master().change(
                lambda group, now: group.lose_proposal(number, now)
            )
        )

    def renew_lease(self, asked_ms: float) -> None:
        """Take a renewal of the lease that was asked for at *asked_ms*, a reading of
        `time.monotonic` in milliseconds.

        Raises ArgumentError for one that is still to come: it is of another clock.
        """
        asked_ms = math.floor(arguments.milliseconds("asked_ms", asked_ms))
        if asked_ms > now_ms():
            raise ArgumentError(
                f"a renewal asked for at {asked_ms} ms, which is to come: time.monotonic is at "
                f"{now_ms()} ms"
            )

        def renew() -> None:
            self._roles.of_master().change(
                lambda group, now: group.writer.lease.renewed(asked_ms=asked_ms)
            )

        self._call(renew)

    # ---- how things stand

    @property
    def role(self) -> Literal["master", "slave"] | None:
        """The role, None without one."""
        return self._roles.role

    @property
    def epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return self._roles.known_epoch

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs of the log."""
        return tuple(self._log.epochs)

    @property
    def address(self) -> Address | None:
        """Where slaves connect, with the port that was found for port 0; None without *listen*."""
        return self._address

    @property
    def end_offset(self) -> int:
        """The physical offset behind the log's last byte."""
        return self.store.end_offset

    @property
    def confirm_offset(self) -> int:
        """The physical offset up to which replicas agree and readers may see."""
        return self._log.confirm_offset

    @property
    def sync_state_set(self) -> frozenset[int] | None:
        """The set confirmed last, None without one."""
        return self._call(lambda: self._roles.known_set()[0])

    @property
    def sync_state_set_epoch(self) -> int:
        """The version of that set."""
        return self._call(lambda: self._roles.known_set()[1])

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The connections of a master."""
        return self._call(self._roles.replicas)

    @property
    def master_status(self) -> MasterStatus | None:
        """The master of a slave, None in another role."""
        return self._call(lambda: self._roles.master_status)

    def status(self) -> Status:
        """Return all of it, of one moment."""
        return self._call(self._roles.status)

    def wait_in_sync(self, copies: int, timeout: float | None = None) -> None:
        """Return when so many copies, the master's own included, hold all that is in its log now.

        Copies are those that count for puts. Raises StoreTimeout after *timeout* seconds (30 by
        default), ArgumentError where this store is no master.
        """
        copies = arguments.integer("copies", copies, low=1)
        end = self.store.end_offset
        self._wait(
            lambda: self._roles.wait_in_sync(copies, end), timeout, f"{copies} copies up to {end}"
        )

    def wait_caught_up(self, offset: int | None = None, timeout: float | None = None) -> None:
        """Return when the log of this slave is that of its master up to a physical *offset*; None:
        up to where the master's log is known to end.

        Raises StoreTimeout after *timeout* seconds (30 by default), ArgumentError where this store
        is no slave.
        """
        if offset is not None:
            offset = arguments.integer("offset", offset)
        what = "the master's end" if offset is None else f"offset {offset}"
        self._wait(lambda: self._roles.wait_caught_up(offset), timeout, f"catching up to {what}")

    def wait_confirmed(self, offset: int | None = None, timeout: float | None = None) -> None:
        """Return when replicas agree up to a physical *offset*, None for the log's end now, and
        readers of this store see all of it; in either role.

        Raises StoreTimeout after *timeout* seconds (30 by default).
        """
        end = self.store.end_offset if offset is None else arguments.integer("offset", offset)
        limit = _WAIT_S if timeout is None else arguments.seconds("timeout", timeout)
        deadline = time.monotonic() + limit
        while self.store.dispatched_offset < end:
            left = deadline - time.monotonic()
            if left <= 0:
                raise StoreTimeout(
                    f"waited {limit} s for {end} to be confirmed; confirmed is "
                    f"{self.confirm_offset}, dispatched {self.store.dispatched_offset}"
                )
            self.store._await_change(self.store.dispatched_offset, min(left, _SLICE_S))

    def _wait(self, begin: Callable[[], Waiting], timeout: float | None, what: str) -> None:
        if self._thread.is_current:
            raise ArgumentError("waiting on the thread of replication would wait for ever")
        limit = _WAIT_S if timeout is None else arguments.seconds("timeout", timeout)
        waiting = self._call(begin)
        try:
            waiting.result(limit, what)
        finally:
            with contextlib.suppress(StoreClosedError):
                self._call(lambda: self._roles.end_wait(waiting))

    # ---- within

    def _call(self, work: Callable[[], T]) -> T:
        return self._thread.call(work)

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreClosedError(f"replication of store {self.store.path} was closed")


def _broker_ids(members: Collection[int]) -> frozenset[int]:
    wanted = "a collection of broker ids"
    return frozenset(
        arguments.integer("members", each) for each in arguments.items("members", members, wanted)
    )


class Master(ReplicatedStore):
    """A replicated store that is master at once; see `ReplicatedStore`, whose options it takes,
    and `ReplicatedStore.become_master`."""

    def __init__(
        self,
        store: Store,
        *,
        listen: str | Address,
        epoch: int | None = None,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
        allow_epoch_jump: bool = False,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__(store, listen=listen, **options)
        try:
            self.become_master(
                epoch,
                members=members,
                set_epoch=set_epoch,
                others_asked=others_asked,
                allow_epoch_jump=allow_epoch_jump,
            )
        except BaseException:
            self.close()
            raise


class Slave(ReplicatedStore):
    """A replicated store that is slave at once; see `ReplicatedStore`, whose options it takes, and
    `ReplicatedStore.become_slave`. With *listen* it can become master later."""

    def __init__(
        self,
        store: Store,
        *,
        master: str | Address,
        epoch: int | None = None,
        begin_anew: bool = False,
        allow_epoch_jump: bool = False,
        listen: str | Address | None = None,
        **options: Unpack[_Options],
    ) -> None:
        super().__init__(store, listen=listen, **options)
        try:
            self.become_slave(
                master, epoch, begin_anew=begin_anew, allow_epoch_jump=allow_epoch_jump
            )
        except BaseException:
            self.close()
            raise


def _kept_id(store: Store) -> int:
    """Return the broker id kept with a store; a random one is kept where there is none."""
    path = Path(store.path, "config", "replica.properties")
    if path.exists():
        text = parse_properties(read_regular(path).decode("iso-8859-1")).get("brokerId", "")
        if text.isascii() and text.isdecimal() and int(text) < 2**63:
            return int(text)
        raise CorruptionError(
            f"{path}: brokerId {text!r} is no id; write the one this replica had, or remove the "
            "file for another",
            path=str(path),
            kind="replica settings",
        )
    found = secrets.randbits(48)
    if not path.parent.is_dir():
        path.parent.mkdir()
        sync_directory(path.parent.parent)
    replace_durably(path, format_properties({"brokerId": str(found)}).encode("iso-8859-1"))
    return found
