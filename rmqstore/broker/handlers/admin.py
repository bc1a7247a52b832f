"""Requests of an operator about the configuration of the broker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqstore.broker.context import Context
from rmqstore.errors import ConfigError, DiskError, RequestRefused
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import ConfigVersionResponseHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["AdminRequests"]

_FIXED_KEYS = frozenset({"configBlackList", "brokerConfigPath"})


class AdminRequests:
    """Answers an operator."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_BROKER_CONFIG: self._update_config,
            RequestCode.GET_BROKER_CONFIG: self._config,
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
