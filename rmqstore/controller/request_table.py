"""The request table of a controller: header, body and rights of each request code."""

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
from rmqstore.remoting.requests import Row, family, table
from rmqstore.remoting.rights import Action, on_cluster

__all__ = ["ROWS"]

_SHOW, _CHANGE = (on_cluster(Action.GET),), (on_cluster(Action.UPDATE),)
_OF_BROKER = (on_cluster(Action.UPDATE, field="cluster_name"),)

ROWS = table(
    family(
        "registration",
        Row(
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
            BrokerNameHeader,
            rights=(on_cluster(Action.GET, field="cluster_name"),),
        ),
        Row(RequestCode.CONTROLLER_APPLY_BROKER_ID, ApplyBrokerIdRequestHeader, rights=_OF_BROKER),
        Row(
            RequestCode.CONTROLLER_REGISTER_BROKER,
            RegisterBrokerToControllerRequestHeader,
            rights=_OF_BROKER,
        ),
        Row(RequestCode.BROKER_HEARTBEAT, ControllerHeartbeatRequestHeader, rights=_OF_BROKER),
    ),
    family(
        "election",
        Row(RequestCode.CONTROLLER_ELECT_MASTER, ElectMasterRequestHeader, rights=_OF_BROKER),
        Row(
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
            AlterSyncStateSetRequestHeader,
            SyncStateSetBody.decode,
            rights=_CHANGE,
        ),
        Row(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoRequestHeader, rights=_SHOW),
        Row(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=names_of, rights=_SHOW),
        Row(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataRequestHeader, rights=_CHANGE),
    ),
    family(
        "controller",
        Row(RequestCode.CONTROLLER_GET_METADATA_INFO, rights=_SHOW),
        Row(RequestCode.UPDATE_CONTROLLER_CONFIG, body=settings_of, rights=_CHANGE),
        Row(RequestCode.GET_CONTROLLER_CONFIG, rights=_SHOW),
    ),
)
