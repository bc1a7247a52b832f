"""Timer log, timer wheel and timer check point, written to be read.

unit of the log, 52 bytes, big-endian        slot of the wheel, 32 bytes
  0  int32  52                                 0  int64  time / precision
  4  int64  position of the slot's last unit   8  int64  position of the first unit
 12  int32  1 | 2 rolled | 4 deletion         16  int64  position of the last unit
 16  int64  time of the wheel                 24  int32  messages less deletions
 24  int32  time of the slot, less that       28  int32  0
 28  int64  physical offset of the message
 36  int32  its size                          slot number: time / precision, modulo 1209600
 40  int32  Java's hash of its real topic
 44  int64  0                                 a blank: int32 rest, int64 0, int32 0xcbd43194
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["SLOTS", "Unit", "decode_log", "encode_log", "wheel_of"]

SLOTS = 2 * 604_800
_UNIT = struct.Struct(">iqiqiqiiq")
_SLOT = struct.Struct(">qqqii")
_BLANK = struct.Struct(">iqI")
_BLANK_MAGIC = 0xCBD43194


@dataclass(frozen=True)
class Unit:
    """A message that waits."""

    previous: int
    magic: int
    write_ms: int
    delay_ms: int
    physical_offset: int
    size: int
    topic_hash: int


def decode_log(data: bytes, file_size: int) -> dict[int, Unit]:
    """Return the units by position of files that follow each other from position 0."""
    units = {}
    position = 0
    while position + 16 <= len(data):
        rest = file_size - position % file_size
        size, previous, magic = _BLANK.unpack_from(data, position)
        if size == rest and magic == _BLANK_MAGIC:
            position += rest
            continue
        if size != _UNIT.size or rest < _UNIT.size + _BLANK.size:
            break
        _, previous, magic, write_ms, delay_ms, offset, length, topic, _ = _UNIT.unpack_from(
            data, position
        )
        units[position] = Unit(previous, magic, write_ms, delay_ms, offset, length, topic)
        position += _UNIT.size
    return units


def encode_log(units: Iterable[Unit], file_size: int) -> bytes:
    """Return the files of a log, one after the other, the last one filled with zeros."""
    data = bytearray()
    for unit in units:
        rest = file_size - len(data) % file_size
        if rest < _UNIT.size + _BLANK.size:
            data += _BLANK.pack(rest, 0, _BLANK_MAGIC).ljust(rest, b"\0")
        data += _UNIT.pack(
            _UNIT.size,
            unit.previous,
            unit.magic,
            unit.write_ms,
            unit.delay_ms,
            unit.physical_offset,
            unit.size,
            unit.topic_hash,
            0,
        )
    return bytes(data.ljust(-(-len(data) // file_size) * file_size, b"\0"))


def wheel_of(units: dict[int, Unit], precision_ms: int) -> bytes:
    """Return the wheel of a log."""
    slots: dict[int, tuple[int, int, int, int]] = {}
    for position, unit in sorted(units.items()):
        time = (unit.write_ms + unit.delay_ms) // precision_ms
        known, first, _, count = slots.get(time % SLOTS, (-1, 0, 0, 0))
        if known != time:
            first, count = position, 0
        slots[time % SLOTS] = (time, first, position, count + (-1 if unit.magic & 4 else 1))
    wheel = bytearray(SLOTS * _SLOT.size)
    for number, (time, first, last, count) in slots.items():
        _SLOT.pack_into(wheel, number * _SLOT.size, time, first, last, count, 0)
    return bytes(wheel)
