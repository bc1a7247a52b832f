"""Expressions of SQL92: what they select, and which are refused.

Behaviour of upstream's ParserTest and ExpressionTest; a docstring names the methods. Upstream
evaluates numbers and objects, too: here values are texts, as the properties of a message are.
"""

from __future__ import annotations

import string
import time
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.filters import Selector, SqlError, selector_of
from rmqstore.filters.parser import DEPTH_MAX, LENGTH_MAX


def selects(expression: str, **properties: str) -> bool:
    return Selector(expression).selects_properties(properties)


# -- what is refused


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("", "a property, .* expected, not the end at position 1"),
        ("a and between 2 and 10", "not 'between' at position 7"),
        ("a > 100000000000000000000000", "above 9223372036854775807"),
        ("a > " + "1" * 10_000, "above"),
        ("a > " + "1" * 6_000 + "." + "1" * 6_000, "is not between"),
        ("a > 0.0", "write 0 for zero"),
        (" a between 10 and 0", "the first value of BETWEEN is above the second at position 4"),
        ("a between NULL and 5", "BETWEEN compares numbers and properties only"),
        ("a between 'x' and 5", "BETWEEN compares numbers and properties only"),
        ("a between 10,20", "AND expected, not ','"),
        ("a > 'x'", "> compares numbers and properties only"),
        ("TRUE < a", "< compares numbers and properties only"),
        ("(a = b) >= c", ">= compares numbers and properties only"),
        ("a = NULL", "write IS NULL"),
        ("TRUE = 5", "a truth value and another constant"),
        ("a IS 5", "NULL expected, not '5'"),
        ("a NOT 5", "CONTAINS, STARTSWITH, ENDSWITH, BETWEEN, IN expected"),
        ("a contains x", "a text in quotes expected, not 'x'"),
        ("a contains 123", "a text in quotes expected"),
        ("'axb' not contains ", "not the end"),
        ("a in (3)", "a text in quotes expected"),
        ("a in ()", "a text in quotes expected"),
        ("a in ('x'", r"one of ,, \) expected"),
        ("5 in ('x')", "IN needs a property"),
        ("5", "a truth value expected"),
        ("'a' or b", "a truth value expected"),
        ("-a and b", "a truth value expected"),
        ("a = 'x", '"\'" begins no word'),
        ("a # b", "'#' begins no word"),
        ("/* a = 1", "'/' begins no word"),
        ("(a = 1", r"\) expected, not the end"),
        ("(" * (DEPTH_MAX + 1) + "a" + ")" * (DEPTH_MAX + 1), "operators are inside each other"),
        ("a" + " = a" * (DEPTH_MAX + 1), "operators are inside each other"),
        ("not " * 1000 + "a", "operators are inside each other"),
        (f"a = '{'x' * LENGTH_MAX}'", f"more than {LENGTH_MAX} characters"),
    ],
)
def test_wrong_expression_is_refused_with_its_place(expression: str, text: str) -> None:
    """ParserTest: testParse_invalid, _decimalOverFlow, _floatOverFlow, _illegalBetween;
    ExpressionTest: testContains_has_not_string, testContains_string_has_nothing."""
    with pytest.raises(SqlError, match=text):
        Selector(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "a=3 and b<>4 And c>5 AND d<=4",
        "a=3  and    b<>4 And c>5 AND d<=4",
        "a=3 or b<>4 Or c>5 OR d<=4",
        "(a not in ('6', '4', '5')) or (b in ('3', '4', '5'))",
        "(a between 2 and 10) AND (b not between 6 and 9)",
        "a <= now",
        "a=3 and b contains 'xxx' and c not contains 'xxx'",
        "a = 1 -- the rest of a line\n and b = 2 /* and ** this */ and c = 3",
        "a > 5L and b < .5 and c >= 5. and d <= 1E3 and e = 2.5e-3",
    ],
)
def test_whole_expression_is_read(expression: str) -> None:
    """ParserTest: testParse_valid."""
    assert not selects(expression)


def test_what_follows_a_whole_expression_is_ignored() -> None:
    assert selects("a = 1 b = 2", a="1", b="3")
    assert selects("a = 007", a="0")
    assert selects("a = 1) # ?", a="1")
    with pytest.raises(SqlError):
        Selector("a = 1 # ?")


def test_many_terms_side_by_side_are_read() -> None:
    expression = " or ".join(f"a = {number}" for number in range(1000))
    assert selects(expression, a="999")
    assert not selects(expression, a="1000")


# -- what is selected

CASES: list[tuple[str, Mapping[str, str], bool]] = [
    ("value contains 'x'", {"value": "axb"}, True),
    ("value startswith 'ax'", {"value": "axb"}, True),
    ("value endswith 'xb'", {"value": "axb"}, True),
    ("value not contains 'x'", {"value": "axb"}, False),
    ("value not startswith 'ax'", {"value": "axb"}, False),
    ("value not endswith 'xb'", {"value": "axb"}, False),
    ("value contains 'x'", {"value": "abb"}, False),
    ("value not contains 'x'", {"value": "abb"}, True),
    ("value not startswith 'x'", {"value": "abb"}, True),
    ("value not endswith 'x'", {"value": "abb"}, True),
    ("value contains ''", {"value": "axb"}, False),
    ("value not contains ''", {"value": "axb"}, False),
    ("value startswith ''", {"value": "axb"}, False),
    ("value contains 'x'", {}, False),
    ("value not contains 'x'", {}, False),
    ("value not startswith 'x'", {}, False),
    ("not (value contains 'x')", {}, True),
    ("'axb' contains 'x'", {}, True),
    ("'axb' not endswith 'u'", {}, True),
    ("' ' contains ' '", {}, True),
    ("'axb' contains '.'", {}, False),
    ("'s' contains '\\'", {}, False),
    ("5 contains '5'", {}, False),
    ("(a > 5) contains 'x'", {"a": "6"}, False),
    ("a not in ('4', '5') and b between 3 and 10 and c not contains 'axbc'",
     {"a": "3", "b": "3", "c": "axbdc"}, True),
    ("TAGS is not null and TAGS='''''tag'''''", {"TAGS": "''tag''"}, True),
    ("a between up and low", {"a": "3.14"}, False),
    ("a between up and low", {"a": "3.14", "up": "up", "low": "low"}, False),
    ("key is not null and key between 0 and 100", {"key": "con"}, False),
    ("a=b", {"a": "3.14", "b": "3.14"}, True),
    ("a<>b", {"a": "3.14", "b": "3.14"}, False),
    ("a<>b", {"a": "3.14", "b": "3.141"}, True),
    ("a > 3.1E10", {"a": "3.1415E10"}, True),
    ("a > 3.14", {"a": "3.1415"}, True),
    ("a > b", {"a": "10", "b": "20"}, False),
    ("a > b", {"a": "20", "b": "10"}, True),
    ("a is null OR a='hello'", {}, True),
    ("a is null OR a='hello'", {"a": "hello"}, True),
    ("a is null OR a='hello'", {"a": "abc"}, False),
    ("a=TRUE OR b=FALSE", {"a": "true", "b": "false"}, True),
    ("a=TRUE OR b=FALSE", {"a": "false", "b": "true"}, False),
    ("a is not null and a='hello'", {"a": "hello"}, True),
    ("a is not null and a='hello'", {}, False),
    ("a=3 and b<>4 And c>5 AND d<=4", {"a": "3", "b": "5", "c": "6", "d": "1"}, True),
    ("a=3 and b<>4 And c>5 AND d<=4", {"a": "3", "b": "4", "c": "6", "d": "1"}, False),
    ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "3"}, True),
    ("a=3 or b<>4 Or c>5 OR d<=4", {"a": "4", "b": "4", "c": "5", "d": "5"}, False),
    ("a in ('3', '4', '5')", {"a": "3"}, True),
    ("a in ('3', '4', '5')", {"a": "8"}, False),
    ("a in ('3')", {}, False),
    ("a not in ('3', '4', '5')", {"a": "8"}, True),
    ("a not in ('3')", {}, False),
    ("a between 2 and 10", {"a": "10"}, True),
    ("a between 2 and 10", {"a": "11"}, False),
    ("a not between 2 and 10", {"a": "11"}, True),
    ("a not between 2 and 10", {"a": "2"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "properties", "expected"), CASES)
def test_expression_selects_as_rocketmq(
    expression: str, properties: Mapping[str, str], expected: bool
) -> None:
    """All methods of ExpressionTest that evaluate texts."""
    assert selects(expression, **properties) is expected


@pytest.mark.parametrize(
    ("expression", "properties", "expected"),
    [
        # Unknown: an absent property on the left, but not one on the right.
        ("a = 'x'", {}, False),
        ("a <> 'x'", {}, False),
        ("not (a = 'x')", {}, False),
        ("'x' <> a", {}, True),
        ("a <> b", {"a": "x"}, True),
        ("a <> b", {"b": "x"}, False),
        ("a = b", {}, True),
        ("a > 5 is null", {}, True),
        ("(a > 5) is null", {"a": "6"}, False),
        ("a = 1 or b = 2", {"b": "2"}, True),
        ("not (a = 1 or b = 2)", {"b": "3"}, False),
        ("not (a = 1 and b = 2)", {"b": "3"}, True),
        ("not (a = 1 and b = 2)", {"b": "2"}, False),
        # A property is no truth value, whatever its text.
        ("a", {"a": "true"}, False),
        ("not a", {"a": "true"}, True),
        ("not a", {}, False),
        ("not a = FALSE", {"a": "x"}, False),
        ("not a = TRUE", {"a": "x"}, True),
        ("a = (b > 5)", {"a": "TRUE", "b": "6"}, True),
        # A wrong text ends the evaluation, unless the result is known before.
        ("a > 5 or b = 1", {"a": "x", "b": "1"}, False),
        ("b = 1 or a > 5", {"a": "x", "b": "1"}, True),
        ("not (a > 5)", {"a": "x"}, False),
        ("a <> 5", {"a": "x"}, False),
        ("TRUE = a", {"a": "true"}, False),
        # The kind of the number decides which texts are numbers.
        ("a > 5", {"a": "5.5"}, False),
        ("a > 5.", {"a": "5.5"}, True),
        ("a > 5", {"a": " 6"}, False),
        ("a > 5.0", {"a": " 6 "}, True),
        ("a > 5", {"a": "3000000000"}, False),
        ("a > 5L", {"a": "3000000000"}, False),
        ("a > 2147483648", {"a": "3000000000"}, True),
        ("a > -2147483648", {"a": "3000000000"}, True),
        ("a > 2147483648", {"a": "9223372036854775808"}, False),
        ("a >= -5", {"a": "-5"}, True),
        ("a = +5", {"a": "+5"}, True),
        ("a = - -5", {"a": "5"}, True),
        ("a = 1000", {"a": "1_000"}, False),
        ("a = 5.0", {"a": "5d"}, True),
        ("a = 5.0", {"a": "0x1.4p2"}, True),
        ("a > 1.0", {"a": "inf"}, False),
        ("a > 1.0", {"a": "Infinity"}, True),
        ("a > 1.0", {"a": "NaN"}, True),
        ("a < b", {"a": "-0.0", "b": "0.0"}, True),
        ("a = b", {"a": "1", "b": "1.0"}, False),
        ("a >= b", {"a": "1", "b": "1.0"}, True),
        ("-a > 5", {"a": "-6"}, False),
        ("-a is null", {"a": "-6"}, True),
        ("5 < a", {"a": "6"}, True),
        ("5 >= a", {"a": "6"}, False),
        ("5 < 6", {}, True),
        ("5 = 5.0", {}, True),
        ("5 = TRUE", {}, False),
        ("'true' = TRUE", {}, True),
        ("TRUE", {}, True),
        ("NULL", {}, False),
        ("a = 'it''s'", {"a": "it's"}, True),
        ("$_a = 'x'", {"$_a": "x"}, True),
        ("A = 'x'", {"a": "x"}, False),
        ("a between -5 and -3", {"a": "-4"}, True),
        ("a between 5 and 2.5E9", {"a": "2000000000"}, True),
    ],
)
def test_unlike_and_absent_values_are_treated_as_in_java(
    expression: str, properties: Mapping[str, str], expected: bool
) -> None:
    assert selects(expression, **properties) is expected


@pytest.mark.parametrize("text", ["1" * 32_000 + "x", "0x" + "f" * 32_000 + "x", "1" * 32_000])
@pytest.mark.parametrize("expression", ["a > 1.5", "a > 1", "a > b"])
def test_long_text_of_digits_takes_no_time(expression: str, text: str) -> None:
    selector = Selector(expression)
    began_s = time.process_time()
    for _ in range(10):
        selector.selects((text, "1"))
    assert time.process_time() - began_s < 1


def test_selector_names_its_properties_once_and_is_made_once() -> None:
    selector = selector_of("b > 1 and a = 'x' and b < 5")
    assert selector.names == ("b", "a")
    assert selector.selects(("3", "x"))
    assert selector_of(selector.expression) is selector


# -- any expression

_NAMES = st.sampled_from(["a", "b", "c"])
_CONSTANTS = st.sampled_from(["1", "2.5", "'x'", "TRUE", "NULL", "-3", "4000000000"])
_WORDS = st.sampled_from(
    "NOT AND OR BETWEEN IN TRUE NULL IS CONTAINS ( ) , = <> < >= + - a b 1 2.5 'x' -- /* */".split()
)


@given(st.lists(_WORDS | _CONSTANTS, max_size=20))
def test_any_words_are_refused_or_select(words: list[str]) -> None:
    try:
        selector = Selector(" ".join(words))
    except SqlError:
        return
    for value in (None, "1", "x"):
        assert selector.selects((value,) * len(selector.names)) in (True, False)


@given(st.text(st.characters(codec="utf-8"), max_size=50))
def test_any_text_is_refused_or_read(text: str) -> None:
    try:
        names = Selector(text).names
    except SqlError:
        return
    assert all(name in text for name in names)


_COMPARISONS = st.builds(
    "{} {} {}".format, _NAMES, st.sampled_from(["=", "<>", ">", "<="]), st.integers(-9, 9)
)
_TERMS = st.recursive(
    _COMPARISONS,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("(NOT ({}))".format, inner)
    ),
    max_leaves=12,
)


@given(_TERMS, st.lists(st.integers(-9, 9), min_size=3, max_size=3))
def test_known_whole_numbers_give_what_python_gives(expression: str, values: list[int]) -> None:
    known = dict(zip("abc", values, strict=True))
    words = expression.replace("<>", "!=").replace(" = ", " == ")
    for word in ("AND", "OR", "NOT"):
        words = words.replace(word, word.lower())
    expected = eval(words, {}, known)
    properties = {name: str(value) for name, value in known.items()}
    assert Selector(expression).selects_properties(properties) is expected


@given(st.text(string.printable + "äß€𝄞", max_size=30))
def test_any_text_of_a_property_can_be_compared(text: str) -> None:
    quoted = text.replace("'", "''")
    assert selects(f"a = '{quoted}'", a=text)
    for number in ("5", "5.5", "5000000000"):
        assert selects(f"a > {number}", a=text) in (True, False)
