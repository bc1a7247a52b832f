"""Frames of both replication protocols; the layouts are those of csrc/ha_frame.h.

A frame is a tuple: its kind, then its fields.

    ("report", offset)
    ("classic data", offset, body)
    ("handshake", sync from last file, is learner, broker id)
    ("handshake reply", end offset, epoch, ((epoch, start offset), ...))
    ("transfer", offset, epoch, epoch start, confirm offset, body)
    ("ack", offset)

Source: DefaultHAConnection, DefaultHAClient, AutoSwitchHAConnection, AutoSwitchHAClient of
RocketMQ 5.3.3.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

Frame = tuple[Any, ...]

HANDSHAKE, TRANSFER = 1, 2
FRAME_SIZE_MAX = 4 << 20
STREAMS = ("classic slave", "classic master", "auto-switch slave", "auto-switch master")
HEADS = {
    "report": struct.Struct(">q"),
    "classic data": struct.Struct(">qi"),
    "handshake": struct.Struct(">ihhq"),
    "handshake reply": struct.Struct(">iiqi"),
    "transfer": struct.Struct(">iiqiqq"),
    "ack": struct.Struct(">iq"),
}
_ENTRY = struct.Struct(">iq")
_KINDS = {
    ("auto-switch slave", HANDSHAKE): "handshake",
    ("auto-switch slave", TRANSFER): "ack",
    ("auto-switch master", HANDSHAKE): "handshake reply",
    ("auto-switch master", TRANSFER): "transfer",
}


class Incomplete(Exception):
    """More bytes are needed to tell anything."""


def encode(frame: Frame) -> bytes:
    """Return the bytes of *frame*, whatever its numbers."""
    kind, *fields = frame
    head = HEADS[kind]
    body = b""
    match kind:
        case "report":
            numbers = fields
        case "classic data":
            offset, body = fields
            numbers = [offset, len(body)]
        case "handshake":
            numbers = [HANDSHAKE, *fields]
        case "handshake reply":
            end_offset, epoch, entries = fields
            body = b"".join(_ENTRY.pack(*entry) for entry in entries)
            numbers = [HANDSHAKE, len(body), end_offset, epoch]
        case "transfer":
            *others, body = fields
            numbers = [TRANSFER, len(body), *others]
        case _:
            numbers = [TRANSFER, *fields]
    return head.pack(*numbers) + body


def walk(
    stream: str, data: bytes, *, frame_size_max: int = FRAME_SIZE_MAX
) -> tuple[list[Frame], int, bool]:
    """Return the frames at the beginning of *data*, the place behind them, and whether what lies
    there is known to be no frame."""
    frames: list[Frame] = []
    at = 0
    while True:
        try:
            frame, size = decode(stream, data[at:], frame_size_max=frame_size_max)
        except Incomplete:
            return frames, at, False
        except ValueError:
            return frames, at, True
        frames.append(frame)
        at += size


def decode(stream: str, data: bytes, *, frame_size_max: int) -> tuple[Frame, int]:
    """Return the frame at the beginning of *data* and its size.

    Raises Incomplete, and ValueError as soon as the bytes can be no frame.
    """
    kind = _kind(stream, data)
    head = HEADS[kind]
    if len(data) < head.size:
        raise Incomplete
    numbers = head.unpack_from(data)
    match kind:
        case "report":
            (offset,) = numbers
            _need(offset >= 0)
            return ("report", offset), head.size
        case "ack":
            _, offset = numbers
            _need(offset >= 0)
            return ("ack", offset), head.size
        case "handshake":
            _, last_file, learner, broker_id = numbers
            _need(last_file in (0, 1) and learner in (0, 1) and broker_id >= 0)
            return ("handshake", last_file == 1, learner == 1, broker_id), head.size
    size = numbers[1]
    _need(0 <= size <= frame_size_max - head.size)
    body = data[head.size : head.size + size]
    if kind == "handshake reply":
        _, _, end_offset, epoch = numbers
        _need(size % _ENTRY.size == 0 and end_offset >= 0 and epoch >= -1)
        _whole(body, size)
        entries = tuple(_ENTRY.iter_unpack(body))
        _need(all(entry[0] >= 0 and entry[1] >= 0 for entry in entries))
        _need(all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries)))
        return (kind, end_offset, epoch, entries), head.size + size
    least = 0
    if kind == "classic data":
        offset, _ = numbers
        fields: Frame = (offset,)
    else:
        _, _, offset, epoch, epoch_start, confirm_offset = numbers
        least = -1 if size == 0 else 0
        _need(epoch >= least and epoch_start >= least and confirm_offset >= -1)
        fields = (offset, epoch, epoch_start, confirm_offset)
    _need(least <= offset < (1 << 63) - size)
    _whole(body, size)
    return (kind, *fields, body), head.size + size


def _kind(stream: str, data: bytes) -> str:
    if len(data) < 4:
        raise Incomplete
    if stream == "classic slave":
        return "report"
    if stream == "classic master":
        return "classic data"
    state = struct.unpack_from(">i", data)[0]
    _need((stream, state) in _KINDS)
    return _KINDS[stream, state]


def _need(condition: bool) -> None:
    if not condition:
        raise ValueError


def _whole(body: bytes, size: int) -> None:
    if len(body) < size:
        raise Incomplete
