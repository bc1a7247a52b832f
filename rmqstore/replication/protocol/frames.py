"""The frames between two replicas of a log, as types; bytes as in csrc/format/ha_frame.h.

    classic, slave to master        Report
    classic, master to slave        ClassicData
    auto-switch, slave to master    Handshake, then Ack
    auto-switch, master to slave    HandshakeReply, then Transfer

A parser is fed the bytes of one direction of one connection, in pieces of any size, and returns
the frames that became whole. Between two replicas of this library auto-switch frames carry checks:
a slave offers them in its handshake, a master that accepts answers with them, and whatever does not
fit its check is not a frame. A parser keeps the beginning of at most one frame, so the memory of a
connection is bounded by `FRAME_SIZE_MAX`.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

from rmqstore._native.core import (
    HA_FRAME_SIZE_MAX,
    HaParser,
    encode_ha_entries,
    encode_ha_head,
)
from rmqstore.epochs import EpochEntry
from rmqstore.errors import StoreError

__all__ = [
    "FRAME_SIZE_MAX",
    "Ack",
    "Body",
    "ClassicData",
    "ClassicDataParser",
    "Frame",
    "FrameError",
    "Handshake",
    "HandshakeReply",
    "MasterFrameParser",
    "Report",
    "ReportParser",
    "SlaveFrameParser",
    "Transfer",
    "encode",
    "encode_head",
    "handshake_crc",
]

FRAME_SIZE_MAX = HA_FRAME_SIZE_MAX
"""Bytes of the largest frame, head and body: what RocketMQ's slave can read."""

Body = bytes | memoryview
"""Bytes of the commit log. A view is one of immutable bytes, so it may be kept."""


@dataclass(frozen=True, slots=True)
class Report:
    """A classic slave's log ends at *offset*."""

    offset: int


@dataclass(frozen=True, slots=True)
class ClassicData:
    """Bytes of the log from *offset* on; a heartbeat when there are none."""

    offset: int
    body: Body = b""


@dataclass(frozen=True, slots=True)
class Handshake:
    """The first frame of an auto-switch slave: its identity and its options."""

    sync_from_last_file: bool
    is_learner: bool
    broker_id: int
    offers_checks: bool = False


@dataclass(frozen=True, slots=True)
class HandshakeReply:
    """The master's log ends at *end_offset*, its last epoch is *epoch* (-1 for none), *entries*
    are all of its epochs. With *handshake_crc*, that of the handshake as it was heard, this frame
    and all that follow carry checks."""

    end_offset: int
    epoch: int
    entries: tuple[EpochEntry, ...]
    handshake_crc: int | None = None


@dataclass(frozen=True, slots=True)
class Transfer:
    """Bytes of the log from *offset* on; a heartbeat, which may say -1 for unknown, when there are
    none.

    *epoch* begins at *epoch_start*. A body that ends there belongs to the epoch before.
    """

    offset: int
    epoch: int
    epoch_start: int
    confirm_offset: int
    body: Body = b""
    is_checked: bool = False


@dataclass(frozen=True, slots=True)
class Ack:
    """An auto-switch slave's log ends at *offset*. With checks, *epoch* is the last one that it has
    stored and that begins there or before, -1 for none."""

    offset: int
    epoch: int | None = None


Frame = Report | ClassicData | Handshake | HandshakeReply | Transfer | Ack
F = TypeVar("F", bound=Frame)


class FrameError(StoreError):
    """Bytes of a peer that are not a frame; the bytes after them cannot be parsed.

    *place* names stream and byte, *limit* what the bytes break, *cure* what an operator can do.
    *frames* came whole before them in the same call, *stream_offset* is the place as a number.
    """

    def __init__(
        self,
        place: str,
        limit: str,
        cure: str,
        *,
        stream_offset: int = -1,
        frames: tuple[Frame, ...] = (),
    ) -> None:
        super().__init__(place, limit, cure)
        self.place = place
        self.limit = limit
        self.cure = cure
        self.stream_offset = stream_offset
        self.frames = frames

    def __str__(self) -> str:
        return f"{self.place}: {self.limit}; {self.cure}"


_MAKERS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        "report": Report,
        "classic data": ClassicData,
        "handshake": Handshake,
        "handshake reply": HandshakeReply,
        "entry": EpochEntry,
        "transfer": Transfer,
        "ack": Ack,
    }
)


class _Parser(Generic[F]):
    _stream: ClassVar[str]

    def __init__(self, *, frame_size_max: int = FRAME_SIZE_MAX) -> None:
        self._frame_size_max = frame_size_max
        self._native = HaParser(self._stream, _MAKERS, frame_size_max=frame_size_max)

    def feed(self, data: bytes | bytearray | memoryview) -> list[F]:
        """Return the frames that *data*, the bytes that come next, makes whole.

        Raises FrameError for bytes that are not a frame, and at every call after that.
        """
        frames: list[F] = self._native.feed(data)
        if self._native.fault is None:
            return frames
        raise FrameError(
            f"stream of the {self._stream}, byte {self._native.position}",
            self._native.fault,
            "close the connection; check that the peer is a replica with the same HA protocol, and "
            "that a master's haTransferBatchSize keeps its frames within "
            f"{self._frame_size_max} bytes",
            stream_offset=self._native.position,
            frames=tuple(frames),
        )

    def release(self) -> bytes:
        """Return the bytes held of the frame that is not whole yet, and forget them.

        For a caller that hands the connection over to another reader, which begins there;
        `position` does not count what that reader reads.
        """
        held: bytes = self._native.release()
        return held

    @property
    def position(self) -> int:
        """Bytes of the stream before the first frame that is not whole yet."""
        return self._native.position

    @property
    def held_size(self) -> int:
        """Bytes kept of that frame."""
        return self._native.held_size


class ReportParser(_Parser[Report]):
    """What a classic master reads."""

    _stream = "classic slave"


class ClassicDataParser(_Parser[ClassicData]):
    """What a classic slave reads."""

    _stream = "classic master"


class SlaveFrameParser(_Parser[Handshake | Ack]):
    """What an auto-switch master reads."""

    _stream = "auto-switch slave"


class MasterFrameParser(_Parser[HandshakeReply | Transfer]):
    """What an auto-switch slave reads."""

    _stream = "auto-switch master"


def encode(frame: Frame) -> bytes:
    """Return the bytes of *frame*. Raises ArgumentError for one that its reader would refuse."""
    match frame:
        case ClassicData() | Transfer():
            return encode_head(frame, frame.body) + frame.body
        case Report():
            return encode_ha_head("report", offset=frame.offset)
        case Ack():
            return encode_ha_head(
                "ack",
                offset=frame.offset,
                epoch=frame.epoch or 0,
                is_checked=frame.epoch is not None,
            )
        case Handshake():
            return encode_ha_head(
                "handshake",
                sync_from_last_file=frame.sync_from_last_file,
                is_learner=frame.is_learner,
                broker_id=frame.broker_id,
                offers_checks=frame.offers_checks,
            )
        case HandshakeReply():
            entries = encode_ha_entries((each.epoch, each.start_offset) for each in frame.entries)
            head = encode_ha_head(
                "handshake reply",
                offset=frame.end_offset,
                epoch=frame.epoch,
                body_size=len(entries),
                handshake_crc=frame.handshake_crc,
                body_crc=zlib.crc32(entries),
                is_checked=frame.handshake_crc is not None,
            )
            return head + entries


def handshake_crc(handshake: Handshake) -> int:
    """Return what a reply with checks to *handshake* says of it."""
    return zlib.crc32(encode(handshake))


def encode_head(frame: ClassicData | Transfer, body: Body) -> bytes:
    """Return the bytes before *body*, which goes out from elsewhere.

    The body of *frame* itself is not looked at. Raises ArgumentError as `encode` does.
    """
    if isinstance(frame, ClassicData):
        return encode_ha_head("classic data", offset=frame.offset, body_size=len(body))
    return encode_ha_head(
        "transfer",
        offset=frame.offset,
        epoch=frame.epoch,
        epoch_start=frame.epoch_start,
        confirm_offset=frame.confirm_offset,
        body_size=len(body),
        body_crc=zlib.crc32(body) if frame.is_checked else None,
        is_checked=frame.is_checked,
    )
