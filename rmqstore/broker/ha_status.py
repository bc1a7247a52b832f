"""The state of replication as GET_BROKER_HA_STATUS (907) shows it: RocketMQ's HARuntimeInfo.

{"master":true,"masterCommitLogMaxOffset":1000,"inSyncSlaveNums":1,
 "haConnectionInfo":[{"addr":"10.0.0.2:4711","slaveAckOffset":900,"diff":100,"inSync":true,...}],
 "haClientRuntimeInfo":{"masterAddr":"10.0.0.1:10912","masterFlushOffset":0,"maxOffset":0,...}}
"""

from __future__ import annotations

from typing import Any

from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.replication.group.status import ReplicaStatus, Status

__all__ = ["ha_status_body"]


def ha_status_body(status: Status) -> bytes:
    """Return the body that shows *status*."""
    slaves = [_slave(each, status) for each in status.replicas]
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
    return fastjson.dumps(
        {
            "haClientRuntimeInfo": client,
            "haConnectionInfo": slaves,
            "inSyncSlaveNums": sum(each["inSync"] for each in slaves),
            "master": status.role == "master",
            "masterCommitLogMaxOffset": status.end_offset if status.role == "master" else 0,
        }
    )


def _slave(replica: ReplicaStatus, status: Status) -> dict[str, Any]:
    return {
        "addr": format_address(replica.address),
        "diff": max(status.end_offset - max(replica.ack_offset, 0), 0),
        "inSync": replica.is_counted,
        "slaveAckOffset": replica.ack_offset,
        "transferFromWhere": max(replica.ack_offset, 0),
        "transferredByteInSecond": 0,
    }
