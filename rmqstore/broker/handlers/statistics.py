"""The counters of a broker by RocketMQ's names: VIEW_BROKER_STATS_DATA (315)."""

from __future__ import annotations

from dataclasses import astuple

from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.counters import CounterBody, CounterSpan
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.statistics import BrokerStatsRequestHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["StatisticsRequests"]


class StatisticsRequests:
    """The handler of requests for counters."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.VIEW_BROKER_STATS_DATA: self._counter}

    def _counter(self, call: Call[BrokerStatsRequestHeader, bytes]) -> Frame:
        context, header = self._context, call.header
        sums = context.traffic.statistics.sums(
            header.name,
            header.key,
            cluster=context.config.cluster_name,
            now_s=context.now_ms() / 1000,
        )
        if sums is None:
            raise RequestRefused(
                f"The stats <{header.name}> <{header.key}> not exist",
                code=ResponseCode.SYSTEM_ERROR,
            )
        spans = (CounterSpan(*astuple(each)) for each in (sums.minute, sums.hour, sums.day))
        return call.respond(ResponseCode.SUCCESS, body=CounterBody(*spans).encode())
