"""Messages as a broker appends them: from a client's properties, or as copies of stored records."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Coroutine, Mapping
from functools import lru_cache, partial
from typing import Protocol, cast

from rmqstore._native.core import Receipt
from rmqstore.broker.operations.core import Core
from rmqstore.broker.operations.message_rules import CRC, illegal, ordinary_flag
from rmqstore.errors import PutError
from rmqstore.message import Durability, SysFlag
from rmqstore.net.addresses import Address
from rmqstore.store.broker_view import BrokerView

__all__ = ["StoredMessage", "appended", "copied", "packed_host", "property_text", "queue_named"]

_PORT = struct.Struct(">I")
_QUEUES_MAX = 65_536
"""Queues of a topic in a store of this library."""


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
    committed: int | None = None,
) -> Callable[[], Receipt]:
    """Return the call that appends a copy of *record* to a queue, with *properties*, and returns
    its receipt. *committed*: the copy is the committed message of the half message at this physical
    offset."""
    properties.pop(CRC, None)
    text = _text(properties).replace("\0", "")
    more, flag = {}, ordinary_flag(record.sys_flag)
    if committed is not None:
        more, flag = {"prepared_transaction_offset": committed}, flag | SysFlag.TRANSACTION_COMMIT
    return partial(
        view.put,
        topic,
        record.body,
        # As the record was decoded: bytes that are no UTF-8 stay what they are.
        text.encode("utf-8", "surrogateescape"),
        queue=queue,
        flag=record.flag,
        sys_flag=flag,
        born_timestamp=record.born_timestamp,
        born_host=packed_host(record.born_host),
        reconsume_times=reconsume_times,
        **more,
    )


async def appended(core: Core, put: Callable[[], Receipt]) -> Receipt:
    """Append a record of the broker's own, without waiting for disk and replicas; return its
    receipt.

    A record that is in the log is no failure, whatever a fail-over makes of it: it is not to be
    put again. Raises as *put*.
    """
    try:
        found = core.store.append(put, Durability.MEMORY)
        receipt = await found if isinstance(found, Coroutine) else found
    except PutError as error:
        if error.receipt is None:
            raise
        receipt = cast("Receipt", error.receipt)
    core.traffic.stored(receipt.topic, 1, receipt.size)
    return receipt


def queue_named(text: str | None) -> int:
    """Return the queue that a property names, 0 where it names none."""
    number = int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
    return number if number < _QUEUES_MAX else 0


@lru_cache(maxsize=4096)
def packed_host(address: Address) -> bytes:
    """Return an address as a record holds it: 4 or 16 bytes, and the port as 4 bytes."""
    return ipaddress.ip_address(address[0]).packed + _PORT.pack(address[1])
