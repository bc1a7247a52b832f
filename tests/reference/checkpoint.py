"""The file `checkpoint`: 4096 bytes, zero behind the fields.

    at  size  field
    0   8     physic_timestamp: store timestamp up to which the log is flushed
    8   8     logics_timestamp: the same of the queues; in 5.3 of their building, not flushing
    16  8     index_timestamp: last timestamp of the last full index file
    24  8     master_flushed_offset
    32  8     confirm_offset
    40  8     logics_physical_offset: start of the last record with flushed units; 0 in 5.3
    48  8     flushed_offset: records that end at or below it are durable; of rmqstore alone
    56  4     CRC-32 of bytes 0 to 55; where it is another, flushed_offset is not told

Source: StoreCheckpoint of RocketMQ 5.3.3 and 5.5.0.
"""

import struct
import zlib
from dataclasses import astuple, dataclass

SIZE = 4096
_FIELDS = struct.Struct(">6q")
_FLUSHED = struct.Struct(">q")
_SUM = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    physic_timestamp: int = 0
    logics_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    logics_physical_offset: int = 0
    flushed_offset: int = -1

    def encode(self) -> bytes:
        *fields, flushed = astuple(self)
        data = _FIELDS.pack(*fields)
        if flushed >= 0:
            data += _FLUSHED.pack(flushed)
            data += _SUM.pack(zlib.crc32(data))
        return data.ljust(SIZE, b"\0")

    @property
    def recovery_timestamp(self) -> int:
        """5.3: recovery after a crash begins at or before this store timestamp."""
        return max(min(self.physic_timestamp, self.logics_timestamp) - 3000, 0)


def decode(data: bytes) -> Checkpoint:
    """Return the fields of a checkpoint file of either release."""
    physic, logics, index, master_flushed, confirm, logics_physical = _FIELDS.unpack_from(data)
    (flushed,) = _FLUSHED.unpack_from(data, 48)
    (crc,) = _SUM.unpack_from(data, 56)
    return Checkpoint(
        physic_timestamp=physic,
        logics_timestamp=logics,
        index_timestamp=index,
        master_flushed_offset=master_flushed,
        confirm_offset=confirm,
        logics_physical_offset=logics_physical,
        flushed_offset=flushed if crc == zlib.crc32(data[:56]) else -1,
    )
