"""Phrases of earlier texts that are not plain English; the tree does not use them again."""

from __future__ import annotations

import re

from tests.house import tree

# Instead: the previous one, again, indefinitely, nevertheless, the caller that, at least.
# "begin anew" is the name of an option.
PHRASES = re.compile(
    r"\b(of before|as ever|at the least|make haste|all the same|for ever|whoever|those who"
    r"|who waits|in office|the deed)\b|(?<!begin )(?<!begins )(?<![_-])\banew\b(?!\), or)",
    re.IGNORECASE,
)
# Instead: after, at or after, is not a, which of the two is unknown.
OF_THE_PACKAGE = re.compile(
    r"\b(at or behind|behind the (last|end)|nothing tells|no file tells|amid|as (it|they) lies?"
    r"|(is|are) no (records?|frames?|fields?|columns?|learners?|positions?|messages?|errors?))\b"
)
# Instead: no client, no replica, in progress, periodically, a second call does nothing,
# return whether, record that.
OF_PEOPLE = re.compile(
    r"\b(nobody|somebody|everybody|anybody|in hand|now and then|under way|half-way"
    r"|twice is harmless|tells? whether|takes? note)\b",
    re.IGNORECASE,
)
PROSE = re.compile(r"(rmqstore|csrc)/.+|docs/.+\.md|README\.md")
PACKAGE = re.compile(r"rmqstore/.+|docs/.+\.md|README\.md")
THERE_IS = re.compile(r"\bthere (is|are) no\b", re.IGNORECASE)
# Rows of defects are quoted by the list of mutations; the others are data, or name the phrases.
OUTSIDE = re.compile(
    r"tests/(golden|fuzz/corpus)/.+|docs/defects\.md|tests/house/(mutations\.toml|test_english\.py)"
    r"|CHANGELOG\.md|LICENSE|.+\.(jsonl|json|html|svg|ipynb)"
)


def test_no_file_uses_a_phrase_that_plain_english_lacks() -> None:
    found = [
        f"{name}:{number}: {phrase.group()}"
        for name in tree.files()
        if not OUTSIDE.fullmatch(name)
        for number, line in enumerate(tree.text_of(name).splitlines(), 1)
        if (phrase := PHRASES.search(line))
    ]
    assert not found, "\n".join(found)


def test_the_package_names_what_a_thing_is_not_and_what_comes_after_it() -> None:
    found = [
        f"{name}:{number}: {phrase.group()}"
        for name in tree.files()
        if PACKAGE.fullmatch(name) and not OUTSIDE.fullmatch(name)
        for number, line in enumerate(tree.text_of(name).splitlines(), 1)
        if (phrase := OF_THE_PACKAGE.search(THERE_IS.sub("", line)))
    ]
    assert not found, "\n".join(found)


def test_machines_are_not_described_as_people() -> None:
    found = [
        f"{name}:{number}: {phrase.group()}"
        for name in tree.files()
        if PROSE.fullmatch(name) and not OUTSIDE.fullmatch(name)
        for number, line in enumerate(tree.text_of(name).splitlines(), 1)
        if (phrase := OF_PEOPLE.search(line))
    ]
    assert not found, "\n".join(found)
