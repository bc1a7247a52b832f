"""The membership in a group with controllers: id, heartbeats, orders and proposals.

`ControlledMembership` first gets the id of the broker, from its files or from the controllers. Then
it opens the replica, and sends the requests of `controller_calls`. While controllers are absent or
silent, the broker continues in its last role, as long as its lease lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from rmqstore.aio import AsyncStore
from rmqstore.broker.membership.controller_calls import (
    Call,
    ControllerCalls,
    Displaced,
    SetAnswer,
    notified,
)
from rmqstore.broker.membership.identity import (
    Application,
    Apply,
    DropApplication,
    GroupName,
    Kept,
    Life,
    RequestNextId,
    SaveApplication,
    SaveIdentity,
    assign,
)
from rmqstore.broker.membership.identity_files import IdentityFiles
from rmqstore.broker.membership.leader_search import LeaderSearch
from rmqstore.broker.membership.orders import Decision
from rmqstore.broker.membership.role_keeper import Host as KeeperHost
from rmqstore.broker.membership.role_keeper import RoleKeeper
from rmqstore.broker.parts import Parts
from rmqstore.config import BrokerConfig
from rmqstore.errors import (
    ArgumentError,
    DiskError,
    InvalidFieldError,
    RemotingConnectError,
    RemotingError,
    StoreClosedError,
)
from rmqstore.net.addresses import Address, format_address
from rmqstore.net.runtime import Timer
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    ApplyBrokerIdRequestHeader,
    BrokerNameHeader,
    ControllerHeartbeatRequestHeader,
    GetControllerMetadataResponseHeader,
    GetNextBrokerIdResponseHeader,
)
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader
from rmqstore.replication.group.quorum import Lease
from rmqstore.replication.group.status import Status
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.replication.runtime.replica import Replica

__all__ = ["ControlledMembership", "Host"]

T = TypeVar("T")

_CALL_S = 3.0
_PAUSE_S = 0.1
_PAUSE_S_MAX = 1.0
_TROUBLE_LENGTH_MAX = 300


class Host(KeeperHost, Protocol):
    """The part of a broker that its link to the controllers uses."""

    @property
    def config(self) -> BrokerConfig:
        """The settings, with the name and the port that were found."""

    @property
    def address(self) -> Address:
        """Where clients connect."""

    @property
    def controller_addresses(self) -> tuple[str, ...]:
        """The controllers, as "host:port"."""

    @property
    def parts(self) -> Parts:
        """What reaches the world."""

    @property
    def store(self) -> AsyncStore:
        """The open store."""

    @property
    def metadata_trouble(self) -> str:
        """Why the master of this slave gives no metadata; empty where it does."""

    async def open_replica(self, broker_id: int, **options: Any) -> Replica:
        """Open the replica of the store under its id."""


class ControlledMembership:
    """See `Membership`. `start` raises ConfigError and CorruptionError where the files of the
    identity are not those of this broker."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._runtime = host.runtime
        config = host.config
        self._group = GroupName(config.cluster_name, config.name)
        path = config.identity_path or Path(config.store.root_path, "brokerIdentity")
        self._files = IdentityFiles(path, self._group, folder_of=host.parts.folder)
        self._tasks = self._runtime.tasks("controller link")
        self._calls: ControllerCalls | None = None
        self._keeper: RoleKeeper | None = None
        self._replica: Replica | None = None
        self._leaders = LeaderSearch()
        self._is_unreached = False
        """Whether the leader that was asked last did not answer."""
        self._beat_due = self._runtime.event()
        self._early_beat: Timer | None = None
        """The heartbeat that the last answer requested."""
        self._synced_epoch = -1
        self._life = Life(0, 0)
        self._boot = ""
        self._trouble = ""

    async def start(self) -> None:
        """Read the identity, and go on in tasks."""
        kept = await self._runtime.in_thread(self._files.read)
        if kept.restored:
            self._runtime.log.warning("the file of the identity is restored: %s", kept.restored)
        self._tasks.start(self._run(kept), name="controllers")

    async def close(self) -> None:
        """Send and receive nothing more; the replica keeps its role."""
        await self._tasks.close()
        if self._keeper is not None:
            await self._keeper.close()

    @property
    def trouble(self) -> str:
        """Why the leading controller refused the last request; empty when it did not."""
        return self._trouble if self._calls is None else self._calls.trouble

    @property
    def leader(self) -> str | None:
        """The leading controller, if known."""
        return None if self._calls is None else self._calls.leader

    @property
    def is_hidden(self) -> bool:
        """False: a master without a lease is announced as a slave."""
        return False

    @property
    def leads(self) -> bool:
        """Whether the replica of this master still is the master."""
        # A master is a possible member of its own set.
        return self._replica is not None and bool(self._replica.possible_members)

    @property
    def lease_end_ms(self) -> int | None:
        """The end of the lease of this master unless it is renewed; None without a lease."""
        return None if self._replica is None else self._replica.lease_end_ms

    @property
    def possible_members(self) -> frozenset[int]:
        """Brokers that may be elected instead of this master, itself included."""
        replica = self._replica
        return self._host.role.members if replica is None else replica.possible_members

    @property
    def members_without_reports(self) -> frozenset[int]:
        """Possible members that are Java brokers, which report no changes of topics."""
        return frozenset() if self._replica is None else self._replica.members_without_reports

    @property
    def puts_need_members(self) -> bool:
        """Whether puts wait for other members of a sync-state set."""
        replica = self._host.config.replica
        return replica.in_sync_replicas > 1 or replica.all_ack_in_sync_state_set

    def admit(self, broker_ids: Collection[int]) -> None:
        """Allow only these brokers to join the sync-state set of this master."""
        if self._replica is not None and self._replica.role == "master":
            self._replica.admit(broker_ids)

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        """Take the HA address of the master as a nameserver names it."""
        if self._keeper is not None and answer.master_address and answer.ha_address:
            self._keeper.learn_master(answer.master_address, answer.ha_address)

    def configured(self) -> None:
        """Do nothing: what changes while a broker runs is read where it is used."""

    def notified(self, request: Frame) -> None:
        """Take NOTIFY_BROKER_ROLE_CHANGED. Raises InvalidFieldError, RemotingFrameError."""
        decision = notified(request)
        if self._keeper is not None:
            self._keeper.take(decision)

    async def _run(self, kept: Kept) -> None:
        broker_id = kept.broker_id
        if broker_id is None:
            broker_id = await self._obtain_id(kept.application)
        elif kept.restored:
            await self._saved(partial(self._files.save_identity, broker_id))
        self._boot = await self._runtime.in_thread(self._host.parts.boot)
        life = await self._saved(
            partial(
                self._files.begin_life,
                broker_id,
                former=kept.life,
                wall_ms=self._runtime.wall_ms(),
            )
        )
        self._runtime.log.info("is broker %d of %s", broker_id, self._group.name)
        await self._join(broker_id, life)
        while True:
            self._beat_due.clear()
            self._beat()
            await self._beat_due.wait(self._host.config.heartbeat_interval_ms / 1000)

    # ---- the id

    async def _obtain_id(self, application: Application | None) -> int:
        address = format_address(self._host.address)
        steps = assign(address, application)
        step = next(steps)
        pause_s = _PAUSE_S
        while True:
            result: tuple[int, int] | bool | None = None
            match step:
                case RequestNextId():
                    number = await self._next_id()
                    result = None if number is None else (number, self._runtime.wall_ms())
                case Apply(applied):
                    result = await self._apply(applied)
                case SaveApplication(applied):
                    await self._saved(partial(self._files.save_application, applied))
                case DropApplication():
                    await self._saved(self._files.drop_application)
                case SaveIdentity(broker_id):
                    await self._saved(partial(self._files.save_identity, broker_id))
            if isinstance(step, RequestNextId | Apply):
                if result:
                    pause_s = _PAUSE_S
                else:
                    await self._runtime.sleep(pause_s)
                    pause_s = min(2 * pause_s, _PAUSE_S_MAX)
            try:
                step = steps.send(result)
            except StopIteration as end:
                return int(end.value)

    async def _saved(self, save: Callable[[], T]) -> T:
        """Return the result of *save*, which changes a file, once the disk takes the change."""
        while True:
            try:
                return await self._runtime.on_disk(save)
            except DiskError as error:
                self._report(str(error))
            await self._runtime.sleep(_PAUSE_S_MAX)

    async def _next_id(self) -> int | None:
        names = BrokerNameHeader(cluster_name=self._group.cluster, broker_name=self._group.name)
        answer = await self._ask_leader(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, names.to_fields()
        )
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        try:
            found = GetNextBrokerIdResponseHeader.from_fields(answer.ext_fields).next_broker_id
        except InvalidFieldError:
            return None
        return found if found > 0 else None

    async def _apply(self, application: Application) -> bool | None:
        header = ApplyBrokerIdRequestHeader(
            cluster_name=self._group.cluster,
            broker_name=self._group.name,
            broker_id=application.broker_id,
            check_code=application.check_code,
        )
        answer = await self._ask_leader(RequestCode.CONTROLLER_APPLY_BROKER_ID, header.to_fields())
        if answer is None:
            return None
        if answer.code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            return False
        return True if answer.code == ResponseCode.SUCCESS else None

    async def _ask_leader(self, code: int, fields: dict[str, str]) -> Frame | None:
        """Returns the answer of the leader; None where there is none, or no leader."""
        leader = await self._find_leader()
        if leader is None:
            places = ";".join(self._host.controller_addresses)
            self._report(f"none of the controllers {places} names a leader")
            return None
        is_named = leader not in self._host.controller_addresses
        trouble = self._leaders.no_answer(leader) if is_named else ""
        answer = await self._ask(leader, Frame.request(code, fields), trouble)
        self._is_unreached = answer is None
        if answer is not None and answer.code != ResponseCode.SUCCESS:
            self._report(answer.remark or f"{leader} answered {answer.code}")
        return answer

    async def _find_leader(self) -> str | None:
        """Returns the leader that most controllers name; a silent one is not waited for once a
        majority agrees."""
        self._leaders.forget()
        places = self._host.controller_addresses
        tasks, answered = self._runtime.tasks("leader of the controllers"), self._runtime.event()
        for each in places:
            asking = tasks.start(self._ask_for_leader(each), name=f"question to {each}")
            asking.add_done_callback(lambda _: answered.set())

        try:
            while tasks.tasks:
                await answered.wait()
                answered.clear()
                leader = self._leaders.best()
                is_agreed = leader is not None and 2 * self._leaders.votes(leader) > len(places)
                # A leader that is out of reach where it is named may answer elsewhere itself.
                if is_agreed and not self._is_unreached:
                    break
        finally:
            await tasks.close()
        return self._leaders.best()

    async def _ask_for_leader(self, controller: str) -> None:
        request = Frame.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        answer = await self._ask(controller, request)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return
        try:
            header = GetControllerMetadataResponseHeader.from_fields(answer.ext_fields)
        except InvalidFieldError:
            return
        self._leaders.answered(controller, header)

    async def _ask(self, address: str, request: Frame, trouble: str = "") -> Frame | None:
        """Returns the answer; None after an error, which is logged after *trouble*."""
        try:
            return await self._runtime.client.call(address, request, _CALL_S)
        except (RemotingError, StoreClosedError, ArgumentError) as error:
            self._report(f"{trouble}: {error}" if trouble else str(error))
            return None

    def _report(self, trouble: str) -> None:
        """Log *trouble* once."""
        if trouble != self._trouble:
            self._trouble = trouble
            self._runtime.log.warning("%s", trouble)

    # ---- heartbeats, and what follows from their answers

    async def _join(self, broker_id: int, life: Life) -> None:
        config = self._host.config
        self._replica = await self._host.open_replica(
            broker_id,
            lease=Lease(config.granted_ms),
            waits_for_admission=True,
            on_proposal=self._propose,
            on_change=self._changed,
        )
        self._keeper = RoleKeeper(
            self._host, self._replica, broker_id, life=life.number, on_change=self._beat_due.set
        )
        self._life = life
        beat_ms = config.heartbeat_interval_ms
        self._calls = ControllerCalls(
            cluster=self._group.cluster,
            broker_name=self._group.name,
            broker_id=broker_id,
            address=format_address(self._host.address),
            life=life.number,
            controllers=self._host.controller_addresses,
            is_learner=config.replica.async_learner,
            poll_every=max(1, config.group_poll_interval_ms // beat_ms),
            search_every=max(1, config.controller_metadata_interval_ms // beat_ms),
        )
        self._keeper.start()

    def _changed(self, status: Status) -> None:
        if self._keeper is not None:
            self._keeper.check()
        if status.synced_epoch > self._synced_epoch:
            # The master proposes this replica as a member when it learns the same.
            self._synced_epoch = status.synced_epoch
            self._beat_due.set()

    def _beat(self) -> None:
        assert self._calls is not None, "the broker has an id"
        self._calls.controllers = self._host.controller_addresses
        calls = self._calls.beat(
            self._runtime.now_ms(), self._header(), wall_ms=self._runtime.wall_ms()
        )
        self._send(calls)
        if self._calls.trouble:
            self._report(self._calls.trouble)

    def _header(self) -> Callable[..., ControllerHeartbeatRequestHeader]:
        """Returns what makes a heartbeat of the fields that differ between controllers."""
        assert self._replica is not None, "the broker has an id"
        assert self._keeper is not None, "the broker has an id"
        config, status, keeper = self._host.config, self._replica.status(), self._keeper
        role_epoch, life = keeper.role_epoch, self._life
        acks_flushed, replica = self._replica.acknowledges_flushed, config.replica
        flushed_end = min(status.whole_end, status.flushed_offset)
        return partial(
            ControllerHeartbeatRequestHeader,
            epoch=status.epochs[-1].epoch if status.epochs else -1,
            max_offset=status.whole_end,
            confirm_offset=status.confirm_offset,
            heartbeat_timeout_ms=config.controller_heartbeat_timeout_ms,
            election_priority=config.election_priority,
            role_epoch=role_epoch,
            refused_epoch=keeper.refused_epoch,
            sync_state_set_epoch=status.sync_state_set_epoch if role_epoch >= 0 else -1,
            is_learner=replica.async_learner,
            in_sync=replica.in_sync_replicas,
            min_in_sync=replica.min_in_sync_replicas,
            all_ack=replica.all_ack_in_sync_state_set,
            # A changed setting has an effect from the next start on.
            lease_ms=self._replica.lease_ms,
            former_lives=";".join(map(str, life.former)) or None,
            boot=self._boot,
            acks_flushed=acks_flushed,
            was_closed=self._host.store.store.recovery.was_closed,
            synced_epoch=status.synced_epoch,
            start_offset=status.start_offset,
            vouched_offset=flushed_end if acks_flushed else status.whole_end,
            is_partial=status.is_partial,
            cannot_lead=keeper.cannot_lead,
            trouble=(keeper.trouble or self._host.metadata_trouble)[:_TROUBLE_LENGTH_MAX] or None,
        )

    def _propose(self, proposal: Proposal) -> None:
        if self._calls is None or self._keeper is None or self._keeper.role_epoch < 0:
            return
        found = self._calls.propose(
            proposal,
            self._keeper.role_epoch,
            self._runtime.now_ms(),
            wall_ms=self._runtime.wall_ms(),
        )
        if isinstance(found, SetAnswer):
            self._keeper.answer(found)
        else:
            self._send([found])

    def _send(self, calls: Collection[Call]) -> None:
        for call in calls:
            self._tasks.start(self._call(call), name=f"call of {call.address}")

    async def _call(self, call: Call) -> None:
        assert self._calls is not None, "a call is of these"
        is_beat = call.request.code == RequestCode.BROKER_HEARTBEAT
        timeout_s = self._host.config.heartbeat_timeout_ms / 1000 if is_beat else _CALL_S
        said: Decision | SetAnswer | Displaced | None
        try:
            answer = await self._runtime.client.call(call.address, call.request, timeout_s)
        except (RemotingConnectError, ArgumentError):
            said = self._calls.failed(call, was_sent=False)
        except (RemotingError, StoreClosedError):
            said = self._calls.failed(call, was_sent=True)
        else:
            said = self._calls.answered(call, answer)
            if is_beat:
                self._plan_beat(self._calls.beat_in_ms)
        await self._heed(said)
        self._send(self._calls.due(self._runtime.now_ms(), wall_ms=self._runtime.wall_ms()))

    def _plan_beat(self, in_ms: int | None) -> None:
        """Plans an early heartbeat, in place of an earlier plan."""
        if self._early_beat is not None:
            self._early_beat.cancel()
            self._early_beat = None
        if in_ms is not None:
            self._early_beat = self._runtime.later(in_ms / 1000, self._beat_due.set)

    async def _heed(self, said: Decision | SetAnswer | Displaced | None) -> None:
        assert self._keeper is not None, "it came before the calls"
        match said:
            case Decision():
                self._keeper.take(said)
            case SetAnswer():
                self._keeper.answer(said)
            case Displaced(reason):
                await self._keeper.give_way(reason)
