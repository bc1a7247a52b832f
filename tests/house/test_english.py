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
# Instead in comments of C: after, past; at, is in; reports, sends, receives; validates; skipped;
# released; repaired; for lack of. "Lags behind", "stands for" are the usual words.
OF_C = re.compile(
    r"(?<!lags )\bbehind\b|\bstands?\b(?! for\b| still\b)"
    r"|\b(lie|lies|lying|hears?|heard|tells?|told|judges?|passe[sd] over|looked at|half gone"
    r"|for want of|lets? go|letting go|given? up|gives up|goes on|mended|hand(s|ed)? over|who)\b"
)
PROSE = re.compile(r"(rmqstore|csrc)/.+|docs/.+\.md|README\.md")
C_FILE = re.compile(r"csrc/.+\.[ch]")
C_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
LINE_BREAK = re.compile(r"\s*\n\s*\*? ?")
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
        if PROSE.fullmatch(name) and not OUTSIDE.fullmatch(name)
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


def test_comments_of_c_use_plain_words_for_position_and_action() -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, comment.start()) + 1}: {phrase.group()}"
        for name in tree.files()
        if C_FILE.fullmatch(name)
        for text in [tree.text_of(name)]
        for comment in C_COMMENT.finditer(text)
        for phrase in OF_C.finditer(LINE_BREAK.sub(" ", comment.group()))
    ]
    assert not found, "\n".join(found)
