"""QUERY_CONSUME_QUEUE (321): the units of a queue."""

from __future__ import annotations

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.context import Context
from rmqstore.broker.operations.queue_units import QueueUnitOperations
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_units import QueueUnit, QueueUnitList
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import QueueUnitsRequestHeader
from rmqstore.remoting.requests import Call, Handler

__all__ = ["QueueUnitRequests"]


class QueueUnitRequests:
    """Answers an operator who looks into a queue, with the subscription of a group to it."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._operations = QueueUnitOperations(context)

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {RequestCode.QUERY_CONSUME_QUEUE: self._units}

    async def _units(self, call: Call[QueueUnitsRequestHeader, bytes]) -> Frame:
        header = call.header
        found = await self._operations.read(
            header.topic, header.queue_id, header.start, header.count
        )
        subscription = filter_text = None
        if header.group is not None:
            subscription = self._clients.subscription(header.group, header.topic)
            known = self._context.metadata.filters.get(header.topic, header.group)
            filter_text = "null" if known is None else fastjson.dumps(known.members()).decode()
            if subscription is None:
                filter_text = f"{header.group}@{header.topic} is not online!"
        body = QueueUnitList(
            start=found.start,
            end=found.end,
            units=[
                QueueUnit(
                    physical_offset=each.physical_offset,
                    size=each.size,
                    tags_code=each.tags_code,
                    bit_map=each.bit_map,
                )
                for each in found.units
            ],
            filter_text=filter_text,
            subscription=subscription,
        )
        return call.respond(ResponseCode.SUCCESS, body=body.encode())
