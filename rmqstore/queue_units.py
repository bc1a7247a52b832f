"""The layout of the units of consume queues. `docs/formats.md` has all fields; integers are
big-endian.

C has the same layout in `csrc/index/consume_queue.h`, `batch_consume_queue.h` and
`consume_queue_ext.h`.
"""

from __future__ import annotations

import struct

__all__ = [
    "BATCH_UNIT",
    "BATCH_UNIT_BYTES",
    "EXTENSION_ADDRESS_MAX",
    "EXTENSION_BASE",
    "EXTENSION_END_BYTES",
    "EXTENSION_UNIT",
    "FILL_SIZE",
    "FILL_UNIT",
    "UNIT",
    "UNIT_BYTES",
]

UNIT = struct.Struct(">qiq")
"""One message: physical offset, size of the record, tags code. The number of a unit is the queue
offset of its message."""
UNIT_BYTES = UNIT.size

BATCH_UNIT = struct.Struct(">qiqqqhii")
"""One record of a batch queue: physical offset, size, tags code, store timestamp, queue offset of
the first message, number of messages, compacted offset, reserved."""
BATCH_UNIT_BYTES = BATCH_UNIT.size

EXTENSION_UNIT = struct.Struct(">hqqh")
"""The fixed part of an extension unit: size of the whole unit, tags code, store timestamp, size of
the bit map that follows."""

EXTENSION_END_BYTES = 4
"""The bytes at the end of an extension file that hold no unit."""
EXTENSION_BASE = -(1 << 63)
"""A unit that has an extension holds this number plus the position in the extension files, in
place of the tags code."""
EXTENSION_ADDRESS_MAX = -(2**31) - 1
"""Numbers up to this one in place of the tags code are positions in the extension."""

FILL_SIZE = 0x7FFFFFFF
"""The size in a unit, with a physical offset of 0, that fills the place of a message which is not
in the queue."""
FILL_UNIT = UNIT.pack(0, FILL_SIZE, 0)
