"""The requests of an operator about the files of brokers: removal, cold data, reading ahead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.admin.broker_calls import BrokerCalls
from rmqstore.admin.servers import Change
from rmqstore.config import format_properties
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import object_of
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.headers.administration import ReadAheadRequestHeader
from rmqstore.typed_calls import typed

__all__ = ["FileAdmin"]


@typed()
class FileAdmin(BrokerCalls):
    """Has brokers remove files, and changes how they read."""

    async def delete_expired_commit_log(self, brokers: Sequence[str]) -> Sequence[Change]:
        """Have *brokers* remove expired log files, at any hour."""
        return await self._change_at(brokers, RequestCode.DELETE_EXPIRED_COMMITLOG, None)

    async def clean_expired_queues(self, brokers: Sequence[str]) -> Sequence[Change]:
        """Have *brokers* remove queues whose messages have expired."""
        return await self._change_at(brokers, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, None)

    async def clean_unused_topics(self, brokers: Sequence[str]) -> Sequence[Change]:
        """Have *brokers* remove the queues of topics without settings."""
        return await self._change_at(brokers, RequestCode.CLEAN_UNUSED_TOPIC, None)

    async def set_cold_data_limit(
        self, group: str, bytes_max: int, brokers: Sequence[str]
    ) -> Sequence[Change]:
        """Limit the cold bytes that a group reads in a period."""
        body = format_properties({group: str(bytes_max)}).encode()
        code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        return await self._change_at(brokers, code, None, body)

    async def remove_cold_data_limit(self, group: str, brokers: Sequence[str]) -> Sequence[Change]:
        """Remove the limit of a group for cold bytes."""
        code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        return await self._change_at(brokers, code, None, group.encode())

    async def cold_data_info(self, broker: str) -> Mapping[str, Any]:
        """Return the limits and counts of cold data of a broker."""
        answer = await self._call(broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return object_of(fastjson.loads(answer.raise_for_code().body), "ColdDataFlowCtrInfo")

    async def set_read_ahead(self, mode: int, brokers: Sequence[str]) -> Sequence[Change]:
        """Set how the log is read ahead: 0 as the system does it, 1 not at all."""
        fields = ReadAheadRequestHeader(mode=mode).to_fields()
        return await self._change_at(brokers, RequestCode.SET_COMMITLOG_READ_MODE, fields)
