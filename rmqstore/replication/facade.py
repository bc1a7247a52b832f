"""Replicated stores: what an application holds of replication.

    with Master(store, listen="127.0.0.1:10912", quorum=Quorum(in_sync=2)) as master:
        master.wait_in_sync(2, timeout=5.0)
        store.put("orders", b"paid", durability=Durability.REPLICATED)

One daemon thread for each replicated store, "rmqstore-ha", runs an event loop, on which the store
has a `Replica`: all sockets, timers and decisions are there. Every verb here may be called from any
thread, and from the callbacks, which have a thread of their own.

Changing a role is a sequence of steps, each of which may be done again. Whatever fails between them
leaves the store readable, closed for puts and without a role, and the same call may be made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Coroutine, Sequence
from types import TracebackType
from typing import Literal, Self, TypedDict, TypeVar, Unpack

from rmqstore import arguments
from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, StoreClosedError
from rmqstore.net.addresses import Address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.replication.group.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.replication.runtime.calls import Calls
from rmqstore.replication.runtime.replica import WAIT_S, Replica
from rmqstore.store import Store

__all__ = ["Master", "ReplicatedStore", "Slave"]

T = TypeVar("T")


class _Options(TypedDict, total=False):
    """What Master and Slave hand on; see ReplicatedStore."""

    broker_id: int | None
    protocol: HaProtocol
    quorum: Quorum
    mode: Mode | None
    options: HaOptions
    lease: Lease | None
    is_gated: bool
    connections_max: int
    allow: Sequence[str]
    is_learner: bool | None
    sync_from_last_file: bool | None
    on_proposal: Callable[[Proposal], None] | None
    on_change: Callable[[Status], None] | None


class ReplicatedStore:
    """A store that is one replica of a log, in changing roles.

    Without a role, as at first and after `close`, it can be read and takes no puts: they raise
    NotWritable. A context manager; leaving it ends the replication and leaves the store open.

    *broker_id* is this replica's id among the others; None takes a random one that is kept in
    config/replica.properties, so a copied directory must lose that file. *listen* is the address
    that slaves connect to while this is master, with haListenPort where it names no port; its port
    is open in every role. What *quorum*, *mode*, *options*, *is_learner* and *sync_from_last_file*
    leave open is as the store's configuration says (`Store.replica_config`). *protocol* is that
    of all replicas. *quorum* is how many copies a put needs while this is master, *mode* where it
    learns who counts; that is SYNC_STATE_SET wherever `become_master` is given members. With a
    *lease* a master takes puts only while `renew_lease` is called, none before the first call.
    Without *is_gated* the confirm offset of a master is its log's end, as RocketMQ has it by
    default. At most *connections_max* slaves are served, from the networks that *allow* names, all
    when it is empty. *options* are timers and sizes of connections, in either role.

    Of a slave: a learner never counts; with *sync_from_last_file* an empty one begins at its
    master's last log file, as one of the classic protocol always does.

    *on_proposal* receives the changes of the set that a master proposes, to be answered by
    `set_sync_state_set`, `refuse_proposal` or `lose_proposal`. *on_change* is called when the role,
    the set, a connection or its state has changed.

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
        mode: Mode | None = None,
        options: HaOptions | None = None,
        lease: Lease | None = None,
        is_gated: bool = True,
        connections_max: int = 64,
        allow: Sequence[str] = (),
        is_learner: bool | None = None,
        sync_from_last_file: bool | None = None,
        on_proposal: Callable[[Proposal], None] | None = None,
        on_change: Callable[[Status], None] | None = None,
    ) -> None:
        if on_proposal is not None:
            arguments.function("on_proposal", on_proposal)
        if on_change is not None:
            arguments.function("on_change", on_change)
        calls = Calls(on_proposal, on_change, self.status)
        with contextlib.ExitStack() as undo:
            undo.callback(calls.stop)
            self._replica = replica = Replica(
                store,
                broker_id=broker_id,
                listen=listen,
                protocol=protocol,
                quorum=quorum,
                mode=mode,
                options=options,
                lease=lease,
                is_gated=is_gated,
                connections_max=connections_max,
                allow=allow,
                is_learner=is_learner,
                sync_from_last_file=sync_from_last_file,
                on_proposal=None if on_proposal is None else calls.proposed,
                on_change=None if on_change is None else lambda status: calls.changed(),
            )
            self._thread = thread = LoopThread("rmqstore-ha", what="replication of the store")
            undo.callback(thread.stop)
            thread.run(replica.open)
            self.store, self._calls, self._is_closed = store, calls, False
            self.broker_id, self.protocol = replica.broker_id, replica.protocol
            # The replica was notified of that first, and is closed then.
            self._closing = store.watchers.subscribe("closed", lambda is_clean: self.close())
            undo.pop_all()

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
        self._is_closed = True
        try:
            # In a forked child nothing of it runs.
            with contextlib.suppress(StoreClosedError):
                self._thread.run(self._replica.close)
        finally:
            self._closing.close()
            # A callback in progress may still call `status`.
            self._calls.stop()
            self._thread.stop()

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
        timeout: float = WAIT_S,
    ) -> None:
        """Become master in *epoch*; return once puts are accepted.

        None is the first epoch of a store that has no other replicas, or the epoch of a master
        whose role ended cleanly (`close`) and that continues. Every other store needs an epoch
        above every earlier one. A store that was master and did not close cleanly may lack messages
        that other replicas acknowledged. It also needs *others_asked*, by which the caller states
        that the replicas were compared and that this is the one to promote, or *members*, the
        decision of the keeper of the sync-state set. A jump of more than 1,000,000 above the
        highest known epoch needs *allow_epoch_jump*.

        *members*, this store's id among them, is the sync-state set that goes with the election
        and *set_epoch* its version. Again in the same epoch only the set counts; in a later one
        connections stay, and so do puts that wait. *timeout* bounds the wait, in seconds, until
        queues and index have what is confirmed.

        Raises Fenced for an epoch that is over, StoreTimeout, ArgumentError where an epoch or
        *others_asked* is missing and for a set that cannot be; nothing has changed then. The log is
        cut to its last whole record before anything else.
        """
        self._await(
            lambda: self._replica.become_master(
                epoch,
                members=members,
                set_epoch=set_epoch,
                others_asked=others_asked,
                allow_epoch_jump=allow_epoch_jump,
                timeout=timeout,
            )
        )

    def become_slave(
        self,
        master: str | Address,
        epoch: int | None = None,
        *,
        begin_anew: bool = False,
        allow_epoch_jump: bool = False,
    ) -> None:
        """Follow *master*, "host:port"; return once this store refuses puts and is connecting. It
        continues to connect until the master answers.

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
        self._await(
            lambda: self._replica.become_slave(
                master, epoch, begin_anew=begin_anew, allow_epoch_jump=allow_epoch_jump
            )
        )

    # ---- the sync-state set and the lease

    def set_sync_state_set(self, members: Collection[int], set_epoch: int) -> None:
        """Use the set that the keeper of the set has confirmed; a set older than the known set
        changes nothing.

        A newer set without this master means that another was elected: the role ends, puts are
        refused, and `status` reports it. Raises ArgumentError on a slave, in a mode without a set,
        and for two sets of one version.
        """
        self._await(lambda: self._replica.set_sync_state_set(members, set_epoch))

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """Changes of the set that this master has proposed, without an answer yet."""
        return self._call(lambda: self._replica.proposals)

    def refuse_proposal(self, number: int) -> None:
        """Answer the proposal of that number: it will never take effect."""
        self._call(lambda: self._replica.refuse_proposal(number))

    def lose_proposal(self, number: int) -> None:
        """Report that a proposal's answer will never arrive; it may have taken effect."""
        self._call(lambda: self._replica.lose_proposal(number))

    def renew_lease(self, asked_ms: float) -> None:
        """Take a renewal of the lease that was asked for at *asked_ms*, a reading of
        `time.monotonic` in milliseconds.

        Raises ArgumentError for one that is still to come: it is of another clock.
        """
        self._call(lambda: self._replica.renew_lease(asked_ms))

    def set_alive_replicas(self, count: int) -> None:
        """Take how many replicas of the group are alive, this one included, as a nameserver or a
        controller reports it.

        In acting-master mode (`Mode.ACTING_MASTER`) no more replicas than this are taken to be in
        sync, whatever connections show: with fewer than a put needs it is refused, or needs fewer
        copies with *auto_in_sync*. Until the first call the number is `Quorum.total`. It holds for
        later roles, too.
        """
        self._call(lambda: self._replica.set_alive_replicas(count))

    # ---- state

    @property
    def role(self) -> Literal["master", "slave"] | None:
        """The role, None without one."""
        return self._replica.role

    @property
    def epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return self._replica.epoch

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs of the log."""
        return self._replica.epochs

    @property
    def address(self) -> Address | None:
        """Where slaves connect, with the port that was found for port 0; None without *listen*."""
        return self._replica.address

    @property
    def acknowledges_flushed(self) -> bool:
        """Whether acknowledgements of this replica mean its disk, not its memory: as a slave, and
        of its own copy as a master."""
        return self._replica.acknowledges_flushed

    @property
    def end_offset(self) -> int:
        """The physical offset behind the log's last byte."""
        return self.store.end_offset

    @property
    def confirm_offset(self) -> int:
        """The physical offset up to which replicas agree and readers may see."""
        return self._replica.confirm_offset

    @property
    def sync_state_set(self) -> frozenset[int] | None:
        """The set confirmed last, None without one."""
        return self._call(lambda: self._replica.sync_state_set)

    @property
    def sync_state_set_epoch(self) -> int:
        """The version of that set."""
        return self._call(lambda: self._replica.sync_state_set_epoch)

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The connections of a master."""
        return self._call(lambda: self._replica.replicas)

    @property
    def master_status(self) -> MasterStatus | None:
        """The master of a slave, None in another role."""
        return self._call(lambda: self._replica.master_status)

    def status(self) -> Status:
        """Return all of it, of one moment."""
        return self._call(self._replica.status)

    def wait_in_sync(self, copies: int, timeout: float | None = None) -> None:
        """Return when so many copies, the master's own included, hold all that is in its log now.

        Copies are those that count for puts. Raises StoreTimeout after *timeout* seconds (30 by
        default), ArgumentError where this store is not a master.
        """
        limit = WAIT_S if timeout is None else timeout
        self._await(lambda: self._replica.wait_in_sync(copies, limit))

    def wait_caught_up(self, offset: int | None = None, timeout: float | None = None) -> None:
        """Return when the log of this slave is that of its master up to a physical *offset*; None:
        up to where the master's log is known to end.

        Raises StoreTimeout after *timeout* seconds (30 by default), ArgumentError where this store
        is no slave.
        """
        limit = WAIT_S if timeout is None else timeout
        self._await(lambda: self._replica.wait_caught_up(offset, limit))

    def wait_confirmed(self, offset: int | None = None, timeout: float | None = None) -> None:
        """Return when replicas agree up to a physical *offset*, None for the log's end now, and
        readers of this store see all of it; in either role.

        Raises StoreTimeout after *timeout* seconds (30 by default).
        """
        limit = WAIT_S if timeout is None else timeout
        self._await(lambda: self._replica.wait_confirmed(offset, limit))

    # ---- within

    def _call(self, work: Callable[[], T]) -> T:
        return self._thread.call(work)

    def _await(self, begin: Callable[[], Coroutine[object, object, None]]) -> None:
        if self._thread.is_current:
            raise ArgumentError("called on the replication thread; waiting here would deadlock")
        self._thread.run(begin)


class Master(ReplicatedStore):
    """A replicated store that is master at once; see `ReplicatedStore`, whose options it takes,
    and `ReplicatedStore.become_master`. Without *listen* it is brokerIP2, or else brokerIP1, and
    haListenPort: 127.0.0.1:10912 by default."""

    def __init__(
        self,
        store: Store,
        *,
        listen: str | Address | None = None,
        epoch: int | None = None,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
        allow_epoch_jump: bool = False,
        **options: Unpack[_Options],
    ) -> None:
        arguments.instance("store", store, Store)
        if listen is None:
            # As RocketMQ registers it. No host is assumed beyond those that the file names.
            host = store.replica_config.ha_host_address or store.config.store_host_address
            listen = host, store.replica_config.ha_listen_port
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
    `ReplicatedStore.become_slave`. Without *master* it is haMasterAddress. With *listen* it can
    become master later."""

    def __init__(
        self,
        store: Store,
        *,
        master: str | Address | None = None,
        epoch: int | None = None,
        begin_anew: bool = False,
        allow_epoch_jump: bool = False,
        listen: str | Address | None = None,
        **options: Unpack[_Options],
    ) -> None:
        arguments.instance("store", store, Store)
        master = master or store.replica_config.ha_master_address
        if not master:
            raise ArgumentError(
                "master is None, and haMasterAddress is not set; give the master's host and port"
            )
        super().__init__(store, listen=listen, **options)
        try:
            self.become_slave(
                master, epoch, begin_anew=begin_anew, allow_epoch_jump=allow_epoch_jump
            )
        except BaseException:
            self.close()
            raise
