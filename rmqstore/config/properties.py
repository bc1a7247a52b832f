"""Java's .properties syntax, as java.util.Properties reads and writes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["format_properties", "parse_properties", "without_mark"]

_BYTE_ORDER_MARKS = ("\ufeff", "\xef\xbb\xbf")
"""The mark at the start of UTF-8, decoded as UTF-8 or as ISO-8859-1."""
_BLANKS = " \t\f"
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES_TO_WRITE = {"\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f", "\\": "\\\\"}


def parse_properties(text: str) -> dict[str, str]:
    """Return the pairs of *text*; the later of two pairs with one key wins.

    `#` and `!` begin comments, a key ends at the first `=`, `:` or blank, a backslash at the end
    of a line continues it with the next one, and \\uXXXX is a UTF-16 unit. Trailing blanks belong
    to the value. Raises ValueError naming the line of a malformed \\u escape.
    """
    pairs: dict[str, str] = {}
    for number, line in _logical_lines(text):
        end = 0
        while end < len(line) and line[end] not in f"=:{_BLANKS}":
            end += 2 if line[end] == "\\" else 1
        value = line[end:].lstrip(_BLANKS)
        if value[:1] in ("=", ":"):
            value = value[1:].lstrip(_BLANKS)
        pairs[_unescape(line[:end], number)] = _unescape(value, number)
    return pairs


def without_mark(text: str) -> str:
    """Return *text* without a byte order mark at its start, which would belong to the first key."""
    for mark in _BYTE_ORDER_MARKS:
        text = text.removeprefix(mark)
    return text


def format_properties(pairs: Mapping[str, str]) -> str:
    """Return *pairs* as .properties text in ASCII, one line each, in their order."""
    return "".join(
        f"{_escape(key, key=True)}={_escape(value, key=False)}\n" for key, value in pairs.items()
    )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields each logical line with the number of its first line, without comments and empty
    lines."""
    pending = ""
    started = 0

    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(_BLANKS)
        if not pending:
            if not line or line[0] in "#!":
                continue
            started = number

        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pending += line[:-1]
            # A continuation that is only a backslash must not look like a new logical line.
            pending = pending or _BLANKS[0]
            continue

        yield started, pending + line
        pending = ""

    if pending:
        yield started, pending


def _unescape(text: str, line: int) -> str:
    if "\\" not in text:
        return text

    units: list[str] = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            units.append("" if char == "\\" else char)
            continue

        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if not re.fullmatch(r"[0-9A-Fa-f]{4}", digits):
                raise ValueError(f"line {line}: \\u takes four hex digits, not {digits!r}")
            units.append(chr(int(digits, 16)))
            at += 4
        else:
            units.append(_ESCAPES.get(char, char))

    # Two escaped surrogates make one character.
    return "".join(units).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _escape(text: str, *, key: bool) -> str:
    out: list[str] = []
    for at, char in enumerate(text):
        if char in _ESCAPES_TO_WRITE:
            out.append(_ESCAPES_TO_WRITE[char])
        elif (char == " " and (key or at == 0)) or (key and char in "=:#!"):
            out.append(f"\\{char}")
        elif " " <= char <= "~":
            out.append(char)
        else:
            raw = char.encode("utf-16-be", "surrogatepass")
            out += [f"\\u{raw[i : i + 2].hex().upper()}" for i in range(0, len(raw), 2)]
    return "".join(out)
