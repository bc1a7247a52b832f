"""The body of SEND_BATCH_MESSAGE (320): consecutive messages.

    int32 total size, int32 magic, int32 CRC, int32 flag, int32 n, n bytes body, int16 m, m bytes
    properties

Magic and CRC are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from rmqstore.errors import RemotingFrameError

__all__ = ["batch_properties"]

_HEAD = struct.Struct(">iiiii")
_SHORT = struct.Struct(">h")
_FIXED_SIZE = _HEAD.size + _SHORT.size


def batch_properties(body: bytes) -> Iterator[bytes]:
    """Iterate over the property texts of the messages of a batch.

    Raises RemotingFrameError where a length contradicts another length or exceeds the body.
    """
    at, size = 0, len(body)
    while at < size:
        if size - at < _FIXED_SIZE:
            raise _malformed(
                at, f"{size - at} bytes are left, a message has at least {_FIXED_SIZE}"
            )
        total, _, _, _, body_size = _HEAD.unpack_from(body, at)
        if not _FIXED_SIZE <= total <= size - at:
            raise _malformed(at, f"a message announces {total} bytes, {size - at} are left")
        if not 0 <= body_size <= total - _FIXED_SIZE:
            raise _malformed(at, f"a message of {total} bytes announces a body of {body_size}")
        properties_at = at + _FIXED_SIZE + body_size
        (properties_size,) = _SHORT.unpack_from(body, properties_at - _SHORT.size)
        if properties_size != total - _FIXED_SIZE - body_size:
            raise _malformed(
                at,
                f"properties announce {properties_size} bytes, {total - _FIXED_SIZE - body_size}"
                " are left of the message",
            )
        yield body[properties_at : properties_at + properties_size]
        at += total


def _malformed(at: int, reason: str) -> RemotingFrameError:
    return RemotingFrameError(f"the batch is malformed at byte {at}: {reason}")
