"""Frames of both replication protocols; the layouts are those of csrc/format/ha_frame.h.

A frame is a tuple: its kind, then its fields.

    ("report", offset)
    ("classic data", offset, body)
    ("handshake", sync from last file, is learner, broker id)
    ("handshake reply", end offset, epoch, ((epoch, start offset), ...))
    ("transfer", offset, epoch, epoch start, confirm offset, body)
    ("ack", offset)

Those with checks, and the handshake that offers them:

    ("offering handshake", sync from last file, is learner, broker id)
    ("checked handshake reply", end offset, epoch, ((epoch, start offset), ...), handshake's CRC)
    ("checked transfer", offset, epoch, epoch start, confirm offset, body)
    ("checked ack", offset, epoch)

Source: DefaultHAConnection, DefaultHAClient, AutoSwitchHAConnection, AutoSwitchHAClient of
RocketMQ 5.3.3.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import crcmod

Frame = tuple[Any, ...]

HANDSHAKE, TRANSFER = 1, 2
CHECKED, OFFER = 0x434B0000, 0x434B
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
CHECKED_HEADS = {
    "handshake reply": struct.Struct(">iiqiIII"),
    "transfer": struct.Struct(">iiqiqqII"),
    "ack": struct.Struct(">iqiI"),
}
_ENTRY = struct.Struct(">iq")
_CRC = struct.Struct(">I")
_crc = crcmod.mkCrcFun(0x104C11DB7, initCrc=0, xorOut=0xFFFFFFFF)
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

    if kind.startswith("checked "):
        return _encode_checked(frame)
    if kind == "offering handshake":
        flags = [1 if each else 0 for each in fields[:2]]
        flags[flags.index(0)] = OFFER
        return HEADS["handshake"].pack(HANDSHAKE, *flags, fields[2])

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


def _encode_checked(frame: Frame) -> bytes:
    kind, *fields = frame
    body = b""
    match kind:
        case "checked handshake reply":
            end_offset, epoch, entries, handshake_crc = fields
            body = b"".join(_ENTRY.pack(*entry) for entry in entries)
            numbers = [CHECKED | HANDSHAKE, len(body), end_offset, epoch, handshake_crc, _crc(body)]
        case "checked transfer":
            *others, body = fields
            numbers = [CHECKED | TRANSFER, len(body), *others, _crc(body)]
        case _:
            numbers = [CHECKED | TRANSFER, *fields]
    head = CHECKED_HEADS[kind.removeprefix("checked ")].pack(*numbers, 0)[: -_CRC.size]
    return head + _CRC.pack(_crc(head)) + body


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
    kind, is_checked = _kind(stream, data)
    head = (CHECKED_HEADS if is_checked else HEADS)[kind]
    if len(data) < head.size:
        raise Incomplete
    numbers = head.unpack_from(data)
    crcs: Frame = ()
    name = kind
    if is_checked:
        before = head.size - _CRC.size
        _need(_CRC.unpack_from(data, before) == (_crc(data[:before]),))
        count = len(HEADS[kind].unpack_from(data))
        numbers, crcs = numbers[:count], numbers[count:]
        name = f"checked {kind}"

    match kind:
        case "report":
            (offset,) = numbers
            _need(offset >= 0)
            return ("report", offset), head.size
        case "ack":
            _, offset = numbers
            _need(offset >= 0)
            if is_checked:
                _need(crcs[0] >= -1)
                return (name, offset, crcs[0]), head.size
            return ("ack", offset), head.size
        case "handshake":
            _, last_file, learner, broker_id = numbers
            offers = OFFER in (last_file, learner)
            if offers:
                # In the first flag that is free.
                _need((last_file == OFFER) != (learner == OFFER) and (last_file in (1, OFFER)))
            flags = (0, 1, OFFER)
            _need(last_file in flags and learner in flags and broker_id >= 0)
            name = "offering handshake" if offers else "handshake"
            return (name, last_file == 1, learner == 1, broker_id), head.size

    size = numbers[1]
    _need(0 <= size <= frame_size_max - head.size)
    body = data[head.size : head.size + size]

    if kind == "handshake reply":
        _, _, end_offset, epoch = numbers
        _need(size % _ENTRY.size == 0 and end_offset >= 0 and epoch >= -1)
        _whole(body, size)
        _need(not is_checked or crcs[1] == _crc(body))
        entries = tuple(_ENTRY.iter_unpack(body))
        _need(all(entry[0] >= 0 and entry[1] >= 0 for entry in entries))
        _need(all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(entries)))
        return (name, end_offset, epoch, entries, *crcs[:1]), head.size + size

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
    _need(not is_checked or crcs[0] == _crc(body))
    return (name, *fields, body), head.size + size


def _kind(stream: str, data: bytes) -> tuple[str, bool]:
    if len(data) < 4:
        raise Incomplete
    if stream == "classic slave":
        return "report", False
    if stream == "classic master":
        return "classic data", False
    state = struct.unpack_from(">i", data)[0]
    is_checked = state in (CHECKED | HANDSHAKE, CHECKED | TRANSFER)
    kind = _KINDS.get((stream, state - CHECKED if is_checked else state))
    _need(kind is not None and (not is_checked or kind in CHECKED_HEADS))
    assert kind is not None
    return kind, is_checked


def _need(condition: bool) -> None:
    if not condition:
        raise ValueError


def _whole(body: bytes, size: int) -> None:
    if len(body) < size:
        raise Incomplete
