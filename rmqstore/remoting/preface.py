"""The HAProxy preface, which a proxy sends before the client's bytes (PROXY protocol 1 and 2).

Version 1 is a line such as "PROXY TCP4 10.0.0.7 10.0.0.1 51000 9876\\r\\n". Version 2 is binary:

    at  size  field                (integers are big-endian)
    0   12    0D 0A 0D 0A 00 0D 0A 51 55 49 54 0A
    12  1     2 in the high half; 0 in the low half: the proxy's own connection, 1: a client's
    13  1     0x11 TCP over IPv4, 0x21 TCP over IPv6, others are skipped
    14  2     size of the following bytes
    16  n     addresses of client and proxy, their ports, further entries
"""

from __future__ import annotations

import ipaddress

from rmqstore.errors import RemotingFrameError

__all__ = ["begins_preface", "missing_bytes", "source_of"]

_SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
_WORD = b"PROXY "
_LINE_MAX = 107
_HEAD = 16


def begins_preface(first: int) -> bool:
    """Return whether *first*, the first byte of a connection, begins a preface. No frame begins
    with such a byte: the size of the frame would exceed every limit."""
    return first in (_SIGNATURE[0], _WORD[0])


def missing_bytes(held: bytes) -> int:
    """Return how many bytes certainly follow *held* in the preface; 0 when the preface is complete.

    Raises RemotingFrameError where *held* begins no preface.
    """
    if not held:
        return 1
    if held[:1] == _WORD[:1]:
        if held.startswith(_WORD) and held.endswith(b"\r\n"):
            return 0
        if len(held) < _LINE_MAX and held[: len(_WORD)] == _WORD[: len(held)]:
            return 1
    elif held[: len(_SIGNATURE)] == _SIGNATURE[: len(held)]:
        if len(held) < _HEAD:
            return _HEAD - len(held)
        if held[len(_SIGNATURE)] >> 4 == 2:
            return _HEAD + int.from_bytes(held[_HEAD - 2 : _HEAD], "big") - len(held)
    raise RemotingFrameError(f"{held[:20]!r} begins neither a frame nor the preface of a proxy")


def source_of(preface: bytes) -> tuple[str, int] | None:
    """Return host and port of the client that a complete *preface* names, None if it names none."""
    if preface.startswith(_WORD):
        words = preface.decode("ascii", "replace").split()
        if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
            return None
        return _address(words[2], words[4])
    if preface[12] & 0xF != 1:
        return None
    size = {0x11: 4, 0x21: 16}.get(preface[13])
    if size is None or len(preface) < _HEAD + 2 * size + 4:
        return None
    host = preface[_HEAD : _HEAD + size]
    at = _HEAD + 2 * size
    return str(ipaddress.ip_address(host)), int.from_bytes(preface[at : at + 2], "big")


def _address(host: str, port: str) -> tuple[str, int] | None:
    try:
        return str(ipaddress.ip_address(host)), int(port) & 0xFFFF
    except ValueError:
        return None
