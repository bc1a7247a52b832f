"""Several messages in one put: the body a client sends, and what the log then holds.

    size  field, per message
    4     total size
    4     magic, 0
    4     CRC, 0
    4     flag
    4+n   body size and body
    2+n   property size and property text

A plain batch becomes one record per message: queue offsets and physical offsets follow each
other, the other fields are those of the batch. 5.3 appends the properties of the batch to those
of each message, with 0x02 between them where both are there and the first lacks it; 5.5 does not.
An inner batch is one record that keeps these bytes as its body.

Source: MessageDecoder.encodeMessages and MessageExtEncoder of RocketMQ 5.3.3 and 5.5.0.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.reference import record
from tests.reference.record import Record

_HEAD = struct.Struct(">iiiii")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    flag: int
    body: bytes
    property_bytes: bytes


def encode(messages: Iterable[Message]) -> bytes:
    """Return the body that carries *messages*."""
    return b"".join(
        _HEAD.pack(
            _HEAD.size + len(message.body) + 2 + len(message.property_bytes),
            0,
            0,
            message.flag,
            len(message.body),
        )
        + message.body
        + struct.pack(">h", len(message.property_bytes))
        + message.property_bytes
        for message in messages
    )


def decode(data: bytes) -> list[Message]:
    """Return the messages in a batch body; ValueError where lengths do not fit."""
    messages = []
    at = 0

    while at < len(data):
        if len(data) - at < _HEAD.size + 2:
            raise ValueError(f"the batch ends inside the message at {at}")

        total_size, _, _, flag, body_size = _HEAD.unpack_from(data, at)
        body_at = at + _HEAD.size
        if not 0 <= body_size <= len(data) - body_at - 2:
            raise ValueError(f"body size {body_size} at {at}")

        (property_size,) = struct.unpack_from(">h", data, body_at + body_size)
        property_at = body_at + body_size + 2
        end = property_at + property_size
        if not property_at <= end <= len(data) or end - at != total_size:
            raise ValueError(f"total size {total_size} at {at}")

        messages.append(
            Message(
                flag=flag,
                body=data[body_at : body_at + body_size],
                property_bytes=data[property_at:end],
            )
        )
        at = end

    return messages


def join_properties(own: bytes, *, batch: bytes) -> bytes:
    """Return the property text that 5.3 stores for a message of a batch that has some itself."""
    separator = b"\x02" if own and batch and not own.endswith(b"\x02") else b""
    return own + separator + batch


def records(
    head: Record, messages: Iterable[Message], *, property_crc: bool, append_properties: bool
) -> list[bytes]:
    """Return the records that a plain batch puts into the log.

    *head* gives the fields of the batch: its properties, and queue and physical offset of the first
    message. *append_properties* is true for 5.3.
    """
    written: list[bytes] = []
    for index, message in enumerate(messages):
        own = message.property_bytes
        member = replace(
            head,
            flag=message.flag,
            body=message.body,
            queue_offset=head.queue_offset + index,
            physical_offset=head.physical_offset + sum(len(data) for data in written),
            prepared_transaction_offset=0,
            property_bytes=(
                join_properties(own, batch=head.property_bytes) if append_properties else own
            ),
        )
        written.append(record.encode_put(member, property_crc=property_crc, in_batch=True))
    return written
