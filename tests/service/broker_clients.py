"""Requests of clients to a broker, and what its answers hold."""

from __future__ import annotations

import struct
from typing import Any

from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.pull import PullFlag, PullMessageRequestHeader
from tests.reference import record as reference
from tests.support.sends import CALL_S, properties_text


def batch_body(*messages: tuple[bytes, dict[str, str]]) -> bytes:
    """Return the body of a batch of messages with these bodies and properties."""
    pieces = []
    for body, properties in messages:
        text = properties_text(properties).encode()
        size = 22 + len(body) + len(text)
        pieces.append(struct.pack(">iiiii", size, 0, 0, 7, len(body)) + body)
        pieces.append(struct.pack(">h", len(text)) + text)
    return b"".join(pieces)


def pull_request(topic: str, offset: int, **changes: Any) -> Frame:
    """Return a pull of all messages, with *changes* of header fields; it does not wait."""
    values: dict[str, Any] = {
        "consumer_group": "cg",
        "topic": topic,
        "queue_id": 0,
        "queue_offset": offset,
        "max_messages": 32,
        "sys_flag": PullFlag.SUBSCRIPTION,
        "commit_offset": 0,
        "suspend_timeout_ms": 0,
        "subscription": "*",
        "subscription_version": 0,
        "expression_type": "TAG",
        **changes,
    }
    header = PullMessageRequestHeader(**values)
    return Frame.request(RequestCode.PULL_MESSAGE, header.to_fields())


def waiting_pull(topic: str, offset: int, wait_ms: int, **changes: Any) -> Frame:
    """Return a pull that waits for messages."""
    flags = PullFlag.SUBSCRIPTION | PullFlag.SUSPEND
    return pull_request(topic, offset, suspend_timeout_ms=wait_ms, **{"sys_flag": flags, **changes})


def heartbeat(
    client_id: str, *groups: str, topic: str = "T", tags: str = "*", **changes: Any
) -> Frame:
    """Return a heartbeat of a consumer of *groups*, whose subscription has version 5."""
    subscription = SubscriptionData(topic=topic, version=5, expression=tags)
    values: dict[str, Any] = {
        "client_id": client_id,
        "consumers": tuple(
            ConsumerData(group=group, subscriptions=(subscription,)) for group in groups
        ),
        "producers": ("pg",),
        **changes,
    }
    return Frame(RequestCode.HEART_BEAT, body=HeartbeatData(**values).encode())


def records_of(body: bytes) -> list[reference.Record]:
    """Return the records of an answer to a pull, decoded by the reference codec."""
    found, at = [], 0
    while at < len(body):
        found.append(reference.decode(body, at))
        at += int.from_bytes(body[at : at + 4], "big")
    return found


async def call(client: RemotingClient, broker: Any, frame: Frame) -> Frame:
    return await client.call(broker.address, frame, timeout=CALL_S)
