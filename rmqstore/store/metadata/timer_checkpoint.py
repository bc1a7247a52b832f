"""config/timercheck: how far the timer of a broker has come.

    off size field
      0    8 time of the next slot that is read, in ms
      8    8 end of the part of the timer log that is on the disk
     16    8 offset in the queue of timer messages
     24    8 such an offset of the master, on a slave
     32   24 state version, time in ms and counter of the data version
     56    4 CRC-32 of the fields, where this library wrote them; RocketMQ leaves the bytes alone

The file has 4096 bytes, the rest 0. All numbers are big-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Self

from rmqstore._native.core import crc32
from rmqstore.data_version import DataVersion

__all__ = ["TimerCheckpoint", "is_marked", "marked"]

_FIELDS = struct.Struct(">7q")
_MARK = struct.Struct(">I")


def marked(body: bytes) -> bytes:
    """Return the beginning of a file whose fields this library wrote."""
    fields = body[: _FIELDS.size]
    return fields + _MARK.pack(crc32(fields))


def is_marked(content: bytes) -> bool:
    """Whether this library wrote the fields of a file last."""
    return content.startswith(marked(content)) and len(content) > _FIELDS.size


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    """The check point of a timer, as the body of GET_TIMER_CHECK_POINT holds it."""

    read_ms: int
    log_position: int
    queue_offset: int
    master_queue_offset: int
    version: DataVersion

    @classmethod
    def decode(cls, body: bytes) -> Self | None:
        """Return what a body holds, None for one that is too short."""
        if len(body) < _FIELDS.size:
            return None
        read_ms, position, offset, master, state, timestamp, counter = _FIELDS.unpack_from(body)
        version = DataVersion(counter=counter, state_version=state, timestamp_ms=timestamp)
        return cls(
            read_ms=read_ms,
            log_position=position,
            queue_offset=offset,
            master_queue_offset=master,
            version=version,
        )

    def encode(self) -> bytes:
        """Return the body."""
        return _FIELDS.pack(
            self.read_ms,
            self.log_position,
            self.queue_offset,
            self.master_queue_offset,
            self.version.state_version,
            self.version.timestamp_ms,
            self.version.counter,
        )
