"""Body codecs, compared with bodies that Java compressed (spec/store.md 4)."""

from __future__ import annotations

import builtins
import hashlib
import struct
import zlib
from collections.abc import Callable

import lz4.frame
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.compression import compress, decompress
from rmqstore.errors import CorruptionError, MissingExtraError
from rmqstore.message import CompressionType, compression_type
from tests.golden import GoldenCase, every_case

BODY_LENGTH_AT = 84
LEVEL_OF_THE_GOLDEN_BODIES = 5


def stored_body(case: GoldenCase, physical_offset: int) -> bytes:
    """Return the body bytes of an IPv4 record as they lie in the commit log."""
    size = int(case.spec["store"]["mappedFileSizeCommitLog"])
    start = physical_offset // size * size
    data = (case.root / "commitlog" / f"{start:020d}").read_bytes()[physical_offset - start :]
    (length,) = struct.unpack_from(">i", data, BODY_LENGTH_AT)
    return data[BODY_LENGTH_AT + 4 :][:length]


@every_case("compressed")
def test_bodies_compressed_by_java_are_read_and_written_alike(
    golden_case: Callable[[str, str], GoldenCase], release: str, case_name: str
) -> None:
    pytest.importorskip("zstandard")
    case = golden_case(release, case_name)
    seen = set()

    for record in case.manifest:
        body = stored_body(case, record["phyOffset"])
        plain = decompress(body, record["sysFlag"])
        assert len(plain) == record.get("plainLength", len(body))

        kind = compression_type(record["sysFlag"])
        seen.add(kind)
        if kind is None:
            continue

        assert hashlib.sha256(plain).hexdigest() == record["plainSha256"]
        written = compress(plain, kind, level=LEVEL_OF_THE_GOLDEN_BODIES)
        assert decompress(written, record["sysFlag"]) == plain
        if kind is CompressionType.LZ4:
            assert written[:6] == body[:6], "frame parameters"

    assert seen == {None, *CompressionType}


@pytest.mark.parametrize("kind", CompressionType)
@given(body=st.binary(max_size=5000))
def test_compressed_body_comes_back(kind: CompressionType, body: bytes) -> None:
    assert decompress(compress(memoryview(body), kind), kind.sys_flag) == body


@pytest.mark.parametrize("kind", CompressionType)
def test_every_cut_of_a_compressed_body_is_corruption(kind: CompressionType) -> None:
    whole = compress(b"an order, " * 50, kind)
    for length in range(len(whole)):
        with pytest.raises(CorruptionError, match="cannot be decompressed"):
            decompress(whole[:length], kind.sys_flag)


@pytest.mark.parametrize("kind", CompressionType)
def test_bytes_after_a_compressed_body_are_corruption(kind: CompressionType) -> None:
    with pytest.raises(CorruptionError, match="bytes follow"):
        decompress(compress(b"order", kind) + b"xy", kind.sys_flag)


@pytest.mark.parametrize("kind", CompressionType)
def test_body_that_is_not_what_its_flag_says_is_corruption(kind: CompressionType) -> None:
    with pytest.raises(CorruptionError, match=kind.name.lower()):
        decompress(b"plain text, not compressed", kind.sys_flag)


@pytest.mark.parametrize("kind", CompressionType)
def test_output_limit_is_inclusive_and_named(kind: CompressionType) -> None:
    body = compress(bytes(1_000_000), kind)
    assert len(decompress(body, kind.sys_flag, size_bytes_max=1_000_000)) == 1_000_000
    with pytest.raises(CorruptionError, match="over 999999 bytes"):
        decompress(body, kind.sys_flag, size_bytes_max=999_999)


def test_plain_body_comes_back_as_bytes() -> None:
    assert decompress(memoryview(b"order"), 0) == b"order"


def test_compressed_body_without_a_type_is_zlib() -> None:
    assert decompress(zlib.compress(b"order"), 0x1) == b"order"


def test_lz4_blocks_are_independent_as_the_java_reader_demands() -> None:
    body = compress(bytes(10_000_000), CompressionType.LZ4)
    assert lz4.frame.get_frame_info(body)["block_linked"] is False


def test_zstd_without_its_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    ordinary_import = builtins.__import__

    def without_zstandard(name: str, *rest: object) -> object:
        if name == "zstandard":
            raise ImportError(name)
        return ordinary_import(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without_zstandard)
    with pytest.raises(MissingExtraError, match=r"pip install rmqstore\[zstd\]"):
        decompress(b"", CompressionType.ZSTD.sys_flag)
