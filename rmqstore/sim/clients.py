"""Clients of a simulated broker: they find the master by its route, send, read, and change tables.

A producer behaves as RocketMQ's: it sends to a queue of the master in the route, at most three
times, and requests the route again after a refusal or without an answer. Some messages make their
topic, others are delayed. A consumer pulls from any member of the group, and sends some messages
back. An operator creates topics and groups at the master.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Protocol

from rmqstore.errors import RemotingError
from rmqstore.message import encode_properties
from rmqstore.permissions import PERM_READ_WRITE, PERM_WRITE
from rmqstore.remoting.bodies.route import MASTER_ID, TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.dispatch import FrameHandler
from rmqstore.remoting.fastjson import dumps
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.administration import CreateTopicRequestHeader
from rmqstore.remoting.headers.pull import (
    PullFlag,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
)
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from rmqstore.remoting.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqstore.sim.broker_host import READERS
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.model_store import records_in
from rmqstore.sim.network import Network
from rmqstore.sim.process import Process
from rmqstore.sim.registrar import TOPIC
from rmqstore.sim.transport import SimClient
from rmqstore.store.metadata import GroupConfig

__all__ = ["CLIENTS", "Client", "Consumer", "Operator", "Producer", "Record"]

CLIENTS = (51, 52, 53, 54, 55, 56)
"""Machines of two producers, a consumer, an operator, a transactional producer and one of timer
messages."""
_TRIES = 3
_MAKES_TOPIC_EVERY = 4
_SEND_MS = 900
_ROUTE_MS = 300
_POLL_MS = 2000
_PULL_MS = 400
_WAITS_MS = (0, 900, 3000)
_CHANGE_MS = 4000
_AT_ONCE = 8
_DELAYS_EVERY = 5
_FAILURES = 0.05
"""The share of messages that a consumer fails on."""
_RETRY_LEVELS = (1, 2, -1)
"""Delay levels of retries, and that of a dead letter."""
_LEVELS = (1, 2)

Answer = Frame | RemotingError
"""The answer to a request, or the error."""


class Record(Protocol):
    """Receives the results that clients got."""

    @property
    def warnings(self) -> int:
        """Elections in spite of a warning: they give up earlier acknowledgements."""

    def sent(self, key: str, *, topic: str, queue: int, queue_offset: int, level: int) -> None:
        """Take the acknowledgement of a message; *queue_offset* of a delayed one is that in the
        queue of its delay *level*, 0 for others."""

    def read(self, number: int, *, topic: str, queue: int, queue_offset: int) -> None:
        """Take a record that a consumer got."""

    def sent_back(self, number: int, *, place: int, is_dead: bool) -> None:
        """Take the acknowledgement of the put *number*, at *place* in the log, that a consumer
        failed on: its group gets the message again, or as a dead letter."""

    def half_sent(self, key: str, *, topic: str, queue_offset: int) -> None:
        """Take the acknowledgement of a half message to *topic*; *queue_offset* is that in the
        queue of half messages."""

    def decided(self, key: str, *, is_committed: bool) -> None:
        """Take that a producer decides how a transaction ends."""

    def timer_sent(
        self, key: str, *, topic: str, queue: int, queue_offset: int, waits: bool
    ) -> None:
        """Take the acknowledgement of a timer message to *topic*; *queue_offset* is that in the
        queue of timer messages if it *waits*, and its time was not over."""

    def recalling(self, key: str) -> None:
        """Take that the recall of a timer message is sent, which may succeed without an answer."""

    def recalled(self, key: str) -> None:
        """Take the acknowledgement that a timer message is not delivered."""

    def made(self, *, topic: str = "", group: str = "") -> None:
        """Take the acknowledgement of a topic or a group that is on all members of the set: of a
        change without a remark, or of a message to the topic."""


class Client:
    """The machine *number*, which knows the *nameservers*."""

    def __init__(
        self,
        number: int,
        *,
        timeline: Timeline,
        network: Network,
        rng: Random,
        nameservers: tuple[str, ...],
        record: Record,
    ) -> None:
        self.number = number
        self.route: TopicRoute | None = None
        self._timeline = timeline
        self._rng = rng
        self._record = record
        self._nameservers = nameservers
        self._turn = rng.randrange(len(nameservers))
        self._is_asking = False
        self._asking: list[Callable[[], None]] = []
        self._process = Process(
            number,
            timeline=timeline,
            network=network,
            clock=MachineClock(timeline),
            failed=self._failed,
        )
        self._client: SimClient

    def start(self) -> None:
        """Begin to follow the route."""
        self._process.run(self._make_client)
        self._poll()

    def _make_client(self) -> None:
        self._client = SimClient(self._process.sockets, handlers=self._handlers())

    def _handlers(self) -> dict[int, FrameHandler]:
        """Returns the handlers of requests that a broker sends."""
        return {}

    def close(self) -> None:
        """End the process together with the world."""
        self._process.end(loses_power=True)

    def _failed(self, context: dict[str, Any]) -> None:
        self._timeline.after(0, _raise, context.get("exception") or AssertionError(context))

    def _call(
        self, address: str, request: Frame, timeout_ms: int, done: Callable[[Answer], None]
    ) -> None:
        """Send *request* to the server at *address*; *done* gets the answer or the error, in an
        event of its own."""

        async def call() -> None:
            answer: Answer
            try:
                answer = await self._client.call(address, request, timeout_ms / 1000)
            except RemotingError as error:
                answer = error
            self._timeline.after(0, done, answer)

        self._process.run(lambda: self._process.loop.create_task(call()))

    def _poll(self) -> None:
        self._timeline.after(_POLL_MS * 1000, self._poll)
        self.refresh(lambda: None)

    def refresh(self, then: Callable[[], None]) -> None:
        """Request the route again, and call *then* with or without an answer."""
        self._asking.append(then)
        if self._is_asking:
            return
        self._is_asking = True
        fields = GetRouteInfoRequestHeader(topic=TOPIC, accept_standard_json_only=True).to_fields()
        request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        target = self._nameservers[self._turn % len(self._nameservers)]
        self._call(target, request, _ROUTE_MS, self._routed)

    def _routed(self, answer: Answer) -> None:
        self._is_asking = False
        if not isinstance(answer, Frame):
            self._turn += 1
        elif answer.code == ResponseCode.SUCCESS:
            self.route = TopicRoute.decode(answer.body)
        elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
            self.route = None
        asking, self._asking = self._asking, []
        for then in asking:
            then()

    def _master(self) -> str | None:
        """Return the address of the master, None if the route names none that takes messages."""
        route = self.route
        if route is None or not any(each.perm & PERM_WRITE for each in route.queues):
            return None
        return route.brokers[0].addresses.get(MASTER_ID) if route.brokers else None


def _raise(error: BaseException) -> None:
    raise error


@dataclass(slots=True)
class _Send:
    key: str
    topic: str
    queue: int
    size: int
    level: int
    """The delay level, 0 for a message that is not delayed."""
    tries: int = 0


class Producer(Client):
    """Sends messages, each with a unique key; some of them to a topic that the message makes."""

    is_done = False
    """Whether the last message was acknowledged."""
    _count = 0
    _open = 0

    def send(self) -> None:
        """Send a message, unless too many are in progress."""
        if self._open >= _AT_ONCE:
            return
        self._open += 1
        self._count += 1
        self.is_done = False
        size = self._rng.randrange(300)
        key, topic = f"{self.number}-{self._count}", TOPIC
        if self._count % _MAKES_TOPIC_EVERY == 0:
            # Messages of a producer that are sent close together share their topic.
            topic = f"made-{self.number}-{self._count // (2 * _MAKES_TOPIC_EVERY)}"
        level = self._rng.choice(_LEVELS) if self._count % _DELAYS_EVERY == 0 else 0
        self._try(_Send(key, topic, self._rng.randrange(2), size, level))

    def _try(self, send: _Send) -> None:
        master = self._master()
        send.tries += 1
        if master is None:
            self._again(send)
            return
        properties = {"UNIQ_KEY": send.key, "WAIT": "true"}
        if send.level:
            properties["DELAY"] = str(send.level)
        header = SendMessageRequestHeaderV2(
            producer_group="writers",
            topic=send.topic,
            default_topic="TBW102",
            default_topic_queues=2,
            queue_id=send.queue,
            sys_flag=0,
            born_timestamp_ms=0,
            flag=0,
            properties=encode_properties(properties),
        )
        request = Frame.request(RequestCode.SEND_MESSAGE_V2, header.to_fields(), b"m" * send.size)
        warnings = self._record.warnings
        self._call(master, request, _SEND_MS, lambda answer: self._sent(send, answer, warnings))

    def _sent(self, send: _Send, answer: Answer, warnings: int) -> None:
        if not isinstance(answer, Frame) or answer.code != ResponseCode.SUCCESS:
            self._again(send)
            return
        self._open -= 1
        self.is_done = True
        found = SendMessageResponseHeader.from_fields(answer.ext_fields)
        # An operator may have given up, since the request, what a former master acknowledged.
        if warnings == self._record.warnings:
            place = {"queue": found.queue_id, "queue_offset": found.queue_offset}
            self._record.sent(send.key, topic=send.topic, **place, level=send.level)
            self._record.made(topic=send.topic)

    def _again(self, send: _Send) -> None:
        if send.tries < _TRIES:
            self.refresh(lambda: self._try(send))
        else:
            self._open -= 1


class Consumer(Client):
    """Reads all queues, from any member of the group, and commits its offsets with the pulls.

    Most pulls wait at the end of a queue for the next message.
    """

    woken = 0
    """Pulls that were answered with a message after a wait."""

    def start(self) -> None:
        """Begin to read."""
        super().start()
        self._next = [0, 0]
        for queue in range(len(self._next)):
            self._pull(queue)

    def _pull(self, queue: int) -> None:
        addresses = {} if self.route is None else dict(self.route.brokers[0].addresses)
        if not addresses:
            self._again(queue)
            return
        address = self._rng.choice(sorted(addresses.values()))
        offset = self._next[queue]
        waits_ms = self._rng.choice(_WAITS_MS)
        flags = PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION
        header = PullMessageRequestHeader(
            consumer_group=READERS,
            topic=TOPIC,
            queue_id=queue,
            queue_offset=offset,
            max_messages=16,
            sys_flag=flags | PullFlag.SUSPEND if waits_ms else flags,
            commit_offset=offset,
            suspend_timeout_ms=waits_ms,
            subscription="*",
            subscription_version=0,
        )
        request = Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())
        began_us = self._timeline.now_us
        timeout_ms = _SEND_MS + waits_ms
        self._call(
            address, request, timeout_ms, lambda answer: self._pulled(queue, answer, began_us)
        )

    def _pulled(self, queue: int, answer: Answer, began_us: int) -> None:
        if isinstance(answer, Frame):
            if answer.code == ResponseCode.SUCCESS:
                self.woken += self._timeline.now_us - began_us > _PULL_MS * 1000
                for queue_offset, number, place in records_in(answer.body):
                    self._record.read(number, topic=TOPIC, queue=queue, queue_offset=queue_offset)
                    if self._rng.random() < _FAILURES:
                        self._send_back(number, place)
            if answer.code in (ResponseCode.SUCCESS, ResponseCode.PULL_OFFSET_MOVED):
                found = PullMessageResponseHeader.from_fields(answer.ext_fields)
                self._next[queue] = found.next_offset
        self._again(queue)

    def _again(self, queue: int) -> None:
        self._timeline.after(_PULL_MS * 1000, self._pull, queue)

    def _send_back(self, number: int, place: int, tries: int = 1) -> None:
        """Have the put *number* delivered again, or as a dead letter."""
        master = self._master()
        if master is None:
            return
        level = self._rng.choice(_RETRY_LEVELS)
        header = ConsumerSendMsgBackRequestHeader(offset=place, group=READERS, delay_level=level)
        request = Frame.request(RequestCode.CONSUMER_SEND_MSG_BACK, header.to_fields())
        warnings = self._record.warnings

        def answered(answer: Answer) -> None:
            if isinstance(answer, Frame) and answer.code == ResponseCode.SUCCESS:
                if warnings == self._record.warnings:
                    self._record.sent_back(number, place=place, is_dead=level < 0)
            elif tries < _TRIES:
                self.refresh(lambda: self._send_back(number, place, tries + 1))

        self._call(master, request, _SEND_MS, answered)


class Operator(Client):
    """Creates topics and groups, one at a time, each once."""

    _count = 0
    is_waiting = False

    def change(self) -> None:
        """Create a topic or a group at the master, unless an answer is outstanding."""
        master = self._master()
        if self.is_waiting or master is None:
            return
        self._count += 1
        self.is_waiting = True
        if self._count % 2:
            self._make_topic(master, f"topic-{self._count}")
        else:
            self._make_group(master, f"group-{self._count}")

    def _make_topic(self, master: str, name: str) -> None:
        header = CreateTopicRequestHeader(
            topic=name, read_queues=1, write_queues=1, perm=PERM_READ_WRITE
        )
        request = Frame.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields())
        self._ask(master, request, topic=name)

    def _make_group(self, master: str, name: str) -> None:
        body = dumps(GroupConfig(name).members())
        request = Frame.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        self._ask(master, request, group=name)

    def _ask(self, master: str, request: Frame, *, topic: str = "", group: str = "") -> None:
        warnings = self._record.warnings

        def made(answer: Answer) -> None:
            self.is_waiting = False
            if not isinstance(answer, Frame) or answer.code != ResponseCode.SUCCESS:
                return
            # A remark means that a member of the set has not reported the change yet.
            if not answer.remark and warnings == self._record.warnings:
                self._record.made(topic=topic, group=group)

        self._call(master, request, _CHANGE_MS, made)
