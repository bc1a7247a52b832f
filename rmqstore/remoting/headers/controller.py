"""Headers of the requests between brokers, administrators and controllers (1001 to 1013, 904).

A controller of this library reads extFields of a heartbeat that RocketMQ ignores, and answers
the heartbeat; see `ControllerHeartbeatRequestHeader`.
"""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.registration import BrokerHeartbeatRequestHeader

__all__ = [
    "AlterSyncStateSetRequestHeader",
    "AlterSyncStateSetResponseHeader",
    "ApplyBrokerIdRequestHeader",
    "BrokerNameHeader",
    "CleanBrokerDataRequestHeader",
    "ControllerHeartbeatRequestHeader",
    "ControllerHeartbeatResponseHeader",
    "ElectMasterRequestHeader",
    "GetControllerMetadataResponseHeader",
    "GetNextBrokerIdResponseHeader",
    "GetReplicaInfoRequestHeader",
    "MasterHeader",
    "NotifyBrokerRoleChangedRequestHeader",
    "RegisterBrokerToControllerRequestHeader",
    "RegisterBrokerToControllerResponseHeader",
]


@header
class BrokerNameHeader(Header):
    """A group by its cluster and its name: GET_NEXT_BROKER_ID (1012), and answers."""

    cluster_name: str = string("clusterName")
    broker_name: str = string("brokerName")


@header
class GetNextBrokerIdResponseHeader(BrokerNameHeader):
    """The answer to GET_NEXT_BROKER_ID."""

    next_broker_id: int = int64("nextBrokerId")


@header
class ApplyBrokerIdRequestHeader(BrokerNameHeader):
    """APPLY_BROKER_ID (1013)."""

    broker_id: int = int64("appliedBrokerId")
    check_code: str = string("registerCheckCode")
    """The address of the broker, a semicolon, and the time of the attempt."""


@header
class RegisterBrokerToControllerRequestHeader(BrokerNameHeader):
    """REGISTER_BROKER of a controller (1003)."""

    broker_id: int = int64("brokerId")
    broker_address: str = string("brokerAddress")
    invoke_time: int | None = int64("invokeTime", default=None)
    """The clock of the sender, which a controller of this library ignores."""


@header
class MasterHeader(Header):
    """The master of a group; all fields are absent without a master."""

    master_life: int | None = int64("masterLife", default=None)
    """The process of the master that was elected, from a controller of this library for a broker of
    this library; RocketMQ ignores it."""
    master_broker_id: int | None = int64("masterBrokerId", default=None)
    master_address: str | None = string("masterAddress", default=None)
    master_epoch: int | None = int32("masterEpoch", default=None)
    sync_state_set_epoch: int | None = int32("syncStateSetEpoch", default=None)


@header
class RegisterBrokerToControllerResponseHeader(MasterHeader):
    """The answer to REGISTER_BROKER of a controller, with the master if it is alive."""

    cluster_name: str = string("clusterName")
    broker_name: str = string("brokerName")


@header
class ElectMasterRequestHeader(BrokerNameHeader):
    """ELECT_MASTER (1002)."""

    broker_id: int = int64("brokerId")
    """The requesting or the designated broker, -1 for the controller itself."""
    is_designated: bool = boolean("designateElect", default=False)
    """Whether an administrator designates this broker."""
    invoke_time: int | None = int64("invokeTime", default=None)


@header
class AlterSyncStateSetRequestHeader(Header):
    """ALTER_SYNC_STATE_SET (1001)."""

    broker_name: str = string("brokerName")
    master_broker_id: int = int64("masterBrokerId")
    master_epoch: int = int32("masterEpoch")
    invoke_time: int | None = int64("invokeTime", default=None)


@header
class AlterSyncStateSetResponseHeader(Header):
    """The answer to ALTER_SYNC_STATE_SET; 0 where the set was refused."""

    new_sync_state_set_epoch: int = int32("newSyncStateSetEpoch")


@header
class GetReplicaInfoRequestHeader(Header):
    """GET_REPLICA_INFO (1004)."""

    broker_name: str = string("brokerName")


@header
class GetControllerMetadataResponseHeader(Header):
    """The answer to GET_METADATA_INFO (1005)."""

    group: str | None = string("group", default=None)
    leader_id: str | None = string("controllerLeaderId", default=None)
    leader_address: str | None = string("controllerLeaderAddress", default=None)
    is_leader: bool = boolean("isLeader")
    peers: str | None = string("peers", default=None)


@header
class CleanBrokerDataRequestHeader(Header):
    """CLEAN_BROKER_DATA (1011)."""

    cluster_name: str | None = string("clusterName", default=None)
    broker_name: str = string("brokerName")
    broker_ids: str | None = string("brokerControllerIdsToClean", default=None)
    """Ids separated by semicolons; absent for all brokers."""
    cleans_living: bool = boolean("isCleanLivingBroker", default=False)
    invoke_time: int | None = int64("invokeTime", default=None)


@header
class NotifyBrokerRoleChangedRequestHeader(Header):
    """NOTIFY_BROKER_ROLE_CHANGED (1008), from the controller to brokers, one-way."""

    master_address: str | None = string("masterAddress", default=None)
    master_epoch: int | None = int32("masterEpoch", default=None)
    sync_state_set_epoch: int | None = int32("syncStateSetEpoch", default=None)
    master_broker_id: int | None = int64("masterBrokerId", default=None)
    master_life: int | None = int64("masterLife", default=None)


@header
class ControllerHeartbeatRequestHeader(BrokerHeartbeatRequestHeader):
    """BROKER_HEARTBEAT (904) to a controller.

    A broker of this library sends the fields from *life* on, not one-way; RocketMQ's controllers
    ignore them.
    """

    life: int | None = int64("brokerLife", default=None)
    number: int = int64("heartbeatNumber", default=0)
    controller_node: str | None = string("controllerNode", default=None)
    """With *controller_ms*: the values in the last answer of this controller."""
    controller_ms: int = int64("controllerTimeMillis", default=-1)
    role_epoch: int = int32("roleEpoch", default=-1)
    refused_epoch: int = int32("refusedEpoch", default=-1)
    sync_state_set_epoch: int = int32("syncStateSetEpoch", default=-1)
    is_learner: bool = boolean("asyncLearner", default=False)
    in_sync: int | None = int32("inSyncReplicas", default=None)
    min_in_sync: int = int32("minInSyncReplicas", default=1)
    all_ack: bool = boolean("allAckInSyncStateSet", default=False)
    lease_ms: int = int64("leaseMillis", default=0)
    """The duration of the lease that this broker holds as a master."""
    former_lives: str | None = string("formerBrokerLives", default=None)
    """The last processes that used the directory before, ascending, separated by semicolons."""
    boot: str | None = string("bootId", default=None)
    """The boot of the broker's machine."""
    acks_flushed: bool = boolean("acksFlushed", default=False)
    was_closed: bool = boolean("logWasClosed", default=False)
    synced_epoch: int = int32("syncedEpoch", default=-1)
    start_offset: int = int64("minOffset", default=-1)
    vouched_offset: int = int64("vouchedOffset", default=-1)
    is_partial: bool = boolean("partialLog", default=False)
    cannot_lead: bool = boolean("cannotLead", default=False)
    trouble: str | None = string("trouble", default=None)


@header
class ControllerHeartbeatResponseHeader(MasterHeader):
    """The answer to a heartbeat of a broker of this library."""

    controller_node: str = string("controllerNode")
    """Identifies the process of the controller."""
    controller_ms: int = int64("controllerTimeMillis")
    """The controller's clock when it answered."""
    is_leader: bool = boolean("isLeader")
    lease_ms: int = int64("leaseMillis", default=0)
    """Duration of the master's lease from the moment it sent the heartbeat; 0 for no lease."""
    wants_report: bool = boolean("wantsReport", default=False)
    """An election waits for the next heartbeat of this broker, because this one was too early."""
    report_in_ms: int = int64("reportInMillis", default=-1)
    """Duration after which an election will need a heartbeat of this broker; -1 for none."""
