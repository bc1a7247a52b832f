"""Body codecs by sysFlag: lz4 (frame format), zlib, and zstd when its extra is installed.

The compressed forms are those of RocketMQ's Java client and broker. Its lz4 reader refuses linked
blocks, therefore blocks are written independent.
"""

from __future__ import annotations

import sys
import zlib
from types import ModuleType
from typing import Any

from rmqstore import arguments
from rmqstore.errors import CorruptionError, MissingExtraError
from rmqstore.message import CompressionType, compression_type

__all__ = ["BODY_SIZE_BYTES_MAX", "compress", "decompress"]

BODY_SIZE_BYTES_MAX = 64 * 1024 * 1024
"""How large a decompressed body may grow unless the caller says otherwise."""

_SIZE_MAX = sys.maxsize - 1
_ZSTD_STEP_BYTES = 1024
"""zstd's decoder takes no output limit, and four bytes of input can stand for a block of 128 KiB:
small steps keep what a hostile body can claim beyond the limit at 32 MiB."""


def compress(
    body: bytes | bytearray | memoryview, kind: CompressionType, *, level: int = 5
) -> bytes:
    """Return *body* compressed; store it with `kind.sys_flag` among the message's flags.

    *level* is RocketMQ's compressLevel, 0 to 9, for zlib and zstd; lz4 has one speed.
    Raises ArgumentError, MissingExtraError for zstd without its package.
    """
    arguments.buffer("body", body)
    arguments.member("kind", kind, CompressionType)
    level = arguments.integer("level", level, low=0, high=9)
    if kind is CompressionType.ZLIB:
        return zlib.compress(body, level)
    # Both below go through the streaming interface, as Java's writers do (zstd with its flush
    # before the end): given the size beforehand, the libraries would choose other frame parameters,
    # so other bytes.
    parts: tuple[bytes, ...]
    if kind is CompressionType.LZ4:
        import lz4.frame

        frame = lz4.frame.LZ4FrameCompressor(
            block_size=lz4.frame.BLOCKSIZE_MAX4MB, block_linked=False
        )
        parts = (frame.begin(), frame.compress(body), frame.flush())
    else:
        zstandard = _zstandard()
        stream = zstandard.ZstdCompressor(level=level).compressobj()
        parts = (
            stream.compress(body),
            stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK),
            stream.flush(),
        )
    return b"".join(parts)


def decompress(
    body: bytes | bytearray | memoryview,
    sys_flag: int,
    *,
    size_bytes_max: int = BODY_SIZE_BYTES_MAX,
) -> bytes:
    """Return the plain body of a record with *sys_flag*; one that is not compressed comes back as
    bytes.

    Raises CorruptionError when the body is cut, is not what its flag says, or grows over
    *size_bytes_max*; MissingExtraError for zstd without its package.
    """
    arguments.buffer("body", body)
    kind = compression_type(sys_flag)
    # One more byte than the limit is asked for.
    size_bytes_max = arguments.integer("size_bytes_max", size_bytes_max, low=0, high=_SIZE_MAX)

    if kind is None:
        return bytes(body)
    zstd_error: type[Exception] = (
        _zstandard().ZstdError if kind is CompressionType.ZSTD else RuntimeError
    )

    try:
        if kind is CompressionType.ZSTD:
            plain, rest, finished = _decompress_zstd(body, size_bytes_max)
        else:
            plain, rest, finished = _decompress_bounded(body, kind, size_bytes_max)
    except (zlib.error, RuntimeError, zstd_error) as error:
        raise _bad_body(kind, str(error)) from error

    if len(plain) > size_bytes_max:
        raise _bad_body(kind, f"it grows over {size_bytes_max} bytes; give a larger size_bytes_max")
    if not finished:
        raise _bad_body(kind, f"it ends early, after {len(plain)} plain bytes")
    if rest:
        raise _bad_body(kind, f"{len(rest)} bytes follow its end")

    return plain


def _decompress_bounded(
    body: bytes | bytearray | memoryview, kind: CompressionType, size_bytes_max: int
) -> tuple[bytes, bytes, bool]:
    decoder: Any
    if kind is CompressionType.LZ4:
        import lz4.frame

        decoder = lz4.frame.LZ4FrameDecompressor()
    else:
        decoder = zlib.decompressobj()
    plain: bytes = decoder.decompress(body, size_bytes_max + 1)
    return plain, decoder.unused_data or b"", decoder.eof


def _decompress_zstd(
    body: bytes | bytearray | memoryview, size_bytes_max: int
) -> tuple[bytes, bytes, bool]:
    decoder = _zstandard().ZstdDecompressor().decompressobj()
    source = memoryview(body)
    pieces: list[bytes] = []
    size = 0
    for at in range(0, len(source), _ZSTD_STEP_BYTES):
        piece = decoder.decompress(source[at : at + _ZSTD_STEP_BYTES])
        pieces.append(piece)
        size += len(piece)
        if decoder.eof:
            rest = decoder.unused_data + bytes(source[at + _ZSTD_STEP_BYTES :])
            return b"".join(pieces), rest, True
        if size > size_bytes_max:
            break
    return b"".join(pieces), b"", False


def _bad_body(kind: CompressionType, what: str) -> CorruptionError:
    return CorruptionError(
        f"{kind.name.lower()} body cannot be decompressed: {what}", kind="compressed body"
    )


def _zstandard() -> ModuleType:
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError(
            "zstd bodies need the package zstandard: pip install rmqstore[zstd]"
        ) from error
    return zstandard
