"""Sends to a broker, as Java producers make them."""

from __future__ import annotations

from typing import Any

from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import SendMessageRequestHeader, SendMessageRequestHeaderV2

CALL_S = 60.0


def properties_text(properties: dict[str, str]) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in properties.items())


def send_request(
    topic: str,
    body: bytes,
    properties: dict[str, str] | None = None,
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    **changes: Any,
) -> Frame:
    """Return a send as a Java producer makes it, with *changes* of header fields."""
    values: dict[str, Any] = {
        "producer_group": "pg",
        "topic": topic,
        "default_topic": "TBW102",
        "default_topic_queues": 4,
        "queue_id": 0,
        "sys_flag": 0,
        "born_timestamp_ms": 1_700_000_000_000,
        "flag": 0,
        "properties": properties_text(properties or {}),
        "reconsume_times": 0,
        **changes,
    }
    kind = (
        SendMessageRequestHeader
        if code == RequestCode.SEND_MESSAGE
        else (SendMessageRequestHeaderV2)
    )
    return Frame.request(code, kind(**values).to_fields(), body)
