"""The extension of a consume queue: what does not fit into 20 bytes.

    at  size  field
    0   2     unit size: 20 + bitmap size
    2   8     tags code
    10  8     store timestamp
    18  2     bitmap size
    20  n     filter bitmap

The consume queue stores an address instead of the tags code: the offset of the unit here plus
-2^63. Every value of -2147483649 or less is one. A unit goes into a file if its size is at most
the bytes left minus 4; else an int16 -1 ends the file.

Source: ConsumeQueueExt of RocketMQ 5.3.3.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

HEAD = struct.Struct(">hqqh")
UNIT_SIZE_MAX = 0x7FFF
END_RESERVE = 4
END = b"\xff\xff"

ADDRESS_BASE = -(1 << 63)
ADDRESS_MAX = -(1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Unit:
    tags_code: int
    store_timestamp: int
    bitmap: bytes

    def encode(self) -> bytes:
        size = HEAD.size + len(self.bitmap)
        return HEAD.pack(size, self.tags_code, self.store_timestamp, len(self.bitmap)) + self.bitmap


def is_address(tags_code: int) -> bool:
    """Tell whether the field of a consume queue unit leads into the extension."""
    return tags_code <= ADDRESS_MAX


def decode_at(data: bytes, address: int) -> Unit:
    """Return the unit at *address*; *data* is the run of files from offset 0."""
    at = address - ADDRESS_BASE
    size, tags_code, store_timestamp, bitmap_size = HEAD.unpack_from(data, at)
    if size != HEAD.size + bitmap_size or at + size > len(data):
        raise ValueError(f"extension unit at {at}: size {size}, bitmap of {bitmap_size}")
    return Unit(tags_code, store_timestamp, data[at + HEAD.size : at + size])


def decode(data: bytes, *, file_size: int) -> list[tuple[int, Unit]]:
    """Return address and unit of everything in *data*, the run of files from offset 0."""
    units = []
    for start in range(0, len(data), file_size):
        at = start
        while start + file_size - at >= HEAD.size:
            (size,) = struct.unpack_from(">h", data, at)
            if size <= 0:
                break
            units.append((ADDRESS_BASE + at, decode_at(data, ADDRESS_BASE + at)))
            at += size
    return units


def encode(units: Iterable[Unit], *, file_size: int) -> tuple[list[int], bytes]:
    """Return the addresses of *units* and the run of files that holds them."""
    addresses = []
    data = bytearray()
    for unit in units:
        encoded = unit.encode()
        if len(encoded) > file_size - len(data) % file_size - END_RESERVE:
            data += END
            data += bytes(-len(data) % file_size)
        addresses.append(ADDRESS_BASE + len(data))
        data += encoded
    return addresses, bytes(data + bytes(-len(data) % file_size))
