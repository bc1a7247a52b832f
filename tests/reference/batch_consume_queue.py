"""The batch consume queue: one unit of 46 bytes per record of a BatchCQ topic.

    at  size  field
    0   8     physical offset of the record
    8   4     record size
    12  8     tags code
    20  8     store timestamp
    28  8     queue offset of the first message
    36  2     number of messages
    38  4     compacted offset, -1
    42  4     reserved, 0

Files are named after bytes, not after queue offsets: a lookup searches field 28.

Source: BatchConsumeQueue of RocketMQ 5.3.3.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

UNIT = struct.Struct(">qiqqqhii")


@dataclass(frozen=True, slots=True)
class Unit:
    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base_offset: int
    count: int

    def encode(self) -> bytes:
        return UNIT.pack(
            self.physical_offset,
            self.size,
            self.tags_code,
            self.store_timestamp,
            self.base_offset,
            self.count,
            -1,
            0,
        )


def decode(data: bytes) -> list[Unit]:
    """Return the units in *data* up to the first that is not valid."""
    units = []
    for fields in UNIT.iter_unpack(data[: len(data) - len(data) % UNIT.size]):
        unit = Unit(*fields[:6])
        if unit.physical_offset < 0 or unit.size <= 0 or unit.base_offset < 0 or unit.count <= 0:
            break
        units.append(unit)
    return units


def encode(units: Iterable[Unit]) -> bytes:
    """Return the bytes of *units*."""
    return b"".join(unit.encode() for unit in units)


def find(units: Iterable[Unit], queue_offset: int) -> Unit | None:
    """Return the unit whose record holds the message with *queue_offset*."""
    for unit in units:
        if unit.base_offset <= queue_offset < unit.base_offset + unit.count:
            return unit
    return None
