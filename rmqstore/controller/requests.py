"""The answers of a controller: one method for each request code.

The handlers decode headers and bodies, let the leader decide, and encode the answer. The host
provides the log, the time and the connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from rmqstore.arguments import INT32_MAX
from rmqstore.config import ControllerConfig
from rmqstore.controller.commands import Command, Terms
from rmqstore.controller.group import Group
from rmqstore.controller.leader import Election, Leader, Waiting
from rmqstore.controller.liveness import HEARTBEAT_TIMEOUT_MS, Heartbeat, Liveness
from rmqstore.controller.request_table import ROWS
from rmqstore.controller.state import ControllerState, Result, Verdict
from rmqstore.errors import ConfigError, DiskError, RequestRefused
from rmqstore.remoting.bodies.controller import (
    ReplicasInfo,
    ReplicaState,
    SyncStateSetBody,
    elected_body,
    sync_state_data,
)
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.dispatch import FrameHandler, dispatched
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    AlterSyncStateSetResponseHeader,
    ApplyBrokerIdRequestHeader,
    BrokerNameHeader,
    CleanBrokerDataRequestHeader,
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
    GetNextBrokerIdResponseHeader,
    GetReplicaInfoRequestHeader,
    MasterHeader,
    RegisterBrokerToControllerRequestHeader,
    RegisterBrokerToControllerResponseHeader,
)
from rmqstore.remoting.requests import Call, Handler
from rmqstore.replication.group.log_rank import LogRank

__all__ = ["RUNNING_KEYS", "Host", "Requests"]

NAME_LENGTH_MAX = 255
"""Largest number of characters in the name of a cluster or a broker."""
_TIMEOUT_MS_MAX = 3_600_000
_BOOT_LENGTH_MAX = 64
_TROUBLE_LENGTH_MAX = 500
_LIVES_MAX = 64
_JOIN_WAIT_MS = 400
"""How long a proposal waits for the heartbeat in which a joining replica reports to be in sync."""
_JOIN_POLL_MS = 10
_START_FIELDS = frozenset(
    name
    for name, about in ControllerConfig.options().items()
    if name == "group" or about.effect.startswith("start")
)
RUNNING_KEYS = frozenset(
    about.key
    for name, about in ControllerConfig.options().items()
    if name not in _START_FIELDS and name != "config_black_list"
)
"""Keys that may change while a controller runs."""

# The response code of each verdict that does not depend on the request.
_CODES: Mapping[Verdict, ResponseCode] = {
    Verdict.APPLIED: ResponseCode.SUCCESS,
    Verdict.UNCHANGED: ResponseCode.SUCCESS,
    Verdict.UNKNOWN_GROUP: ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    Verdict.UNKNOWN_BROKER: ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
    Verdict.OTHER_CLUSTER: ResponseCode.CONTROLLER_INVALID_REQUEST,
    Verdict.ID_INVALID: ResponseCode.CONTROLLER_BROKER_ID_INVALID,
    Verdict.SAME_SET: ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    Verdict.NOT_MASTER: ResponseCode.CONTROLLER_INVALID_MASTER,
    Verdict.FENCED_MASTER_EPOCH: ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
    Verdict.FENCED_SET_EPOCH: ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
    Verdict.NOT_ALIVE: ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
    Verdict.MASTER_NOT_IN_SET: ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    Verdict.STALE: ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
}
_ALTER_CODES = {
    **_CODES,
    Verdict.UNKNOWN_GROUP: ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    Verdict.UNKNOWN_BROKER: ResponseCode.CONTROLLER_INVALID_REPLICAS,
}
_ELECT_CODES = {
    **_CODES,
    Verdict.UNCHANGED: ResponseCode.CONTROLLER_MASTER_STILL_EXIST,
    Verdict.ID_INVALID: ResponseCode.CONTROLLER_ELECT_MASTER_FAILED,
}


class Host(Protocol):
    """The part of a node that the handlers use."""

    config: ControllerConfig
    state: ControllerState
    liveness: Liveness

    @property
    def leader(self) -> Leader | None:
        """The decisions of this node; None while it does not lead."""

    @property
    def process_id(self) -> str:
        """Identifies this process among all controller processes."""

    def now_ms(self) -> int:
        """Return the time of the monotonic clock."""

    async def sleep(self, ms: int) -> None:
        """Wait."""

    def metadata(self) -> Mapping[str, str]:
        """Return the extFields of an answer to GET_METADATA_INFO."""

    def watch(self, connection: Any) -> None:
        """End the brokers that send heartbeats on *connection* when it closes."""

    def review(self, group: str) -> None:
        """Do the work that is due for *group*, after this call."""

    async def reviewed(self, group: str) -> None:
        """Wait until the work that was due for *group* is done."""

    async def leads(self) -> bool:
        """Return whether this node led after the call began."""

    async def commit(self, command: Command) -> Result:
        """Commit *command*. Raises RequestRefused if the outcome is not certain."""

    async def elect(
        self, group: str, cluster: str, broker_id: int | None, *, is_designated: bool
    ) -> tuple[Election, Group | None]:
        """Hold an election. Return it, and the group afterwards if it took effect."""

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings, first in their file. Raises ConfigError, DiskError."""


class Requests:
    """The handlers of one controller."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def dispatched(self, **options: Any) -> dict[int, FrameHandler]:
        """Return the handlers of frames; see `rmqstore.remoting.dispatch.dispatched`."""
        return dispatched(ROWS, self._handlers(), **options)

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.CONTROLLER_GET_METADATA_INFO: self._metadata,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self._next_broker_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self._apply_broker_id,
            RequestCode.CONTROLLER_REGISTER_BROKER: self._register_broker,
            RequestCode.CONTROLLER_ELECT_MASTER: self._elect_master,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self._alter_set,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self._replica_info,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self._sync_state_data,
            RequestCode.CLEAN_BROKER_DATA: self._clean,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._update_config,
            RequestCode.GET_CONTROLLER_CONFIG: self._get_config,
        }

    @property
    def _leader(self) -> Leader:
        leader = self._host.leader
        if leader is None:
            raise RequestRefused(
                "this controller is not the leader; GET_METADATA_INFO names the leader",
                code=ResponseCode.CONTROLLER_NOT_LEADER,
            )
        return leader

    async def _before_read(self) -> None:
        """Raises RequestRefused if this node does not lead."""
        is_leader = self._leader is not None
        if is_leader and self._host.config.read_barrier and not await self._host.leads():
            raise RequestRefused(
                "this controller may no longer lead; repeat the request",
                code=ResponseCode.CONTROLLER_NOT_LEADER,
            )

    async def _carry_out(self, decided: Command | Result) -> Result:
        """Returns the result of a decision, after committing its command."""
        return decided if isinstance(decided, Result) else await self._host.commit(decided)

    # Registration.

    def _metadata(self, call: Call[Any, bytes]) -> Frame:
        return call.respond(ResponseCode.SUCCESS, fields=self._host.metadata())

    async def _next_broker_id(self, call: Call[BrokerNameHeader, bytes]) -> Frame:
        header = call.header
        await self._before_read()
        answer = GetNextBrokerIdResponseHeader(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            next_broker_id=self._host.state.next_broker_id(header.broker_name),
        )
        return call.respond(ResponseCode.SUCCESS, fields=answer.to_fields())

    async def _apply_broker_id(self, call: Call[ApplyBrokerIdRequestHeader, bytes]) -> Frame:
        header = call.header
        _check_names(clusterName=header.cluster_name, brokerName=header.broker_name)
        _check_names(registerCheckCode=header.check_code)
        decided = self._leader.assign_broker_id(
            header.cluster_name, header.broker_name, header.broker_id, header.check_code
        )
        result = await self._carry_out(decided)
        names = BrokerNameHeader(cluster_name=header.cluster_name, broker_name=header.broker_name)
        return call.respond(_CODES[result.verdict], result.remark or None, fields=names.to_fields())

    async def _register_broker(
        self, call: Call[RegisterBrokerToControllerRequestHeader, bytes]
    ) -> Frame:
        header = call.header
        _check_names(brokerAddress=header.broker_address)
        leader = self._leader
        decided = leader.register_broker(
            header.cluster_name, header.broker_name, header.broker_id, header.broker_address
        )
        result = await self._carry_out(decided)
        group = result.group
        master = MasterHeader()
        if result.is_applied and group is not None:
            is_alive = leader.living_master(group, self._host.now_ms()) is not None
            master = _master_of(group) if is_alive else master
        answer = RegisterBrokerToControllerResponseHeader(
            cluster_name=header.cluster_name,
            broker_name=header.broker_name,
            master_broker_id=master.master_broker_id,
            master_address=master.master_address,
            master_epoch=master.master_epoch,
            master_life=master.master_life,
            sync_state_set_epoch=master.sync_state_set_epoch,
        )
        if group is None or not result.is_applied:
            return call.respond(_CODES[result.verdict], result.remark, fields=answer.to_fields())
        return call.respond(ResponseCode.SUCCESS, fields=answer.to_fields(), body=_set_of(group))

    # Masters and sets.

    async def _elect_master(self, call: Call[ElectMasterRequestHeader, bytes]) -> Frame:
        header = call.header
        broker_id = None if header.broker_id < 0 else header.broker_id
        election, elected = await self._host.elect(
            header.broker_name,
            header.cluster_name,
            broker_id,
            is_designated=header.is_designated and broker_id is not None,
        )

        if elected is not None and elected.master_id is not None:
            body = elected_body(
                elected.sync_state_set,
                cluster=elected.cluster,
                broker_name=elected.name,
                addresses={number: each.address for number, each in elected.brokers.items()},
            )
            return call.respond(
                ResponseCode.SUCCESS,
                election.risk or None,
                fields=_master_of(elected).to_fields(),
                body=body,
            )

        code = _ELECT_CODES[election.verdict]
        if code is ResponseCode.SUCCESS or (broker_id is None and election.command is not None):
            code = ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
        group = self._host.state.group(header.broker_name)
        if election.verdict is not Verdict.UNCHANGED or group is None:
            return call.respond(code, election.reason, fields={})
        return call.respond(
            code,
            election.reason,
            fields=_master_of(group).to_fields(),
            body=elected_body(group.sync_state_set),
        )

    async def _alter_set(
        self, call: Call[AlterSyncStateSetRequestHeader, SyncStateSetBody]
    ) -> Frame:
        header = call.header
        result = await self._carry_out(await self._altered(header, call.body))
        group = result.group
        if result.is_applied and group is not None:
            answer = AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=group.set_epoch)
            return call.respond(
                ResponseCode.SUCCESS, fields=answer.to_fields(), body=_set_of(group)
            )
        # A broker of this library gets the present set, a Java broker RocketMQ's answer.
        report = self._host.liveness.report(header.broker_name, header.master_broker_id)
        is_ours = report is not None and report.beat.life is not None
        return call.respond(
            _ALTER_CODES[result.verdict],
            result.remark,
            fields=AlterSyncStateSetResponseHeader(new_sync_state_set_epoch=0).to_fields(),
            body=_set_of(group) if is_ours and group is not None else b"",
        )

    async def _altered(
        self, header: AlterSyncStateSetRequestHeader, proposed: SyncStateSetBody
    ) -> Command | Result:
        """Returns the decision on a proposed set. The heartbeat in which a joining replica reports
        to be in sync may arrive just after the proposal."""
        host, group = self._host, header.broker_name
        end_ms = host.now_ms() + _JOIN_WAIT_MS
        while True:
            leader, now_ms = self._leader, host.now_ms()
            decided = leader.alter_set(
                group,
                master_id=header.master_broker_id,
                master_epoch=header.master_epoch,
                set_epoch=proposed.epoch,
                members=proposed.members,
                now_ms=now_ms,
            )
            is_early = isinstance(decided, Result) and decided.verdict is Verdict.NOT_ALIVE
            is_early = is_early and leader.is_joining_soon(group, proposed.members, now_ms)
            if not is_early or now_ms >= end_ms:
                return decided
            await host.sleep(_JOIN_POLL_MS)

    async def _replica_info(self, call: Call[GetReplicaInfoRequestHeader, bytes]) -> Frame:
        header = call.header
        await self._before_read()
        group = self._host.state.group(header.broker_name)
        if group is None:
            return call.respond(
                ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST,
                f"Broker metadata is not existed: {header.broker_name}",
                fields={},
            )
        answer = MasterHeader(
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            master_life=group.master_life,
        )
        return call.respond(ResponseCode.SUCCESS, fields=answer.to_fields(), body=_set_of(group))

    async def _sync_state_data(self, call: Call[Any, list[str]]) -> Frame:
        await self._before_read()
        found = {name: self._host.state.group(name) for name in call.body}
        body = sync_state_data(
            {name: self._info_of(group) for name, group in found.items() if group is not None}
        )
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _info_of(self, group: Group) -> ReplicasInfo:
        now_ms, liveness = self._host.now_ms(), self._host.liveness
        replicas = [
            ReplicaState(number, each.address, liveness.is_alive(group.name, number, now_ms))
            for number, each in sorted(group.brokers.items())
        ]
        members = group.sync_state_set
        has_master = group.master_address is not None
        leader = self._host.leader
        waiting = None if leader is None else leader.waiting.get(group.name)
        return ReplicasInfo(
            broker_name=group.name,
            master_id=group.master_id if has_master else None,
            master_address=group.master_address or "",
            master_epoch=group.master_epoch,
            set_epoch=group.set_epoch,
            in_sync=tuple(each for each in replicas if each.broker_id in members),
            not_in_sync=tuple(each for each in replicas if each.broker_id not in members),
            waits_for=frozenset() if waiting is None else waiting.waits_for,
            wait_reason=_wait_reason(leader, group, waiting, now_ms),
        )

    async def _clean(self, call: Call[CleanBrokerDataRequestHeader, bytes]) -> Frame:
        header = call.header
        decided = self._leader.clean(
            header.broker_name,
            cluster=header.cluster_name or "",
            broker_ids=_ids_of(header.broker_ids),
            cleans_living=header.cleans_living,
            now_ms=self._host.now_ms(),
        )
        result = await self._carry_out(decided)
        if result.is_applied:
            kept = () if result.group is None else result.group.brokers
            self._host.liveness.forget(header.broker_name, kept)
            self._host.review(header.broker_name)
            return call.respond(ResponseCode.SUCCESS)
        return call.respond(ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA, result.remark)

    # Heartbeats.

    def _heartbeat(
        self, call: Call[ControllerHeartbeatRequestHeader, bytes]
    ) -> Awaitable[Frame] | Frame:
        header = call.header
        if header.broker_id is None:
            return call.respond(
                ResponseCode.CONTROLLER_INVALID_REQUEST, "Heart beat with empty brokerId"
            )

        beat = self._beat_of(header, header.broker_id)
        group = self._host.state.group(beat.group)
        if group is None or beat.broker_id not in group.brokers:
            return call.respond(
                ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED,
                f"BrokerId: {beat.broker_id} hasn't been registered in broker-set: {beat.group}",
            )
        if header.cluster_name != group.cluster:
            return call.respond(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"broker group {group.name} is in cluster {group.cluster}",
            )

        later = self._host.liveness.later_life(beat, self._host.now_ms())
        if later is not None:
            return call.respond(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"another process of broker {beat.broker_id} of {beat.group}, at {later.address}, "
                "started later and sends heartbeats: two brokers use one identity",
                fields={"brokerLife": str(later.life)},
            )

        self._host.liveness.record(beat, call.peer, self._host.now_ms())
        self._host.watch(call.peer)
        self._host.review(beat.group)
        if beat.life is None:
            return call.respond(ResponseCode.SUCCESS, "Heart beat success")
        return self._answer_heartbeat(beat, call)

    def _beat_of(self, header: ControllerHeartbeatRequestHeader, broker_id: int) -> Heartbeat:
        is_of_this = header.controller_node == self._host.process_id
        terms = None
        if header.in_sync is not None:
            if not (header.in_sync >= 1 and 0 <= header.lease_ms <= _TIMEOUT_MS_MAX):
                raise RequestRefused(
                    f"inSyncReplicas {header.in_sync} or leaseMillis {header.lease_ms} is out of "
                    "range; send 1 or more copies, and up to an hour",
                    code=ResponseCode.INVALID_PARAMETER,
                )
            terms = Terms(header.in_sync, header.min_in_sync, header.all_ack, header.lease_ms)
        timeout_ms = header.heartbeat_timeout_ms
        return Heartbeat(
            group=header.broker_name,
            broker_id=broker_id,
            address=header.broker_address,
            rank=LogRank(_given(header.epoch, -1), _given(header.max_offset, -1)),
            confirm_offset=_given(header.confirm_offset, -1),
            timeout_ms=max(1, min(_given(timeout_ms, HEARTBEAT_TIMEOUT_MS), _TIMEOUT_MS_MAX)),
            priority=_given(header.election_priority, INT32_MAX),
            life=header.life,
            number=header.number,
            seen_ms=header.controller_ms if is_of_this else -1,
            role_epoch=header.role_epoch,
            refused_epoch=header.refused_epoch,
            set_epoch=header.sync_state_set_epoch,
            is_learner=header.is_learner,
            terms=terms,
            former_lives=_lives_of(header.former_lives),
            boot=None if header.boot is None else header.boot[:_BOOT_LENGTH_MAX],
            acks_flushed=header.acks_flushed,
            was_closed=header.was_closed,
            synced_epoch=header.synced_epoch,
            start_offset=header.start_offset,
            vouched_offset=header.vouched_offset,
            is_partial=header.is_partial,
            cannot_lead=header.cannot_lead,
            trouble=(header.trouble or "")[:_TROUBLE_LENGTH_MAX],
        )

    async def _answer_heartbeat(self, beat: Heartbeat, call: Call[Any, bytes]) -> Frame:
        """Returns the answer to a broker of this library, with its lease."""
        host = self._host
        await host.reviewed(beat.group)

        leader, lease_ms, wants_report, report_in_ms = host.leader, 0, False, -1
        leads = leader is not None and await host.leads()
        if leads and leader is not None and host.leader is leader:
            lease_ms = leader.lease(beat.group, beat.broker_id, host.now_ms())
            wants_report = leader.wants_report(beat.group, beat.broker_id)
            report_in_ms = leader.report_in_ms(beat.group, host.now_ms())

        group = host.state.group(beat.group)
        master = MasterHeader() if group is None or not leads else _master_of(group)
        answer = ControllerHeartbeatResponseHeader(
            controller_node=host.process_id,
            controller_ms=host.now_ms(),
            is_leader=leads,
            lease_ms=lease_ms,
            wants_report=wants_report,
            report_in_ms=report_in_ms,
            master_broker_id=master.master_broker_id,
            master_address=master.master_address,
            master_epoch=master.master_epoch,
            master_life=master.master_life,
            sync_state_set_epoch=master.sync_state_set_epoch,
        )

        body = _set_of(group) if group is not None and leads else b""
        return call.respond(
            ResponseCode.SUCCESS, "Heart beat success", fields=answer.to_fields(), body=body
        )

    # Configuration.

    async def _update_config(self, call: Call[Any, Mapping[str, str]]) -> Frame:
        config, changes = self._host.config, call.body
        if not set(config.config_black_list).isdisjoint(changes):
            raise RequestRefused(
                "Can not update config in black list.", code=ResponseCode.NO_PERMISSION
            )
        options = config.options()
        at_start = {options[name].key for name in _START_FIELDS} & changes.keys()
        if at_start:
            raise _invalid(
                f"{', '.join(sorted(at_start))}: a new value takes effect only at a start; change "
                "it in the controller's file and start the controller again"
            )
        try:
            await self._host.configure(changes)
        except ConfigError as error:
            raise _invalid("; ".join(error.violations)) from error
        except DiskError as error:
            raise RequestRefused(
                f"the configuration is unchanged: {error}", code=ResponseCode.SYSTEM_ERROR
            ) from error
        return call.respond(ResponseCode.SUCCESS)

    def _get_config(self, call: Call[Any, bytes]) -> Frame:
        body = self._host.config.to_properties().encode()
        return call.respond(ResponseCode.SUCCESS, body=body)


def _set_of(group: Group) -> bytes:
    return SyncStateSetBody(group.sync_state_set, group.set_epoch).encode()


def _master_of(group: Group) -> MasterHeader:
    return MasterHeader(
        master_broker_id=group.master_id,
        master_address=group.master_address,
        master_epoch=group.master_epoch,
        master_life=group.master_life,
        sync_state_set_epoch=group.set_epoch,
    )


def _wait_reason(leader: Leader | None, group: Group, waiting: Waiting | None, now_ms: int) -> str:
    """Returns why *group* has no master; of a group with one, what its election may have lost, and
    why replicas do not follow."""
    if waiting is not None:
        return waiting.reason
    if leader is None:
        return ""
    parts = (leader.risk(group.name), leader.troubles(group.name, now_ms))
    return "; ".join(each for each in parts if each)


def _lives_of(text: str | None) -> tuple[int, ...]:
    """Returns the processes of "1;3"; a text of another form names none."""
    try:
        lives = tuple(int(each) for each in (text or "").split(";") if each)
    except ValueError:
        return ()
    return lives[-_LIVES_MAX:]


def _given(value: int | None, default: int) -> int:
    return default if value is None else value


def _ids_of(text: str | None) -> frozenset[int] | None:
    """Returns the ids of "1;3"; None for all."""
    if not text:
        return None
    try:
        return frozenset(int(each) for each in text.split(";") if each.strip())
    except ValueError:
        raise RequestRefused(
            f"field brokerControllerIdsToClean is {text[:40]!r}: send ids separated by ;",
            code=ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA,
        ) from None


def _check_names(**fields: str) -> None:
    for key, value in fields.items():
        if not value or len(value) > NAME_LENGTH_MAX:
            raise _invalid(f"field {key} has {len(value)} characters: send 1 to {NAME_LENGTH_MAX}")


def _invalid(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.INVALID_PARAMETER)
