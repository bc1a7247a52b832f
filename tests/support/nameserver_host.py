"""The handlers of a nameserver without sockets, clock or files."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from rmqstore.config import NameserverConfig, with_changes
from rmqstore.errors import RequestRefused
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.requests import Requests
from rmqstore.nameserver.routes import Effect, RouteOptions, RouteTable
from rmqstore.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from rmqstore.remoting.bodies.topic_config import TopicTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerRequestHeader


class FakeHost:
    """Provides the state that the handlers use, and collects effects."""

    def __init__(self, config: NameserverConfig | None = None) -> None:
        self.config = config or NameserverConfig()
        self.kv = KvConfig()
        self.log = logging.getLogger("rmqstore.nameserver")
        self.age_ms = 0
        self.time_ms = 1_000_000
        self.effects: list[Effect] = []
        options = RouteOptions(
            acting_master=self.config.acting_master,
            notify_min_broker_id=self.config.notify_min_broker_id,
        )
        self.table = RouteTable(options)
        self.handlers = Requests(self.table, self).dispatched()

    def now_ms(self) -> int:
        return self.time_ms

    def number_of(self, connection: Any) -> int:
        return int(connection)

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        self.effects += effects

    async def change_kv(self, change: Callable[[KvConfig], KvConfig]) -> None:
        self.kv = change(self.kv)

    async def configure(self, changes: Mapping[str, str]) -> None:
        self.config = with_changes(self.config, changes)

    async def answer(self, request: Frame, *, connection: int = 1) -> Frame:
        """Return the answer to *request*, as a server gives it."""
        try:
            found = self.handlers[request.code](connection, request)
            answer = found if found is None or isinstance(found, Frame) else await found
        except RequestRefused as refused:
            return request.respond(refused.code, refused.remark)
        assert answer is not None, request.code
        return answer


def registration(
    header: RegisterBrokerRequestHeader, table: TopicTable, *, compressed: bool = False
) -> Frame:
    """Return the request of a broker that registers."""
    body = RegisterBrokerBody(table, ()).encode(compressed=compressed)
    fields = {**header.to_fields(), "bodyCrc32": str(body_crc32(body))}
    if compressed:
        fields["compressed"] = "true"
    return Frame.request(RequestCode.REGISTER_BROKER, fields, body)
