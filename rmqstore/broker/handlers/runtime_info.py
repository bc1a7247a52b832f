"""The state of a running broker, under RocketMQ's names: GET_BROKER_RUNTIME_INFO (28)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from rmqstore.broker.context import Context
from rmqstore.broker.metadata.delay_progress import DelayProgress
from rmqstore.broker.operations.core import ViewOf
from rmqstore.broker.timers import TimerState
from rmqstore.remoting.bodies.tables import KvTable
from rmqstore.remoting.codes import VERSION, RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.requests import Call, Handler
from rmqstore.store.cleaning import disk_use, log_paths
from rmqstore.topic_names import SCHEDULE_TOPIC

__all__ = ["RuntimeInfoRequests"]

_VERSION_TEXT = "V5_3_3"
_UNLIMITED = 0x7FFFFFFF
_ACKS_MAX = 100_000
"""RocketMQ's ackThreadPoolQueueCapacity."""
_UNITS = "KMGTPE"


class TimerMessages(Protocol):
    """The service of timer messages."""

    progress: DelayProgress
    """How far deliveries have come, those of delayed messages included."""

    def state(self) -> TimerState:
        """Return what waits."""


class RuntimeInfoRequests:
    """The handler of requests for the state of the broker."""

    def __init__(self, context: Context, timers: TimerMessages) -> None:
        self._context = context
        self._timers = timers
        self._view = ViewOf(context)
        self._start_ms = context.wall_ms()

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.GET_BROKER_RUNTIME_INFO: self._info}

    def _info(self, call: Call[Any, bytes]) -> Frame:
        context = self._context
        values: dict[str, object] = {
            **self._of_broker(),
            **self._of_store(),
            **self._of_waiting_messages(),
            **context.traffic.report(context.now_ms() / 1000),
            **self._of_requests(),
        }
        table = {key: _text(value) for key, value in sorted(values.items())}
        return call.respond(ResponseCode.SUCCESS, body=KvTable(table).encode())

    def _of_broker(self) -> Mapping[str, object]:
        context = self._context
        age_s = (context.wall_ms() - self._start_ms) // 1000
        values: dict[str, object] = {
            "brokerActive": context.role.is_master,
            "brokerVersion": VERSION,
            "brokerVersionDesc": _VERSION_TEXT,
            "bootTimestamp": self._start_ms,
            "runtime": (
                f"[ {age_s // 86400} days, {age_s // 3600 % 24} hours, {age_s // 60 % 60} minutes, "
                f"{age_s % 60} seconds ]"
            ),
            "startAcceptSendRequestTimeStamp": context.config.accepts_sends_from_ms,
        }
        if context.role.waits_for:
            values["waitReason"] = context.role.waits_for
        lease_end_ms = None if context.replica is None else context.replica.lease_end_ms
        if lease_end_ms is not None:
            values["leaseRemainingMillis"] = max(lease_end_ms - context.now_ms(), 0)
        return values

    def _of_requests(self) -> Mapping[str, object]:
        """Returns how many requests wait for their results, where RocketMQ has queues."""
        counts, config = self._context.in_progress, self._context.config
        values: dict[str, object] = {
            "EndTransactionQueueSize": counts.get("transaction", 0),
            "EndTransactionThreadPoolQueueCapacity": config.transaction_ends_max,
        }
        for name, count, capacity in (
            ("send", counts.get("send", 0), config.sends_max),
            ("pull", counts.get("pull", 0), config.pulls_max),
            ("litePull", counts.get("lite pull", 0), config.lite_pulls_max),
            ("query", counts.get("lookup", 0), config.lookups_max),
            ("ack", 0, _ACKS_MAX),
        ):
            values[f"{name}ThreadPoolQueueSize"] = count
            values[f"{name}ThreadPoolQueueCapacity"] = capacity
            # A request is begun as soon as it is read.
            values[f"{name}ThreadPoolQueueHeadWaitTimeMills"] = 0
        return values

    def _of_store(self) -> Mapping[str, object]:
        store = self._context.store.store
        disk = disk_use(store.path)
        logs = {path: disk_use(path).used_ratio for path in log_paths(store.path, store.config)}
        start, end = max(store.start_offset, 0), store.end_offset
        return {
            "commitLogMinOffset": start,
            "commitLogMaxOffset": end,
            **{f"commitLogDiskRatio_{path}": f"{ratio:.4f}" for path, ratio in logs.items()},
            "commitLogDiskRatio": f"{min(logs.values()):.4f}",
            "consumeQueueDiskRatio": f"{disk.used_ratio:.4f}",
            "commitLogDirCapacity": (
                f"Total : {_size(disk.total_bytes)}, Free : {_size(disk.free_bytes)}."
            ),
            "dispatchBehindBytes": max(end - store.dispatched_offset, 0),
            "remainHowManyDataToFlush": _size(max(end - store.flushed_offset, 0)),
            "earliestMessageTimeStamp": self._earliest_ms(start, end),
            # A put holds the lock of the log for microseconds, on the loop that answers this.
            "pageCacheLockTimeMills": 0,
            # No part of the log waits for dispatch in a buffer, or for a pool of memory.
            "dispatchMaxBuffer": 0,
            "remainTransientStoreBufferNumbs": _UNLIMITED,
        }

    def _of_waiting_messages(self) -> Mapping[str, object]:
        """Returns the progress of delayed and timer messages."""
        timers, now_s = self._timers.state(), self._context.now_ms() / 1000
        statistics = self._context.traffic.statistics
        return {
            "timerReadBehind": timers.behind_ms // 1000,
            "timerOffsetBehind": timers.unread,
            "timerCongestNum": timers.waiting,
            "timerEnqueueTps": statistics.timers_entered.rate_of_all(now_s),
            "timerDequeueTps": statistics.timers_delivered.rate_of_all(now_s),
            **self._of_delay_levels(),
        }

    def _of_delay_levels(self) -> Mapping[str, object]:
        """Returns the progress of each delay level that had messages."""
        offsets = self._timers.progress.latest.offsets
        levels = range(1, len(self._context.config.store.delay_levels_ms) + 1)
        ends = {
            level: self._view().next_offset(SCHEDULE_TOPIC, level - 1)
            for level in sorted({*levels, *offsets})
        }
        return {
            f"scheduleMessageOffset_{level}": f"{offsets.get(level, 0)},{end}"
            for level, end in ends.items()
            if end or level in offsets
        }

    def _earliest_ms(self, start: int, end: int) -> int:
        """Returns when the first message was stored, -1 without messages."""
        if end <= start:
            return -1
        record = next(iter(self._context.store.store.scan_log(start)), None)
        return -1 if record is None else record.store_timestamp


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _size(count: int) -> str:
    """Returns a number of bytes as RocketMQ writes it."""
    if count < 1024:
        return f"{count} B"
    power = (count.bit_length() - 1) // 10
    return f"{count / 1024**power:.1f} {_UNITS[power - 1]}iB"
