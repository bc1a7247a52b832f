"""The bloom filter of a queue's extension: which subscriptions a message was found to match.

Each subscription has some bits of the bit map of a message. Here they are only computed, for
consumerFilter.json: the messages of a pull are always evaluated, so no bit map can hide one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["Bloom", "murmur3_low"]

_U64 = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


@dataclass(frozen=True, slots=True)
class Bloom:
    """A filter for *consumers* subscriptions of a topic that errs for *error_percent* of the
    messages."""

    error_percent: int = 20
    consumers: int = 32

    def __post_init__(self) -> None:
        assert 1 <= self.error_percent < 100
        assert self.consumers >= 1

    @property
    def hash_count(self) -> int:
        """The number of bits of one subscription."""
        return math.ceil(math.log(self.error_percent / 100) / math.log(0.5))

    @property
    def bit_count(self) -> int:
        """The number of bits of a bit map, whole bytes."""
        bits = (
            self.consumers * _logarithm(2, 1 / (self.error_percent / 100)) * _logarithm(2, math.e)
        )
        return 8 * math.ceil(math.ceil(bits) / 8)

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """Return the bits of the subscription of *group* to *topic*."""
        return self.positions_of(f"{group}#{topic}")

    def positions_of(self, text: str) -> tuple[int, ...]:
        """Return the bits of a text."""
        found = murmur3_low(text.encode())
        first, second, bits = _signed(found), _signed(found >> 32), self.bit_count
        combined = (_signed(first + i * second) for i in range(1, self.hash_count + 1))
        return tuple((each if each >= 0 else ~each) % bits for each in combined)


def _logarithm(base: float, value: float) -> float:
    return math.log(value) / math.log(base)


def _signed(value: int) -> int:
    """Returns the low 32 bits as Java's int."""
    return ((value & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def murmur3_low(data: bytes) -> int:
    """Return the first 64 bits of MurmurHash3 x64 128 of *data* with seed 0."""
    low = high = 0
    whole = len(data) // 16 * 16
    for at in range(0, whole, 16):
        low ^= _mixed(_word(data, at), _C1, 31, _C2)
        low = (_rotated(low, 27) + high) * 5 + 0x52DCE729 & _U64
        high ^= _mixed(_word(data, at + 8), _C2, 33, _C1)
        high = (_rotated(high, 31) + low) * 5 + 0x38495AB5 & _U64

    high ^= _mixed(_word(data, whole + 8), _C2, 33, _C1)
    low ^= _mixed(_word(data, whole), _C1, 31, _C2)
    low ^= len(data)
    high ^= len(data)
    low = low + high & _U64
    high = high + low & _U64
    return _finished(low) + _finished(high) & _U64


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _U64


def _mixed(word: int, first: int, bits: int, second: int) -> int:
    return _rotated(word * first & _U64, bits) * second & _U64


def _finished(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _U64
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _U64
    return value ^ value >> 33
