"""Requests of the other replicas, of controllers and of operators about replication."""

from __future__ import annotations

from typing import Any

from rmqstore.broker.context import Context
from rmqstore.broker.ha_status import ha_status_body
from rmqstore.errors import RemotingFrameError, RequestRefused
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.epochs import EpochCache
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.ha import ExchangeHaInfoHeader
from rmqstore.remoting.requests import Call, Handler
from rmqstore.replication.group.status import Status

__all__ = ["ReplicationRequests"]

_MASTER_ID = 0


class ReplicationRequests:
    """Answers replicas, controllers and operators."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.EXCHANGE_BROKER_HA_INFO: self._ha_info,
            RequestCode.GET_BROKER_HA_STATUS: self._ha_status,
            RequestCode.GET_BROKER_EPOCH_CACHE: self._epochs,
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: self._notified,
        }

    def _ha_info(self, call: Call[Any, bytes]) -> Frame:
        """Name the HA address while this broker is master. An address that another broker offers
        is not taken: the controller, the nameserver or the file names the master."""
        context = self._context
        answer = ExchangeHaInfoHeader()
        ha_address = context.ha_address
        if context.role.is_master and ha_address is not None:
            answer = ExchangeHaInfoHeader(
                master_ha_address=format_address(ha_address),
                master_flush_offset=context.store.store.flushed_offset,
                master_address=format_address(context.address),
            )
        return call.respond(ResponseCode.SUCCESS, fields=answer.to_fields())

    def _status(self) -> Status:
        replica = self._context.replica
        if replica is None:
            raise RequestRefused(
                "this broker has no replica before a controller has assigned its id; repeat the "
                "request",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return replica.status()

    def _ha_status(self, call: Call[Any, bytes]) -> Frame:
        now_s = self._context.now_ms() / 1000
        body = ha_status_body(self._status(), self._context.traffic, now_s=now_s)
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _epochs(self, call: Call[Any, bytes]) -> Frame:
        config = self._context.config
        if not config.is_controlled:
            raise RequestRefused(
                "this broker keeps no epochs; they need enableControllerMode",
                code=ResponseCode.SYSTEM_ERROR,
            )
        status = self._status()
        broker_id = _MASTER_ID if self._context.is_leading else status.broker_id
        cache = EpochCache(broker_id, status.epochs, status.end_offset)
        body = cache.encode(cluster=config.cluster_name, broker_name=config.name)
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _notified(self, call: Call[Any, bytes]) -> Frame:
        try:
            self._context.membership.notified(call.request)
        except RemotingFrameError as error:
            raise RequestRefused(
                f"the body cannot be read: {error}", code=ResponseCode.INVALID_PARAMETER
            ) from error
        return call.respond(ResponseCode.SUCCESS)
