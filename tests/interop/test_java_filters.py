"""Expressions of SQL92 select the same messages here and in RocketMQ, and the same are refused."""

from __future__ import annotations

import random
import subprocess
from collections import Counter

import pytest

from rmqstore.filters import Selector, SqlError
from tests.support import java
from tests.support.releases import NEW, OLD

PROGRAM = "peer.filters.Main"
CASES = 20_000
NAMES = ("a", "b", "c")
CONSTANTS = (
    "1 2.5 'x' '' 'true' TRUE FALSE NULL 3 4000000000 5L 0 1E2 .5 5. 0x 007 '1' '2.5' 2147483647 "
    "2147483648 9223372036854775807 9223372036854775808"
).split()
VALUES = (
    " 3,3 ,,1,2.5,x,true,TRUE,3,+3,-3,4000000000,NaN,Infinity,inf,1_0,5d,0x1p3,-0.0,0.0,1e400,"
    "\u0663,axb,2147483648,1e2,.5,5.,+,-,1f,0x.8p1,0x1p9999,99999999999999999999,\\,\U0001f600"
).split(",")
WORDS = (
    "NOT AND OR BETWEEN IN IS CONTAINS STARTSWITH ENDSWITH not and or ( ) , = <> < >= > <= + - -- "
    "/* */ a b # ' /"
).split()
INSERTED = ["#", "'", " ", ")", "x", "--c\n", "/*c*/", "\t", "&", "\\"]

pytestmark = pytest.mark.java


class Cases:
    """Random expressions, and properties of messages."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def expression(self) -> str:
        found, pick = self._either(2), self._random
        if pick.random() < 0.25:
            words = [*WORDS, *CONSTANTS, *NAMES]
            found = " ".join(pick.choice(words) for _ in range(pick.randrange(1, 9)))
        if pick.random() < 0.1:
            at = pick.randrange(len(found) + 1)
            found = found[:at] + pick.choice(INSERTED) + found[at:]
        return found

    def properties(self) -> dict[str, str]:
        pick = self._random
        return {name: pick.choice(VALUES) for name in NAMES if pick.random() < 0.75}

    def _either(self, depth: int) -> str:
        pick = self._random
        terms = [self._comparison(depth) for _ in range(pick.choice((1, 1, 1, 2, 2, 3)))]
        return " ".join(f"{term} {pick.choice(('AND', 'OR'))}" for term in terms)[:-3].rstrip()

    def _comparison(self, depth: int) -> str:
        pick, left = self._random, self._operand(depth)
        match pick.randrange(8):
            case 0 | 1:
                return f"{left} {pick.choice(('=', '<>'))} {self._operand(depth)}"
            case 2 | 3:
                return f"{left} {pick.choice(('<', '>', '<=', '>='))} {self._operand(depth)}"
            case 4:
                limits = f"{self._operand(depth)} AND {self._operand(depth)}"
                return f"{left} {pick.choice(('', 'NOT '))}BETWEEN {limits}"
            case 5:
                last = pick.choice(("'true'", "'2.5'", "5"))
                return f"{left} {pick.choice(('', 'not '))}in ('x','1',{last})"
            case 6:
                operator = pick.choice(("contains", "STARTSWITH", "NOT endsWith"))
                return f"{left} {operator} {pick.choice(CONSTANTS)}"
            case _:
                return pick.choice((left, f"{left} IS NULL", f"{left} IS NOT NULL"))

    def _operand(self, depth: int) -> str:
        pick = self._random
        kind = pick.random()
        if depth <= 0 or kind < 0.4:
            return pick.choice(NAMES)
        if kind < 0.75:
            return pick.choice(CONSTANTS)
        if kind < 0.9:
            return f"({self._either(depth - 1)})"
        return pick.choice(("- ", "+ ", "NOT ")) + self._operand(depth - 1)


def escaped(text: str) -> str:
    for plain, word in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        text = text.replace(plain, word)
    return text


def ours(expression: str, properties: dict[str, str]) -> str:
    try:
        return str(Selector(expression).selects_properties(properties)).lower()
    except SqlError:
        return "refused"


@pytest.mark.parametrize("release", [OLD, NEW])
def test_random_expressions_select_what_they_select_in_java(release: str) -> None:
    java.need(release)
    made = Cases(7)
    cases = [(made.expression(), made.properties()) for _ in range(CASES)]
    lines = [
        "\t".join(
            map(escaped, (expression, *(text for pair in properties.items() for text in pair)))
        )
        for expression, properties in cases
    ]
    with java.scratch(java.quick_flags(release)) as flags:
        done = subprocess.run(
            java.command(release, PROGRAM, flags=flags),
            input="\n".join(lines) + "\n",
            capture_output=True,
            check=True,
            encoding="utf-8",
            timeout=300,
        )
    answers = done.stdout.split()
    assert len(answers) == CASES
    differing = [
        (expression, properties, answer)
        for (expression, properties), answer in zip(cases, answers, strict=True)
        if ours(expression, properties) != answer
    ]
    assert differing == []
    assert min(Counter(answers).values()) > CASES // 20, "all answers are common"
