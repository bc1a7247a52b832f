"""A consumer that pops from a broker, as Java's does it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.broker.pop_records import CHECK_POINT_TAG, PopAck, PopCheckPoint
from rmqstore.remoting.bodies.messages import StoredMessage, decode_messages
from rmqstore.remoting.bodies.pop import BatchAckBody, QueueAcks
from rmqstore.remoting.bodies.receipts import ReceiptHandle, popped_queues
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rmqstore.store.metadata import TopicConfig
from rmqstore.topic_names import RetryKind, pop_retry_topic
from tests.service.broker_clients import call
from tests.support.sends import send_request
from tests.support.waiting import until

WHEEL = "rmq_sys_wheel_timer"
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"


@dataclass(frozen=True)
class PoppedMessage:
    """A message and its receipt handle."""

    message: StoredMessage
    handle: str

    @property
    def parsed(self) -> ReceiptHandle:
        return ReceiptHandle.parse(self.handle)

    @property
    def body(self) -> bytes:
        return self.message.body


def popped(answer: Frame, broker_name: str = "broker-a") -> list[PoppedMessage]:
    """Return the messages of an answer; a handle is the property POP_CK, or made of the texts."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    header = PopMessageResponseHeader.from_fields(answer.ext_fields)
    starts = {(kind, queue): start for kind, queue, (start,) in popped_queues(header.starts)}
    found = []
    for message in decode_messages(answer.body):
        handle = message.properties.get("POP_CK")
        if handle is None:
            made = ReceiptHandle(
                start_offset=starts[RetryKind.NONE, message.queue_id],
                pop_time_ms=header.pop_time_ms,
                invisible_ms=header.invisible_ms,
                revive_queue=header.revive_queue,
                kind=RetryKind.NONE,
                broker_name=broker_name,
                queue=message.queue_id,
                offset=message.queue_offset,
            )
            handle = str(made)
        found.append(PoppedMessage(message, handle))
    return found


class Popper:
    """One consumer of a group."""

    def __init__(
        self, client: RemotingClient, broker: Any, *, group: str = "pg", topic: str = "T"
    ) -> None:
        self.client = client
        self.broker = broker
        self.group = group
        self.topic = topic

    def request(self, **changes: Any) -> Frame:
        """Return a pop that does not wait, with *changes* of header fields."""
        values: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": self.topic,
            "queue_id": -1,
            "max_messages": 32,
            "invisible_ms": 60_000,
            "poll_ms": 0,
            "init_mode": 0,
            **changes,
        }
        header = PopMessageRequestHeader(**values)
        return Frame.request(RequestCode.POP_MESSAGE, header.to_fields())

    async def ask(self, **changes: Any) -> Frame:
        return await call(self.client, self.broker, self.request(**changes))

    async def pop(self, **changes: Any) -> list[PoppedMessage]:
        """Return the messages of a pop, none where there is none."""
        answer = await self.ask(**changes)
        if answer.code == ResponseCode.POLLING_TIMEOUT:
            return []
        return popped(answer)

    def real_topic(self, handle: str) -> str:
        return pop_retry_topic(self.topic, self.group, ReceiptHandle.parse(handle).kind)

    def _fields(self, handle: str, changes: dict[str, Any]) -> dict[str, Any]:
        parsed = ReceiptHandle.parse(handle)
        return {
            "consumer_group": self.group,
            "topic": self.real_topic(handle),
            "queue_id": parsed.queue,
            "offset": parsed.offset,
            "extra_info": handle,
            **changes,
        }

    async def ack(self, handle: str, **changes: Any) -> Frame:
        header = AckMessageRequestHeader(**self._fields(handle, changes))
        frame = Frame.request(RequestCode.ACK_MESSAGE, header.to_fields())
        return await call(self.client, self.broker, frame)

    async def change(self, handle: str, invisible_ms: int, **changes: Any) -> Frame:
        fields = self._fields(handle, {"invisible_ms": invisible_ms, **changes})
        header = ChangeInvisibleTimeRequestHeader(**fields)
        frame = Frame.request(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header.to_fields())
        return await call(self.client, self.broker, frame)

    async def ack_all(self, messages: Iterable[PoppedMessage], **changes: Any) -> Frame:
        """Acknowledge messages of one queue and one pop."""
        handles = [each.parsed for each in messages]
        first = handles[0]
        values: dict[str, Any] = {
            "group": self.group,
            "topic": self.topic,
            "kind": first.kind,
            "queue": first.queue,
            "start_offset": first.start_offset,
            "offsets": tuple(each.offset for each in handles),
            "revive_queue": first.revive_queue,
            "pop_time_ms": first.pop_time_ms,
            "invisible_ms": first.invisible_ms,
            **changes,
        }
        body = BatchAckBody(broker_name=first.broker_name, acks=(QueueAcks(**values),)).encode()
        return await call(self.client, self.broker, Frame(RequestCode.BATCH_ACK_MESSAGE, body=body))


def changed_handle(message: PoppedMessage, answer: Frame) -> str:
    """Return the receipt handle after a change of the invisible time."""
    header = ChangeInvisibleTimeResponseHeader.from_fields(answer.ext_fields)
    offset = message.parsed.offset
    assert offset is not None
    return str(
        ReceiptHandle(
            start_offset=offset,
            pop_time_ms=header.pop_time_ms,
            invisible_ms=header.invisible_ms,
            revive_queue=header.revive_queue,
            kind=message.parsed.kind,
            broker_name=message.parsed.broker_name,
            queue=message.parsed.queue,
            offset=offset,
        )
    )


async def filled(
    broker: Broker,
    client: RemotingClient,
    *bodies: bytes,
    topic: str = "T",
    queues: int = 1,
    queue: int = 0,
    **properties: str,
) -> None:
    """Make a topic, and put messages with these bodies into one of its queues."""
    if broker.metadata.topic(topic) is None:
        await broker.metadata.change_topic(TopicConfig(topic, queues, queues))
    end = len(broker.store.store.queue(topic, queue)) + len(bodies)
    for body in bodies:
        request = send_request(topic, body, properties, queue_id=queue)
        answer = await call(client, broker, request)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
    await until(lambda: len(broker.store.store.queue(topic, queue)) == end, "all dispatched")


def records_of(broker: Broker) -> list[PopCheckPoint | PopAck]:
    """Return the records of POP that wait in the wheel, or are due, in their order."""
    return [
        (PopCheckPoint if each.tags == CHECK_POINT_TAG else PopAck).decode(each.body)
        for each in broker.store.store.scan_log()
        if each.topic in (WHEEL, REVIVE) and "TIMER_ORIGIN" not in each.properties
    ]
