"""Requests of an operator about the broker itself: configuration and state."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.errors import ConfigError, DiskError, RequestRefused
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.codes import VERSION, RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import ConfigVersionResponseHeader
from rmqstore.remoting.requests import Call, Handler
from rmqstore.store.retention import DiskUse

__all__ = ["AdminRequests"]

_FIXED_KEYS = frozenset({"configBlackList", "brokerConfigPath"})
_VERSION_TEXT = "V5_3_3"
_QUEUES = ("send", "pull", "litePull", "query", "ack", "adminBroker")
"""Families of requests that RocketMQ queues, and shows the lengths of; here none waits."""


class AdminRequests:
    """Answers an operator."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._start_ms = context.wall_ms()

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime_info,
        }

    async def _update_config(self, call: Call[Any, Mapping[str, str]]) -> Frame:
        if not _FIXED_KEYS.isdisjoint(call.body):
            raise RequestRefused(
                "Can not update config in black list.", code=ResponseCode.NO_PERMISSION
            )
        try:
            await self._context.configure(call.body)
        except ConfigError as error:
            raise RequestRefused(
                "; ".join(error.violations), code=ResponseCode.SYSTEM_ERROR
            ) from error
        except DiskError as error:
            raise RequestRefused(
                f"the configuration is unchanged: {error}", code=ResponseCode.SYSTEM_ERROR
            ) from error
        return call.respond(ResponseCode.SUCCESS)

    def _config(self, call: Call[Any, bytes]) -> Frame:
        version = self._context.metadata.tables.topics_version
        header = ConfigVersionResponseHeader(version=fastjson.dumps(version.to_json()).decode())
        body = self._context.config.to_properties().encode()
        return call.respond(ResponseCode.SUCCESS, fields=header.to_fields(), body=body)

    def _runtime_info(self, call: Call[Any, bytes]) -> Frame:
        return call.respond(ResponseCode.SUCCESS, body=KvTable(self._info()).encode())

    def _info(self) -> dict[str, str]:
        context = self._context
        store = context.store.store
        disk = shutil.disk_usage(store.path)
        use = DiskUse.of(store.path, total=disk.total, used=disk.used, usable=disk.free)
        age_s = (context.wall_ms() - self._start_ms) // 1000
        start, end = max(store.start_offset, 0), store.end_offset
        values: dict[str, object] = {
            "brokerActive": context.role.is_master,
            "brokerVersion": VERSION,
            "brokerVersionDesc": _VERSION_TEXT,
            "bootTimestamp": self._start_ms,
            "runtime": (
                f"[ {age_s // 86400} days, {age_s // 3600 % 24} hours, {age_s // 60 % 60} minutes, "
                f"{age_s % 60} seconds ]"
            ),
            "commitLogMinOffset": start,
            "commitLogMaxOffset": end,
            "commitLogDiskRatio": f"{use.used_ratio:.4f}",
            "consumeQueueDiskRatio": f"{use.used_ratio:.4f}",
            "commitLogDirCapacity": f"Total : {_size(disk.total)}, Free : {_size(disk.free)}.",
            "dispatchBehindBytes": max(end - store.dispatched_offset, 0),
            "remainHowManyDataToFlush": f"{max(end - store.flushed_offset, 0)} B",
            "earliestMessageTimeStamp": self._earliest_ms(start, end),
            "pageCacheLockTimeMills": 0,
            "startAcceptSendRequestTimeStamp": 0,
            # No part of the log waits in a buffer for dispatch or for a pool of transient memory.
            "dispatchMaxBuffer": 0,
            "remainTransientStoreBufferNumbs": 0,
            "EndTransactionQueueSize": 0,
            "EndTransactionThreadPoolQueueCapacity": 0,
            "timerReadBehind": 0,
            "timerOffsetBehind": 0,
            "timerCongestNum": 0,
            "timerEnqueueTps": "0.0",
            "timerDequeueTps": "0.0",
            **context.traffic.report(context.now_ms() / 1000),
        }
        if context.role.waits_for:
            values["waitReason"] = context.role.waits_for
        lease_end_ms = None if context.replica is None else context.replica.lease_end_ms
        if lease_end_ms is not None:
            values["leaseRemainingMillis"] = max(lease_end_ms - context.now_ms(), 0)
        for family in _QUEUES:
            values[f"{family}ThreadPoolQueueSize"] = 0
            values[f"{family}ThreadPoolQueueCapacity"] = 0
            values[f"{family}ThreadPoolQueueHeadWaitTimeMills"] = 0
        return {key: _text(value) for key, value in sorted(values.items())}

    def _earliest_ms(self, start: int, end: int) -> int:
        """Returns when the first message was stored, -1 without messages."""
        if end <= start:
            return -1
        record = next(iter(self._context.store.store.scan_log(start)), None)
        return -1 if record is None else record.store_timestamp


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size(count: int) -> str:
    return f"{count / (1 << 30):.3f} GiB"
