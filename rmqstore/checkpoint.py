"""The checkpoint file of a store, read as it is."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Any, Self

__all__ = ["CHECKPOINT", "CHECKPOINT_BYTES", "CHECKPOINT_FIELDS", "CHECKPOINT_MARK", "Checkpoint"]

CHECKPOINT = "checkpoint"
"""The name of the file, under the root."""

CHECKPOINT_BYTES = 60
"""So many bytes of the file hold something."""

CHECKPOINT_FIELDS = struct.Struct(">6q")
"""RocketMQ's fields; release 5.3 does not have the last one."""
CHECKPOINT_MARK = struct.Struct(">qI")
"""What rmqstore adds: the flushed offset, and a CRC of the fields and of it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the checkpoint says; times are store timestamps in ms, offsets are physical ones."""

    physic_ms: int
    """Of the last record that was flushed."""

    logics_ms: int
    index_ms: int
    master_flushed_offset: int
    confirm_offset: int
    logics_offset: int
    """Up to where the queues are on the device; 0 in a store of RocketMQ 5.3."""

    flushed_offset: int | None
    """Up to where the log is on the device; None where rmqstore did not write the file last, or
    closed the store."""

    @classmethod
    def parse(cls, data: bytes | None) -> Self | None:
        """Return what the first bytes of the file say; None when they are too few."""
        if data is None or len(data) < CHECKPOINT_FIELDS.size:
            return None
        flushed: int | None = None
        if len(data) >= CHECKPOINT_FIELDS.size + CHECKPOINT_MARK.size:
            offset, crc = CHECKPOINT_MARK.unpack_from(data, CHECKPOINT_FIELDS.size)
            if offset >= 0 and crc == zlib.crc32(data[: CHECKPOINT_FIELDS.size + 8]):
                flushed = offset
        physic_ms, logics_ms, index_ms, master_flushed, confirm, logics = (
            CHECKPOINT_FIELDS.unpack_from(data)
        )
        return cls(physic_ms, logics_ms, index_ms, master_flushed, confirm, logics, flushed)

    def as_json(self) -> dict[str, Any]:
        """Return the fields by RocketMQ's names, for `--json`."""
        return {
            "physicMsgTimestamp": self.physic_ms,
            "logicsMsgTimestamp": self.logics_ms,
            "indexMsgTimestamp": self.index_ms,
            "masterFlushedOffset": self.master_flushed_offset,
            "confirmPhyOffset": self.confirm_offset,
            "logicsPhysicalOffset": self.logics_offset,
            "flushedOffset": self.flushed_offset,
        }
