"""Flow control of cold data and reading ahead (2001 to 2004), which this broker does not have.

RocketMQ's brokers have them switched off by default, and take the same requests then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rmqstore.errors import RequestRefused
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import ReadAheadRequestHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["ColdDataRequests"]

_NORMAL, _RANDOM = 0, 1
_NO_EFFECT = "this broker has no flow control of cold data; the request has no effect"
_INFO: Mapping[str, Any] = {
    "cgColdReadThreshold": 0,
    "configTable": {},
    "globalAcc": 0,
    "globalColdReadThreshold": 0,
    "runtimeTable": {},
}


class ColdDataRequests:
    """Answers with empty tables; a remark says that a change has no effect."""

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: self._change,
            RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: self._change,
            RequestCode.GET_COLD_DATA_FLOW_CTR_INFO: self._info,
            RequestCode.SET_COMMITLOG_READ_MODE: self._set_mode,
        }

    def _change(self, call: Call[Any, Any]) -> Frame:
        return call.respond(ResponseCode.SUCCESS, _NO_EFFECT)

    def _info(self, call: Call[Any, bytes]) -> Frame:
        return call.respond(ResponseCode.SUCCESS, body=fastjson.dumps(_INFO))

    def _set_mode(self, call: Call[ReadAheadRequestHeader, bytes]) -> Frame:
        if call.header.mode not in (_NORMAL, _RANDOM):
            raise RequestRefused(
                f"READ_AHEAD_MODE is {call.header.mode}; send 0 for normal, 1 for random",
                code=ResponseCode.INVALID_PARAMETER,
            )
        remark = "this broker leaves reading ahead to the system; the mode has no effect"
        return call.respond(ResponseCode.SUCCESS, remark)
