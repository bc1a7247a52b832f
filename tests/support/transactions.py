"""Transactional producers of a broker, as Java has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.message import parse_message_id
from rmqstore.remoting.bodies.clients import HeartbeatData
from rmqstore.remoting.bodies.messages import StoredMessage, decode_messages
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from tests.support.sends import CALL_S, send_request
from tests.support.waiting import until

COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
ASKING: dict[str, Any] = {
    "transaction_timeout_ms": 50,
    "transaction_check_interval_ms": 50,
    "transaction_checks_max": 3,
}
"""Settings of a broker that asks soon."""


class Producer:
    """A transactional producer of the group pg, which answers questions as *decide* says; None for
    no answer."""

    def __init__(self, *decisions: int | None) -> None:
        self.questions: list[tuple[CheckTransactionStateRequestHeader, StoredMessage]] = []
        self._decisions = list(decisions)
        handlers: dict[int, Any] = {RequestCode.CHECK_TRANSACTION_STATE: self._asked}
        self.client = RemotingClient(handlers=handlers)

    async def _asked(self, connection: RemotingConnection, request: Frame) -> None:
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        [message] = decode_messages(request.body)
        self.questions.append((header, message))
        decision = self._decisions.pop(0) if self._decisions else None
        if decision is not None:
            frame = end(header.queue_offset, header.physical_offset, decision)
            connection.send(frame.with_opaque(0, is_one_way=True))


def end(queue_offset: int, physical_offset: int, decision: int, **changes: Any) -> Frame:
    """Return the end of a transaction, with *changes* of header fields."""
    values: dict[str, Any] = {
        "producer_group": "pg",
        "queue_offset": queue_offset,
        "physical_offset": physical_offset,
        "decision": decision,
        **changes,
    }
    fields = EndTransactionRequestHeader(**values).to_fields()
    return Frame.request(RequestCode.END_TRANSACTION, fields)


async def half(client: RemotingClient, broker: Broker, **changes: Any) -> tuple[int, int]:
    """Return queue offset and physical offset of a half message to the topic T."""
    properties = {"TRAN_MSG": "true", "PGROUP": "pg", **changes.pop("properties", {})}
    request = {"topic": "T", "body": b"x", "sys_flag": 4, **changes}
    answer = await client.call(
        broker.address, send_request(properties=properties, **request), timeout=CALL_S
    )
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    place = parse_message_id(answer.ext_fields["msgId"])
    return int(answer.ext_fields["queueOffset"]), place.physical_offset


async def ended(
    client: RemotingClient, broker: Broker, place: Sequence[int], decision: int, **changes: Any
) -> tuple[int, str]:
    """Return code and remark of the answer to the end of a transaction."""
    queue_offset, physical_offset = place
    request = end(queue_offset, physical_offset, decision, **changes)
    answer = await client.call(broker.address, request, timeout=CALL_S)
    return answer.code, answer.remark or ""


async def commit(client: RemotingClient, broker: Broker, place: Sequence[int]) -> None:
    assert await ended(client, broker, place, COMMIT) == (ResponseCode.SUCCESS, "")


async def beat(client: RemotingClient, address: Any) -> None:
    """Have the broker at *address* know a producer of the group pg."""
    body = HeartbeatData(client_id="c1", producers=("pg",)).encode()
    answer = await client.call(address, Frame(RequestCode.HEART_BEAT, body=body), timeout=CALL_S)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def until_rounds(broker: Broker, count: int) -> None:
    """Return after *count* more rounds of questions."""
    end = _rounds(broker) + count
    await until(lambda: _rounds(broker) >= end, f"{count} rounds of questions")


def _rounds(broker: Broker) -> int:
    found = {each.name: each for each in broker.open.families()}
    [(_, count)] = found["rmqstore_transaction_rounds_total"].samples
    assert isinstance(count, int)
    return count
