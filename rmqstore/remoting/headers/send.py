"""The header of SEND_MESSAGE_V2 (310) and SEND_BATCH_MESSAGE (320)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string

__all__ = ["SendMessageRequestHeaderV2"]


@header
class SendMessageRequestHeaderV2(Header):
    """A message to store, without its body. The field names have one letter in Java too."""

    producer_group: str = string("a")
    topic: str = string("b")
    default_topic: str = string("c")
    default_topic_queues: int = int32("d")
    queue_id: int = int32("e")
    """-1: the broker chooses."""
    sys_flag: int = int32("f")
    born_timestamp_ms: int = int64("g")
    flag: int = int32("h")
    properties: str | None = string("i", default=None)
    """Name, U+0001, value, U+0002 for each property."""
    reconsume_times: int | None = int32("j", default=None)
    unit_mode: bool | None = boolean("k", default=None)
    max_reconsume_times: int | None = int32("l", default=None)
    is_batch: bool | None = boolean("m", default=None)
    broker_name: str | None = string("n", default=None)
