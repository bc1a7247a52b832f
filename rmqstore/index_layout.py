"""The layout of index files. `docs/formats.md` has all fields; integers are big-endian.

C has the same layout in `csrc/index/index_file.h`.
"""

from __future__ import annotations

import struct

__all__ = [
    "INDEX_ENTRY",
    "INDEX_HEADER",
    "INDEX_SLOT",
    "entry_at",
    "slot_at",
]

INDEX_HEADER = struct.Struct(">qqqqii")
"""Store timestamps of the first and last record, their physical offsets, used slots, and the number
of the next entry. Entry 0 is never used."""

INDEX_SLOT = struct.Struct(">i")
"""The newest entry of the slot, 0 when empty."""

INDEX_ENTRY = struct.Struct(">iqii")
"""Hash of the key, physical offset, seconds since the header's first timestamp, and the previous
entry of the slot."""


def slot_at(number: int) -> int:
    """Return the position of a slot in the file."""
    return INDEX_HEADER.size + INDEX_SLOT.size * number


def entry_at(number: int, *, slot_count: int) -> int:
    """Return the position of an entry in the file; for the number of entries the file's size."""
    return slot_at(slot_count) + INDEX_ENTRY.size * number
