"""The client of `demo`'s cluster: it sends numbered messages to the master that the nameserver
names, and reads them back."""

from __future__ import annotations

import asyncio
import re
import time

from rmqstore.cli.demo.writer_process import body_of
from rmqstore.errors import RemotingError
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from rmqstore.remoting.headers.send import SendMessageRequestHeaderV2

__all__ = ["TOPIC", "ClusterClient", "numbers_in"]

TOPIC = "orders"
_TEMPLATE = "TBW102"
_QUEUES = 4
_AT_ONCE = 16
_SEND_S, _ROUTE_S = 3.0, 3.0
_PAUSE_S = 0.02
_MASTER_ID = 0
_PULL_COUNT = 32
_NUMBER = re.compile(rb"message (\d{9}) ")
_SUBSCRIPTION = 4
_WITHOUT_WAIT = "WAIT\x01false\x02"


def numbers_in(data: bytes) -> set[int]:
    """Return the numbers of the messages in *data*."""
    return {int(each) for each in _NUMBER.findall(data)}


class ClusterClient:
    """Sends to *topic* until it is stopped; a number that is not acknowledged is sent again.

    *at_once* sends are in progress at a time, and the client waits *send_s* seconds for each
    answer. Without *waits* a message is acknowledged once it is in the memory of the master.
    """

    def __init__(
        self,
        nameserver: str,
        *,
        topic: str = TOPIC,
        at_once: int = _AT_ONCE,
        send_s: float = _SEND_S,
        waits: bool = True,
    ) -> None:
        self.topic = topic
        self.acknowledged: set[int] = set()
        self.repeated = 0
        """Sends that were repeated after a refusal or without an answer."""
        self.answered: list[tuple[float, str]] = []
        """Each change of the acknowledging broker: time and address."""
        self._nameserver = nameserver
        self._at_once = at_once
        self._send_s = send_s
        self._properties = "" if waits else _WITHOUT_WAIT
        self._client = RemotingClient()
        self._master: str | None = None
        self._is_doubtful = True
        """Whether to ask the nameserver before the next send."""
        self._next = 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to send."""
        self._tasks = [asyncio.create_task(self._send_on()) for _ in range(self._at_once)]

    async def stop(self) -> None:
        """End sending. Raises the error that ended it earlier."""
        for task in self._tasks:
            task.cancel()
        for found in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(found, Exception):
                raise found
        self._tasks = []

    async def close(self) -> None:
        """Stop, and close all connections."""
        try:
            await self.stop()
        finally:
            await self._client.close()

    async def route(self) -> TopicRoute | None:
        """Return the route of the topic, or of the template for new topics."""
        for topic in (self.topic, _TEMPLATE):
            header = GetRouteInfoRequestHeader(topic=topic)
            request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, header.to_fields())
            answer = await self._client.call(self._nameserver, request, _ROUTE_S)
            if answer.code == ResponseCode.SUCCESS:
                return TopicRoute.decode(answer.body)
        return None

    async def _send_on(self) -> None:
        while True:
            number, self._next = self._next, self._next + 1
            while not await self._is_sent(number):
                self.repeated += 1
                await asyncio.sleep(_PAUSE_S)

    async def _is_sent(self, number: int) -> bool:
        """Sends once; returns whether the message was acknowledged."""
        try:
            master = await self._believed_master()
            if master is None:
                return False
            header = SendMessageRequestHeaderV2(
                producer_group="demo",
                topic=self.topic,
                default_topic=_TEMPLATE,
                default_topic_queues=_QUEUES,
                queue_id=number % _QUEUES,
                sys_flag=0,
                born_timestamp_ms=time.time_ns() // 1_000_000,
                flag=0,
                properties=self._properties,
            )
            request = Frame.request(
                RequestCode.SEND_MESSAGE_V2, header.to_fields(), body_of(number)
            )
            answer = await self._client.call(master, request, self._send_s)
        except RemotingError:
            self._is_doubtful = True
            return False
        self._is_doubtful = answer.code != ResponseCode.SUCCESS
        if self._is_doubtful:
            return False
        self.acknowledged.add(number)
        if not self.answered or self.answered[-1][1] != master:
            self.answered.append((time.monotonic(), master))
        return True

    async def _believed_master(self) -> str | None:
        # Another send may have found that no broker is the master now.
        if self._is_doubtful or self._master is None:
            try:
                await self._find_master()
            except RemotingError:
                # Like Java's clients, it goes on by its last route while no nameserver answers.
                if self._master is None:
                    raise
        return self._master

    async def _find_master(self) -> str | None:
        route = await self.route()
        self._master = route.brokers[0].addresses.get(_MASTER_ID) if route else None
        return self._master

    async def read_all(self) -> set[int]:
        """Return the numbers of all messages that the master has. Raises RemotingError."""
        route, master = await self.route(), await self._find_master()
        if route is None or master is None:
            return set()
        found: set[int] = set()
        for queue in range(route.queues[0].read_queues):
            found |= await self._read(master, queue)
        return found

    async def _read(self, master: str, queue: int) -> set[int]:
        found: set[int] = set()
        offset = 0
        while True:
            header = PullMessageRequestHeader(
                consumer_group="demo",
                topic=self.topic,
                queue_id=queue,
                queue_offset=offset,
                max_messages=_PULL_COUNT,
                sys_flag=_SUBSCRIPTION,
                commit_offset=0,
                suspend_timeout_ms=0,
                subscription="*",
                subscription_version=0,
            )
            request = Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())
            answer = await self._client.call(master, request, self._send_s)
            if answer.code != ResponseCode.SUCCESS:
                return found
            found |= numbers_in(answer.body)
            offset = PullMessageResponseHeader.from_fields(answer.ext_fields).next_offset
