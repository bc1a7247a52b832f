"""A client that sends all kinds of messages to a group: ordinary ones, delayed ones, timer
messages, half messages, and messages that it failed on and sends back."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from rmqstore.errors import RemotingError
from rmqstore.message import parse_message_id
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.bodies.messages import decode_messages
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import ConsumerSendMsgBackRequestHeader
from rmqstore.remoting.headers.transactions import CheckTransactionStateRequestHeader
from tests.support.sends import send_request
from tests.support.transactions import COMMIT, ROLLBACK, UNKNOWN, end

__all__ = ["DEAD", "RETRY", "TOPIC", "Acknowledged", "KindsClient"]

TOPIC = "kinds"
_GROUP = "readers"
RETRY, DEAD = f"%RETRY%{_GROUP}", f"%DLQ%{_GROUP}"
_CALL_S = 2.0
_AT_ONCE = 4
_PAUSE_S = 0.01
_AGAIN_S = 0.1
_BEAT_S = 0.5
_DELAY_MS = 300
_LEVEL_MS = 1000
_DECISIONS = (COMMIT, ROLLBACK, UNKNOWN)


@dataclass(slots=True)
class Acknowledged:
    """What brokers answered with success, by the keys of messages."""

    delivered: set[str] = field(default_factory=set)
    """Messages that their topic must have, each once."""
    not_before_ms: dict[str, int] = field(default_factory=dict)
    """The earliest times of those that are delivered later."""
    rolled_back: set[str] = field(default_factory=set)
    """Half messages that their topic must not have."""
    retried: set[str] = field(default_factory=set)
    """Messages that the topic of retries must have."""
    dead: set[str] = field(default_factory=set)
    """Messages that the topic of dead letters must have."""


class KindsClient:
    """Sends to the master that *master* returns, until it is closed.

    The decision on a transaction is made with the half message, and is the answer to each question
    about it; a third of the ends are not sent.
    """

    def __init__(self, master: Callable[[], str | None], *, seed: int) -> None:
        self.acknowledged = Acknowledged()
        self._master = master
        self._address: str | None = None
        self._rng = Random(seed)
        self._numbers = itertools.count()
        self._decisions: dict[str, int] = {}
        handlers: dict[int, Any] = {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
        self._client = RemotingClient(handlers=handlers)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to send."""
        work = [self._beat(), *(self._send_repeatedly() for _ in range(_AT_ONCE))]
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]

    async def stop_sending(self) -> None:
        """Send no more; questions are answered on."""
        sending, self._tasks = self._tasks[1:], self._tasks[:1]
        for each in sending:
            each.cancel()
        await asyncio.gather(*sending, return_exceptions=True)

    async def close(self) -> None:
        """End the connections."""
        for each in self._tasks:
            each.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._client.close()

    async def _beat(self) -> None:
        subscription = SubscriptionData(topic=TOPIC, version=1)
        consumer = ConsumerData(group=_GROUP, subscriptions=(subscription,))
        body = HeartbeatData(client_id="kinds", producers=("pg",), consumers=(consumer,)).encode()
        while True:
            self._address = await asyncio.to_thread(self._master) or self._address
            await self._call(Frame(RequestCode.HEART_BEAT, body=body))
            await asyncio.sleep(_BEAT_S)

    async def _call(self, request: Frame) -> Frame | None:
        """Returns an answer with success, None for any other outcome."""
        if self._address is None:
            return None
        try:
            answer = await self._client.call(self._address, request, timeout=_CALL_S)
        except RemotingError:
            return None
        return answer if answer.code == ResponseCode.SUCCESS else None

    async def _send_repeatedly(self) -> None:
        kinds = (self._send, self._send_delayed, self._send_timed, self._send_half, self._fail)
        while True:
            is_done = await self._rng.choice(kinds)(f"k{next(self._numbers)}")
            await asyncio.sleep(_PAUSE_S if is_done else _AGAIN_S)

    async def _put(self, key: str, **properties: str) -> Frame | None:
        named = {"UNIQ_KEY": key, **properties}
        flag = 4 if "TRAN_MSG" in properties else 0
        return await self._call(send_request(TOPIC, key.encode(), named, sys_flag=flag))

    async def _send(self, key: str) -> bool:
        if await self._put(key) is None:
            return False
        self.acknowledged.delivered.add(key)
        return True

    async def _send_delayed(self, key: str) -> bool:
        return await self._send_later(key, _LEVEL_MS, DELAY="1")

    async def _send_timed(self, key: str) -> bool:
        return await self._send_later(key, _DELAY_MS, TIMER_DELAY_MS=str(_DELAY_MS))

    async def _send_later(self, key: str, delay_ms: int, **properties: str) -> bool:
        due_ms = time.time_ns() // 1_000_000 + delay_ms
        if await self._put(key, **properties) is None:
            return False
        self.acknowledged.delivered.add(key)
        self.acknowledged.not_before_ms[key] = due_ms
        return True

    async def _send_half(self, key: str) -> bool:
        sent = self._rng.choice(_DECISIONS)
        wanted = self._decisions[key] = sent or self._rng.choice((COMMIT, ROLLBACK))
        answer = await self._put(key, TRAN_MSG="true", PGROUP="pg")
        if answer is None:
            return False
        if wanted == COMMIT:
            self.acknowledged.delivered.add(key)
        else:
            self.acknowledged.rolled_back.add(key)
        if sent != UNKNOWN:
            physical_offset = parse_message_id(answer.ext_fields["msgId"]).physical_offset
            await self._call(end(int(answer.ext_fields["queueOffset"]), physical_offset, sent))
        return True

    async def _asked(self, connection: RemotingConnection, request: Frame) -> None:
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        [message] = decode_messages(request.body)
        decision = self._decisions.get(message.unique_key or "", UNKNOWN)
        frame = end(header.queue_offset, header.physical_offset, decision)
        connection.send(frame.with_opaque(0, is_one_way=True))

    async def _fail(self, key: str) -> bool:
        answer = await self._put(key)
        if answer is None:
            return False
        self.acknowledged.delivered.add(key)
        level = self._rng.choice((1, -1))
        header = ConsumerSendMsgBackRequestHeader(
            offset=parse_message_id(answer.ext_fields["msgId"]).physical_offset,
            group=_GROUP,
            delay_level=level,
        )
        request = Frame.request(RequestCode.CONSUMER_SEND_MSG_BACK, header.to_fields())
        if await self._call(request) is None:
            return False
        (self.acknowledged.retried if level > 0 else self.acknowledged.dead).add(key)
        return True
