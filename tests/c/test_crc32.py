"""CRC-32 in every version the processor has, against zlib and crcmod."""

from __future__ import annotations

import random
import re
import zlib
from typing import Any

import crcmod
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.c.library import SOURCES
from tests.c.memory import PAGE, GuardedMemory

POLYNOMIAL = 0x104C11DB7
VERSIONS = ("sliced16", "pclmul", "vpclmul")
LENGTH_MAX = 1100
DATA = random.Random(1).randbytes(1 << 16)

crcmod_crc32 = crcmod.mkCrcFun(POLYNOMIAL, initCrc=0, xorOut=0xFFFFFFFF)


@pytest.fixture(params=VERSIONS)
def version(core: Any, request: pytest.FixtureRequest) -> Any:
    """Return (ffi, function) of one version."""
    ffi, lib = core
    versions = lib.rmq_crc32_versions()
    at = 0
    while versions[at].name != ffi.NULL:
        if ffi.string(versions[at].name).decode() == request.param:
            if not versions[at].supported:
                pytest.skip(f"this processor lacks the instructions of {request.param}")
            return ffi, versions[at].run
        at += 1
    pytest.skip(f"this architecture has no version {request.param}")


@pytest.mark.parametrize("alignment", range(64))
def test_every_length_at_every_alignment_agrees_with_zlib(version: Any, alignment: int) -> None:
    ffi, run = version
    data = DATA[: LENGTH_MAX + 64]
    buffer = ffi.new("uint8_t[]", len(data) + 64)
    address = int(ffi.cast("uintptr_t", buffer))
    start = buffer + (alignment - address) % 64
    ffi.memmove(start, data, len(data))
    wrong = [n for n in range(LENGTH_MAX + 1) if run(0, start, n) != zlib.crc32(data[:n])]
    assert wrong == []


def test_oracles_agree_with_each_other() -> None:
    for size in (0, 1, 63, 64, 1100):
        assert crcmod_crc32(DATA[:size]) == zlib.crc32(DATA[:size])


@pytest.mark.parametrize("size", [4095, 4096, 16_383, 65_536])
def test_long_data_agree_with_both_oracles(version: Any, size: int) -> None:
    _, run = version
    assert run(0, DATA[:size], size) == zlib.crc32(DATA[:size]) == crcmod_crc32(DATA[:size])


@given(data=st.data())
def test_chained_calls_agree_with_one_call(core: Any, data: st.DataObject) -> None:
    _, lib = core
    cuts = sorted(data.draw(st.lists(st.integers(0, 3000), max_size=6)))
    begin = data.draw(st.integers(0, 0xFFFFFFFF))
    crc = begin
    for first, last in zip([0, *cuts], [*cuts, 3000], strict=True):
        crc = lib.rmq_crc32(crc, DATA[first:last], last - first)
    assert crc == zlib.crc32(DATA[:3000], begin)


def test_nothing_outside_the_data_is_read(version: Any) -> None:
    ffi, run = version
    with GuardedMemory(PAGE) as memory:
        for size in range(600):
            for address in (memory.put_first(DATA[:size]), memory.put_last(DATA[:size])):
                assert run(0, ffi.cast("void *", address), size) == zlib.crc32(DATA[:size])


def test_short_data_across_a_page_boundary(version: Any) -> None:
    ffi, run = version
    with GuardedMemory(2 * PAGE) as memory:
        memory.put_first(DATA[: 2 * PAGE])
        for at in range(PAGE - 70, PAGE + 1):
            for size in range(70):
                expected = zlib.crc32(DATA[at : at + size])
                assert run(0, ffi.cast("void *", memory.start + at), size) == expected


def test_the_fastest_supported_version_is_chosen(core: Any) -> None:
    ffi, lib = core
    versions = lib.rmq_crc32_versions()
    supported = []
    at = 0
    while versions[at].name != ffi.NULL:
        if versions[at].supported:
            supported.append(ffi.string(versions[at].name))
        at += 1
    assert supported[0] == b"sliced16"
    assert ffi.string(lib.rmq_crc32_chosen()) == supported[-1]


def power(exponent: int) -> int:
    """Return x^exponent mod P."""
    value = 1
    for _ in range(exponent):
        value <<= 1
        if value >> 32:
            value ^= POLYNOMIAL
    return value


def quotient(exponent: int) -> int:
    """Return x^exponent div P."""
    rest, result = 1 << exponent, 0
    while rest.bit_length() > 32:
        shift = rest.bit_length() - 33
        result |= 1 << shift
        rest ^= POLYNOMIAL << shift
    return result


def mirrored(value: int, width: int) -> int:
    return int(f"{value:0{width}b}"[::-1], 2)


def test_folding_constants_are_powers_of_x_modulo_the_polynomial() -> None:
    source = (SOURCES / "base" / "crc32_x86.c").read_text()
    found = {
        name: [int(number, 16) for number in re.findall(r"0x[0-9A-F]+", numbers)]
        for name, numbers in re.findall(r"uint64_t (\w+)\[\d\] = \{([^}]*)\}", source)
    }
    expected = {
        f"FOLD_{bits}": [mirrored(power(bits + 63), 64), mirrored(power(bits - 1), 64)]
        for bits in (128, 256, 384, 512, 1024, 1536, 2048)
    }
    expected["TO_S"] = [mirrored(power(64 * j + 31), 64) for j in range(7, -1, -1)]
    expected["BARRETT"] = [mirrored(quotient(95), 64), mirrored(POLYNOMIAL, 33)]
    assert found == expected
