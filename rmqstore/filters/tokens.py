"""The tokens of an expression, by the rules of RocketMQ's SelectorParser.

They are read one by one, as far as the parser needs them: like RocketMQ it ignores what follows a
whole expression, which then need not consist of tokens.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ["KEYWORDS", "SqlError", "Token", "Tokens"]

KEYWORDS = frozenset(
    "NOT AND OR BETWEEN IN TRUE FALSE NULL IS CONTAINS STARTSWITH ENDSWITH".split()
)

_SKIPPED = re.compile(r"(?:[ \t\n\r\f]|--[^\n\r]*[\n\r]|/\*.*?\*/)+", re.DOTALL)
_EXPONENT = r"[eE][+-]?[0-9]+"
_TOKEN = re.compile(
    rf"(?P<float>[0-9]+\.[0-9]*(?:{_EXPONENT})?|\.[0-9]+(?:{_EXPONENT})?|[0-9]+{_EXPONENT})"
    r"|(?P<whole>0|[1-9][0-9]*[lL]?)"
    r"|(?P<text>'(?:''|[^'])*')"
    r"|(?P<word>[A-Za-z_$][A-Za-z0-9_$]*)"
    r"|(?P<symbol><>|>=|<=|[=<>(),+-])"
)

_NAMES = {
    "name": "a property",
    "text": "a text in quotes",
    "whole": "a number",
    "float": "a number with a fraction",
}


class SqlError(ValueError):
    """An expression that is not a filter; the message says where and why."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(f"{problem} at position {at + 1}")


class Token(NamedTuple):
    """One token of an expression."""

    kind: str
    """A keyword in capitals, a symbol, `float`, `whole`, `text`, `name`, or `end`."""
    text: str
    at: int


class Tokens:
    """The tokens of *text*, of which `next` is known before it is taken."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self.next = self._read()
        """The token that `take` returns."""

    def take(self) -> Token:
        """Return the next token, and read the one after it."""
        token = self.next
        self.next = self._read()
        return token

    def expect(self, *kinds: str) -> Token:
        """Return the next token, which must be one of *kinds*. Raises SqlError."""
        if self.next.kind not in kinds:
            found = f"{self.next.text[:40]!r}" if self.next.text else "the end"
            wanted = ", ".join(_NAMES.get(kind, kind) for kind in kinds)
            choice = "one of " if len(kinds) > 1 else ""
            raise SqlError(f"{choice}{wanted} expected, not {found}", self.next.at)
        return self.take()

    def _read(self) -> Token:
        skipped = _SKIPPED.match(self._text, self._end)
        at = self._end if skipped is None else skipped.end()
        if at == len(self._text):
            return Token("end", "", at)
        found = _TOKEN.match(self._text, at)
        if found is None:
            raise SqlError(f"{self._text[at]!r} begins no word, number, text or operator", at)
        self._end = found.end()
        kind, text = found.lastgroup or "", found[0]
        if kind == "word":
            kind = text.upper() if text.upper() in KEYWORDS else "name"
        elif kind == "symbol":
            kind = text
        return Token(kind, text, at)
