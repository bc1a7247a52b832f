"""Text as Java sees it: UTF-16 code units, their hash, and UTF-8 decoded the way `new String` does.

A Java string is a sequence of UTF-16 code units; a character beyond U+FFFF counts as two. Lengths
and hashes of topics, tags and keys are taken over those units, so they differ from what Python's
len says.
"""

import re

# Java replaces an encoded surrogate, whole or cut short, by one U+FFFD; Python each byte of it.
_ENCODED_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode(data: bytes) -> str:
    """Return the text of UTF-8 *data*, each maximal malformed run replaced by one U+FFFD."""
    return _ENCODED_SURROGATE.sub("\ufffd".encode(), data).decode("utf-8", "replace")


def code_units(text: str) -> list[int]:
    """Return the UTF-16 code units of *text*."""
    data = text.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2)]


def length(text: str) -> int:
    """Return what String.length() says."""
    return len(code_units(text))


def string_hash(text: str) -> int:
    """Return what String.hashCode() says: h = 31 h + unit, as a signed 32-bit number."""
    value = 0
    for unit in code_units(text):
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value
