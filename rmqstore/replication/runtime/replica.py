"""A replica on an event loop, for services that run on the loop.

    async with Replica(store, listen="127.0.0.1:0", quorum=Quorum(in_sync=2)) as replica:
        await replica.become_master(epoch=8, members=(1, 2), set_epoch=41)

All verbs run on the loop without blocking it: work that waits for the disk or for threads runs on
a thread of the replica. `rmqstore.replication.ReplicatedStore` is the same for callers on other
threads, with a loop of its own.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable, Collection, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, Self

from rmqstore import arguments
from rmqstore.epochs import EpochEntry
from rmqstore.errors import ArgumentError, StoreClosedError
from rmqstore.net.addresses import Address, parse_address
from rmqstore.net.running_loop import RunningLoop
from rmqstore.net.runtime import LoopRuntime
from rmqstore.net.seldom import Seldom
from rmqstore.replication.group.fixed_master import FixedMaster, Lead, SlaveReport, Wait
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import HaProtocol
from rmqstore.replication.group.quorum import Lease, Mode, Quorum
from rmqstore.replication.group.status import MasterStatus, ReplicaStatus, Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.protocol.events import HaOptions
from rmqstore.replication.runtime.connections import Port
from rmqstore.replication.runtime.identity import kept_id
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.replication.runtime.logger import log
from rmqstore.replication.runtime.roles import Roles
from rmqstore.replication.runtime.settings import Settings, settings_of
from rmqstore.replication.runtime.shielded import Shielded
from rmqstore.store import Store
from rmqstore.store.replica_view import ReplicaView
from rmqstore.store.watchers import Subscription

__all__ = ["WAIT_S", "Replica"]

WAIT_S = 30.0
"""How long a wait without a timeout of its own lasts, in seconds."""


class Replica:
    """A store that is one replica of a log, in changing roles, on the loop that runs at `open`.

    Options and roles are those of `rmqstore.replication.ReplicatedStore`. Any number of replicas
    may share a loop; each has one thread for its disk and one for its connections. With
    *learns_while_partial* a slave is a learner as long as its log lacks the beginning of its
    master's. *fixed* is of a broker whose file makes it the master. *on_proposal*
    and *on_change* are called on the loop, soon after the event, and must not block.

    An async context manager, once: entering it is `open`, leaving it is `close`, which leaves the
    store open. Changes of the role are carried out one after another, in the order of the calls.
    A call that is cancelled before its change began changes nothing; later, the present step is
    completed, and the replica has no role then, unless that was the last step. A second
    cancellation does not wait for the step.

    Apart from `role`, `epoch`, `epochs`, `confirm_offset`, `address`, `broker_id` and `protocol`
    everything is used on that loop only. Raises ArgumentError elsewhere and before `open`,
    StoreClosedError after `close`.
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
        waits_for_admission: bool = False,
        connections_max: int = 64,
        allow: Sequence[str] = (),
        is_learner: bool | None = None,
        sync_from_last_file: bool | None = None,
        learns_while_partial: bool = False,
        fixed: FixedMaster | None = None,
        on_proposal: Callable[[Proposal], None] | None = None,
        on_change: Callable[[Status], None] | None = None,
    ) -> None:
        arguments.instance("store", store, Store)
        for name, function in (("on_proposal", on_proposal), ("on_change", on_change)):
            if function is not None:
                arguments.function(name, function)

        self.store = store
        self._listen: Address | None = None
        if listen is not None:
            default_port = store.replica_config.ha_listen_port
            self._listen = parse_address(listen, low_port=0, default_port=default_port)
        self._settings = settings_of(
            store,
            broker_id=broker_id,
            protocol=protocol,
            quorum=quorum,
            mode=mode,
            options=options,
            lease=lease,
            is_gated=is_gated,
            waits_for_admission=waits_for_admission,
            connections_max=connections_max,
            allow=allow,
            is_learner=is_learner,
            sync_from_last_file=sync_from_last_file,
            learns_while_partial=learns_while_partial,
            fixed=fixed,
        )
        self._on_proposal = on_proposal
        self._on_change = on_change
        self._has_changed = self._is_closed = False
        self._process_id = os.getpid()
        self._runtime = LoopRuntime("ha", log=log())
        self._tasks = self._runtime.tasks("replica")
        self._loop: RunningLoop | None = None
        self._opening: Shielded[None] | None = None
        self._closing: Shielded[None] | None = None
        self._log: StoreLog | None = None
        self._roles: Roles | None = None
        self._port: Port | None = None
        self._subscription: Subscription | None = None

    # ---- life

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> Self:
        """Take the store, which then takes no puts, listen, and return this replica, without a
        role.

        Raises ArgumentError for an address that cannot be had, for a store that is read-only or
        replicated already, and for a replica that was opened before; CorruptionError when the epoch
        list cannot be read. The store is as before then.
        """
        if self._opening is not None or self._is_closed:
            raise ArgumentError(
                f"the replica of store {self.store.path} was opened before; make another one"
            )
        self._loop = RunningLoop()
        self._opening = self._shielded(self._open, name="opening of a replica")
        try:
            await self._opening.result()
        except BaseException:
            await self._close(is_clean=False)
            raise
        return self

    def _shielded(
        self, begin: Callable[[], Coroutine[Any, Any, None]], *, name: str
    ) -> Shielded[None]:
        return Shielded(self._runtime, self._tasks, begin, name=name)

    async def _open(self) -> None:
        port, view, store_log, settings = await self._runtime.on_disk(
            partial(_take, self.store, self._settings, self._listen)
        )
        self._settings, self._log, self._port = settings, store_log, port
        self._roles = Roles(
            self._runtime,
            view,
            store_log,
            settings,
            on_proposal=self._proposed,
            on_change=self._changed,
        )
        if port is not None:
            port.accept(self._roles.accept, warn=Seldom(log()).warning)
        self._subscription = view.watchers.subscribe("closed", self._store_closes)

    async def close(self) -> None:
        """End the role and all connections. The store stays open and takes no puts. Twice is
        harmless.

        The log of a master is brought to the disk, and that its role ended so is saved: only then
        may this store become master again without an epoch. A change of the role in progress
        is completed first, but no longer waits for queues and index; changes that have not begun
        raise StoreClosedError. Closing goes on where the caller is cancelled.
        """
        await self._close(is_clean=True)

    async def _close(self, *, is_clean: bool) -> None:
        if self._opening is None:
            self._is_closed = True
            return
        self._check_loop()
        if self._closing is None:
            work = partial(self._end, self._opening, is_clean=is_clean)
            self._closing = self._shielded(work, name="close of a replica")
        await self._closing.result()

    async def _end(self, opening: Shielded[None], *, is_clean: bool) -> None:
        await opening.ended()
        try:
            if self._port is not None:
                self._port.close()
            if self._roles is not None:
                await self._roles.close(is_clean=is_clean)
        finally:
            self._is_closed = True
            if self._subscription is not None:
                self._subscription.close()
            if self._log is not None:
                self._log.close()
            self._runtime.close()

    def _store_closes(self, is_clean: bool) -> None:
        """Close the replica before its store; called on the thread that closes the store."""
        loop = self._loop
        if loop is None or os.getpid() != self._process_id:
            return
        if loop.is_current:
            raise ArgumentError(
                f"store {self.store.path} has a replica on this event loop, which cannot close "
                "while the loop waits for the store; await the replica's close() first"
            )
        if not loop.is_running:
            log().warning(
                "%s: closed after the event loop of its replica; the end of the role was not saved",
                self.store.path,
            )
            return
        loop.run(lambda: self._close(is_clean=is_clean))

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else self.role or "no role"
        return f"<{type(self).__name__} {self.store.path!r} broker {self.broker_id} {state}>"

    # ---- roles

    async def become_master(
        self,
        epoch: int | None = None,
        *,
        members: Collection[int] = (),
        set_epoch: int = 0,
        others_asked: bool = False,
        allow_epoch_jump: bool = False,
        timeout: float = WAIT_S,
    ) -> None:
        """Become master; see `ReplicatedStore.become_master`."""
        if epoch is not None:
            epoch = arguments.integer("epoch", epoch)
        members = _broker_ids(members)
        set_epoch = arguments.integer("set_epoch", set_epoch)
        others_asked = arguments.boolean("others_asked", others_asked)
        allow_epoch_jump = arguments.boolean("allow_epoch_jump", allow_epoch_jump)
        timeout = arguments.seconds("timeout", timeout)
        roles = self._opened()
        if members and self.broker_id not in members:
            raise ArgumentError(f"the members {sorted(members)} lack this store, {self.broker_id}")
        if members and (min(members) < 0 or self.protocol == "classic"):
            raise ArgumentError(
                f"the members {sorted(members)}: ids are 0 or more, and slaves of the classic "
                "protocol have none to be members by"
            )
        await roles.become_master(
            epoch,
            members=members,
            set_epoch=set_epoch,
            others_asked=others_asked,
            allow_jump=allow_epoch_jump,
            timeout=timeout,
        )

    def next_step(
        self, *, word: int = -1, leader: str = "", reports: Sequence[SlaveReport] = ()
    ) -> Lead | Wait:
        """Return whether this replica, without a role and with *fixed*, may become master; see
        `FixedMaster.next_step`."""
        self._opened()
        fixed = self._settings.fixed
        assert fixed is not None, "the file of its broker makes it master"
        assert self._log is not None, "the replica is open"
        return fixed.next_step(self._log, word=word, leader=leader, reports=reports)

    async def become_slave(
        self,
        master: str | Address,
        epoch: int | None = None,
        *,
        begin_anew: bool = False,
        allow_epoch_jump: bool = False,
    ) -> None:
        """Follow *master*; see `ReplicatedStore.become_slave`."""
        place = parse_address(master)
        if epoch is not None:
            epoch = arguments.integer("epoch", epoch)
        begin_anew = arguments.boolean("begin_anew", begin_anew)
        allow_epoch_jump = arguments.boolean("allow_epoch_jump", allow_epoch_jump)
        await self._opened().become_slave(
            place, epoch, begin_anew=begin_anew, allow_jump=allow_epoch_jump
        )

    # ---- the sync-state set and the lease

    async def set_sync_state_set(self, members: Collection[int], set_epoch: int) -> None:
        """Take a confirmed set; see `ReplicatedStore.set_sync_state_set`."""
        taken = _broker_ids(members)
        version = arguments.integer("set_epoch", set_epoch)
        await self._opened().set_sync_state_set(taken, version)

    @property
    def proposals(self) -> tuple[Proposal, ...]:
        """Changes of the set that this master has proposed and that have no answer yet."""
        return self._opened().sides.known_set()[2]

    def refuse_proposal(self, number: int) -> None:
        """Answer the proposal of that number: it will never take effect."""
        number = arguments.integer("number", number)
        self._change_group(lambda group, now: group.refuse_proposal(number, now))

    def lose_proposal(self, number: int) -> None:
        """Record that a proposal's answer will never come; it may have taken effect."""
        number = arguments.integer("number", number)
        self._change_group(lambda group, now: group.lose_proposal(number, now))

    def renew_lease(self, asked_ms: float) -> None:
        """Take a renewal of the lease; see `ReplicatedStore.renew_lease`."""
        asked_ms = math.floor(arguments.milliseconds("asked_ms", asked_ms))
        now_ms = self._runtime.now_ms()
        if asked_ms > now_ms:
            raise ArgumentError(
                f"a renewal requested at {asked_ms} ms, which is in the future: "
                f"time.monotonic is at {now_ms} ms"
            )

        self._change_group(lambda group, now: group.renew_lease(asked_ms))

    def admit(self, broker_ids: Collection[int]) -> None:
        """Let these replicas join the set of this master, and no others, until the next call.

        Only with *waits_for_admission*, and for replicas of this library. A new epoch begins with
        none. Members stay.
        """
        admitted = _broker_ids(broker_ids)
        self._change_group(lambda group, now: group.admit(admitted, now))

    @property
    def possible_members(self) -> frozenset[int]:
        """Who may be in the set of this master at this moment: its members, and those that it has
        proposed without an answer. Empty in another role."""
        return self._opened().sides.possible_members

    @property
    def lease_ms(self) -> int:
        """The duration of the lease of a master; 0 for no lease."""
        return self._settings.lease.duration_ms

    @property
    def members_without_reports(self) -> frozenset[int]:
        """The possible members that are connected and are slaves of RocketMQ, which report no
        changes of topics."""
        return self._opened().sides.members_without_reports

    @property
    def lease_end_ms(self) -> int | None:
        """When the lease of this master is over unless it is renewed, by the monotonic clock: 0
        while it is not held, None without a lease or in another role."""
        return self._opened().sides.lease_end_ms

    def set_alive_replicas(self, count: int) -> None:
        """Take how many replicas are alive; see `ReplicatedStore.set_alive_replicas`."""
        self._opened().sides.set_alive_replicas(arguments.integer("count", count, low=1))

    # ---- state

    @property
    def broker_id(self) -> int:
        """The id of this replica; -1 before `open` for one that is kept with the store."""
        return self._settings.broker_id

    @property
    def protocol(self) -> HaProtocol:
        """The protocol of all replicas."""
        return self._settings.protocol

    @property
    def address(self) -> Address | None:
        """Where slaves connect, with the port that was found for port 0; None without *listen*."""
        return self._settings.address

    @property
    def acknowledges_flushed(self) -> bool:
        """Whether acknowledgements of this replica mean its disk, not its memory: as a slave, and
        of its own copy as a master."""
        return bool(self._settings.options.ack_flushed)

    @property
    def role(self) -> Literal["master", "slave"] | None:
        """The role, None without one."""
        return None if self._roles is None else self._roles.role

    @property
    def epoch(self) -> int:
        """The highest epoch known from an order, the log or a master, -1 for none."""
        return -1 if self._roles is None else self._roles.known_epoch

    @property
    def epochs(self) -> tuple[EpochEntry, ...]:
        """The epochs of the log; empty before `open`."""
        return () if self._log is None else tuple(self._log.epochs)

    @property
    def confirm_offset(self) -> int:
        """The physical offset up to which replicas agree and readers may see; -1 before `open`."""
        return -1 if self._log is None else self._log.confirm_offset

    @property
    def sync_state_set(self) -> frozenset[int] | None:
        """The set confirmed last, None without one."""
        return self._opened().sides.known_set()[0]

    @property
    def sync_state_set_epoch(self) -> int:
        """The version of that set."""
        return self._opened().sides.known_set()[1]

    @property
    def replicas(self) -> tuple[ReplicaStatus, ...]:
        """The connections of a master."""
        return self._opened().sides.replicas()

    @property
    def master_status(self) -> MasterStatus | None:
        """The master of a slave, None in another role."""
        return self._opened().sides.master_status

    def status(self) -> Status:
        """Return all of it, of one moment; also after `close`, while the store is open."""
        if self._is_closed and self._roles is not None:
            return self._roles.status()
        return self._opened().status()

    async def wait_in_sync(self, copies: int, timeout: float = WAIT_S) -> None:
        """Return when so many copies hold the log; see `ReplicatedStore.wait_in_sync`."""
        copies = arguments.integer("copies", copies, low=1)
        timeout = arguments.seconds("timeout", timeout)
        await self._opened().wait_in_sync(copies, self.store.end_offset, timeout)

    async def wait_caught_up(self, offset: int | None = None, timeout: float = WAIT_S) -> None:
        """Return when this slave has its master's log; see `ReplicatedStore.wait_caught_up`."""
        if offset is not None:
            offset = arguments.integer("offset", offset)
        timeout = arguments.seconds("timeout", timeout)
        await self._opened().wait_caught_up(offset, timeout)

    async def wait_confirmed(self, offset: int | None = None, timeout: float = WAIT_S) -> None:
        """Return when replicas agree up to *offset*; see `ReplicatedStore.wait_confirmed`."""
        end = self.store.end_offset if offset is None else arguments.integer("offset", offset)
        timeout = arguments.seconds("timeout", timeout)
        await self._opened().wait_dispatched(end, timeout)

    # ---- within

    def _change_group(self, change: Callable[[MasterGroup, int], Any]) -> None:
        self._opened().sides.of_master().change(change)

    def _opened(self) -> Roles:
        if self._opening is None and not self._is_closed:
            raise ArgumentError(
                f"the replica of store {self.store.path} is not open; use `async with`"
            )
        if not self._is_closed:
            self._check_loop()
        if self._is_closed or self._roles is None:
            raise StoreClosedError(f"replication of store {self.store.path} was closed")
        return self._roles

    def _check_loop(self) -> None:
        if self._loop is None or not self._loop.is_current:
            raise ArgumentError(
                f"the replica of store {self.store.path} was called outside of its event loop; "
                "call it on the loop that ran when it was opened, or use ReplicatedStore"
            )

    def _proposed(self, proposal: Proposal) -> None:
        if self._on_proposal is not None:
            self._runtime.soon(self._on_proposal, proposal)

    def _changed(self) -> None:
        if self._on_change is not None and not self._has_changed:
            self._has_changed = True
            self._runtime.soon(self._notify_change, self._on_change)

    def _notify_change(self, on_change: Callable[[Status], None]) -> None:
        self._has_changed = False
        if self._roles is None:
            return
        # The store may be closed by now.
        with contextlib.suppress(StoreClosedError):
            status = self._roles.status()
            on_change(status)


def _take(
    store: Store, settings: Settings, listen: Address | None
) -> tuple[Port | None, ReplicaView, StoreLog, Settings]:
    """Take the store, and listen; both are undone when this raises."""
    with contextlib.ExitStack() as undo:
        view = undo.enter_context(ReplicaView(store))
        if settings.broker_id < 0:
            settings = replace(settings, broker_id=kept_id(store.path))
        port = None
        if listen is not None:
            port = Port(listen)
            undo.callback(port.close)
            settings = replace(settings, address=port.address)
        view.refuse_puts()
        store_log = StoreLog(
            view,
            # No frame of the classic protocol carries the confirm offset.
            is_gated=settings.is_gated and settings.protocol == "autoswitch",
            cut_bytes_max=settings.options.cut_bytes_max,
        )
        undo.callback(store_log.close)
        store_log.check()
        undo.pop_all()
    return port, view, store_log, settings


def _broker_ids(members: Collection[int]) -> frozenset[int]:
    expected = "a collection of broker ids"
    return frozenset(
        arguments.integer("members", each) for each in arguments.items("members", members, expected)
    )
