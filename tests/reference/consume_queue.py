"""The consume queue: one unit of 20 bytes per message of a queue.

    at  size  field
    0   8     physical offset of the record
    8   4     record size
    12  8     tags code, deliver time, or address in the extension

The unit of queue offset n lies at byte 20 n of the run of files. Where a queue begins later than
0, units before its first one are filled with offset 0, size 0x7FFFFFFF, tags code 0, back to the
start of the file. What was never written is zero.

Source: ConsumeQueue of RocketMQ 5.3.3.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

UNIT = struct.Struct(">qiq")
FILL_SIZE = 0x7FFFFFFF


@dataclass(frozen=True, slots=True)
class Unit:
    physical_offset: int
    size: int
    tags_code: int

    def encode(self) -> bytes:
        return UNIT.pack(self.physical_offset, self.size, self.tags_code)


FILL = Unit(0, FILL_SIZE, 0)


def decode(data: bytes) -> list[Unit]:
    """Return the units in *data* up to the first that is not valid."""
    units = []
    for fields in UNIT.iter_unpack(data[: len(data) - len(data) % UNIT.size]):
        unit = Unit(*fields)
        if unit.physical_offset < 0 or unit.size <= 0:
            break
        units.append(unit)
    return units


def encode(units: Iterable[Unit]) -> bytes:
    """Return the bytes of *units*."""
    return b"".join(unit.encode() for unit in units)


def encode_files(units: Iterable[Unit], *, first: int, file_size: int) -> dict[str, bytes]:
    """Return the files, by name, of a queue whose first unit has queue offset *first*."""
    start = first * UNIT.size // file_size * file_size
    data = FILL.encode() * (first - start // UNIT.size) + encode(units)
    return {
        f"{start + at:020d}": data[at : at + file_size].ljust(file_size, b"\0")
        for at in range(0, len(data), file_size)
    }
