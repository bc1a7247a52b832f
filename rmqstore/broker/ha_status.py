"""The state of replication as GET_BROKER_HA_STATUS (907) shows it: RocketMQ's HARuntimeInfo.

{"master":true,"masterCommitLogMaxOffset":1000,"inSyncSlaveNums":1,
 "haConnectionInfo":[{"addr":"10.0.0.2:4711","slaveAckOffset":900,"diff":100,"inSync":true,...}],
 "haClientRuntimeInfo":{"masterAddr":"10.0.0.1:10912","masterFlushOffset":0,"maxOffset":0,...}}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqstore.broker.traffic import Traffic
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.replication.group.status import ReplicaStatus, Status

__all__ = ["ha_status_body", "log_positions"]

_OWN = ""


def log_positions(status: Status) -> Mapping[str, int]:
    """Return the end of the log of each slave by its address; the own log has the address ""."""
    slaves = {format_address(each.address): each.ack_offset for each in status.replicas}
    return {_OWN: status.end_offset, **slaves}


def ha_status_body(status: Status, traffic: Traffic, *, now_s: float) -> bytes:
    """Return the body that shows *status*, with the rates of *traffic*."""
    slaves = [_slave(each, status, traffic, now_s) for each in status.replicas]
    client: dict[str, Any] = {
        "lastReadTimestamp": 0,
        "lastWriteTimestamp": 0,
        "masterFlushOffset": 0,
        "maxOffset": 0,
        "transferredByteInSecond": 0,
    }
    if status.master is not None:
        client["masterAddr"] = format_address(status.master.address)
        client["masterFlushOffset"] = max(status.master.master_end, 0)
        client["maxOffset"] = status.end_offset
        client["transferredByteInSecond"] = traffic.replica_rate(_OWN, status.end_offset, now_s)
    return fastjson.dumps(
        {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": slaves,
            "inSyncSlaveNums": sum(each["inSync"] for each in slaves),
            "master": status.role == "master",
            "masterCommitLogMaxOffset": status.end_offset if status.role == "master" else 0,
        }
    )


def _slave(
    replica: ReplicaStatus, status: Status, traffic: Traffic, now_s: float
) -> dict[str, Any]:
    address = format_address(replica.address)
    return {
        "addr": address,
        "diff": max(status.end_offset - max(replica.ack_offset, 0), 0),
        "inSync": replica.is_counted,
        "slaveAckOffset": replica.ack_offset,
        "transferFromWhere": max(replica.ack_offset, 0),
        "transferredByteInSecond": traffic.replica_rate(address, replica.ack_offset, now_s),
    }
