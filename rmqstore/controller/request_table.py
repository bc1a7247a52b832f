"""The request table of a controller: header and body of each request code."""

from __future__ import annotations

from rmqstore.remoting.bodies.controller import SyncStateSetBody, names_of
from rmqstore.remoting.bodies.properties import settings_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.controller import (
    AlterSyncStateSetRequestHeader,
    ApplyBrokerIdRequestHeader,
    BrokerNameHeader,
    CleanBrokerDataRequestHeader,
    ControllerHeartbeatRequestHeader,
    ElectMasterRequestHeader,
    GetReplicaInfoRequestHeader,
    RegisterBrokerToControllerRequestHeader,
)
from rmqstore.remoting.requests import Row, table

__all__ = ["ROWS"]


ROWS = table(
    [
        # Brokers.
        Row(RequestCode.CONTROLLER_GET_METADATA_INFO),
        Row(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, BrokerNameHeader),
        Row(RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequestHeader),
        Row(RequestCode.CONTROLLER_REGISTER_BROKER, RegisterBrokerToControllerRequestHeader),
        Row(RequestCode.BROKER_HEARTBEAT, ControllerHeartbeatRequestHeader),
        # Masters and sets.
        Row(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader),
        Row(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            AlterSyncStateSetRequestHeader,
            SyncStateSetBody.decode,
        ),
        Row(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader),
        Row(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=names_of),
        # Operators.
        Row(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequestHeader),
        Row(RequestCode.UPDATE_CONTROLLER_CONFIG, body=settings_of),
        Row(RequestCode.GET_CONTROLLER_CONFIG),
    ]
)
