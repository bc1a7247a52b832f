"""Messages as a broker appends them: from a client's properties, or as copies of stored records."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Protocol

from rmqstore._native.core import Receipt
from rmqstore.broker.operations.message_rules import CRC, illegal, ordinary_flag
from rmqstore.net.addresses import Address
from rmqstore.store.broker_view import BrokerView

__all__ = ["StoredMessage", "copied", "packed_host", "property_text"]

_PORT = struct.Struct(">I")


class StoredMessage(Protocol):
    """The part of a `Record` that a copy has."""

    @property
    def body(self) -> bytes:
        """The body as stored."""

    @property
    def flag(self) -> int:
        """The application's own bits."""

    @property
    def sys_flag(self) -> int:
        """`SysFlag` bits."""

    @property
    def born_timestamp(self) -> int:
        """When the producer made the message."""

    @property
    def born_host(self) -> Address:
        """The producer."""


def property_text(properties: Mapping[str, str]) -> bytes:
    """Return the text of a client's properties. Raises RequestRefused (MESSAGE_ILLEGAL)."""
    text = _text(properties)
    if "\0" in text:
        raise illegal("properties hold a 0 byte, which RocketMQ's files cannot keep apart")
    return text.encode("utf-8", "replace")


def _text(properties: Mapping[str, str]) -> str:
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def copied(
    view: BrokerView,
    record: StoredMessage,
    topic: str,
    queue: int,
    properties: dict[str, str],
    *,
    reconsume_times: int,
) -> Callable[[], Receipt]:
    """Return the call that appends a copy of *record* to a queue, with *properties*, and returns
    its receipt."""
    properties.pop(CRC, None)
    text = _text(properties).replace("\0", "")
    return partial(
        view.put,
        topic,
        record.body,
        # As the record was decoded: bytes that are no UTF-8 stay what they are.
        text.encode("utf-8", "surrogateescape"),
        queue=queue,
        flag=record.flag,
        sys_flag=ordinary_flag(record.sys_flag),
        born_timestamp=record.born_timestamp,
        born_host=packed_host(record.born_host),
        reconsume_times=reconsume_times,
    )


@lru_cache(maxsize=4096)
def packed_host(address: Address) -> bytes:
    """Return an address as a record holds it: 4 or 16 bytes, and the port as 4 bytes."""
    return ipaddress.ip_address(address[0]).packed + _PORT.pack(address[1])
