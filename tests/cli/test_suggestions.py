"""Commands that error messages name: each is one that the command line has."""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
import typer

pytest.importorskip("typer", reason="the command line needs typer: pip install rmqstore[cli]")

from typer.testing import CliRunner

from rmqstore.cli.app import app
from tests.house import tree

(UsageError,) = typer.BadParameter.__bases__

PLACE = "PATH"
"""Stands for what a message fills in."""

IN_TEXT = re.compile(
    r"\brmqstore ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)*(?: --[a-z-]+)*)((?: (?:PATH\b|\{[^}]*\}))+)"
)
"""A command in the middle of a message, with the paths that follow."""

IN_C = re.compile(r"rmqstore ([a-z]+)\b")
NAMED = re.compile(r"\brmqstore ([a-z][a-z-]*)")
"""A command in the middle of a message, with any text after it."""

VERBS = {"leaves"}
"""Words after "rmqstore" in messages that are not commands."""


def _text_of(node: ast.expr) -> str | None:
    """The text of a literal or f-string, with PLACE for what is filled in."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (each.value if isinstance(each, ast.Constant) else PLACE for each in node.values)
        return "".join(map(str, parts))
    return None


@functools.cache
def _nodes() -> dict[str, list[ast.AST]]:
    """Return the nodes of every module. Parsing all takes seconds, so nothing here is for the
    collection of tests, which every worker does."""
    return {
        name: list(ast.walk(ast.parse(tree.text_of(name), name)))
        for name in tree.files()
        if name.startswith("rmqstore/") and name.endswith(".py")
    }


def _suggested() -> Iterator[tuple[str, str]]:
    """Yield each value of a keyword suggested_command, with its place; a value that is no text is
    yielded as its source, which the test refuses."""
    for name, nodes in _nodes().items():
        for node in nodes:
            if isinstance(node, ast.keyword) and node.arg == "suggested_command":
                place = f"{name}:{node.value.lineno}"
                yield place, _text_of(node.value) or f"{place}: {ast.unparse(node.value)}"


def _in_texts() -> Iterator[tuple[str, str]]:
    for name in tree.files():
        if name.startswith("rmqstore/") and name.endswith((".py", ".pxi", ".pyx")):
            for found in IN_TEXT.finditer(tree.text_of(name)):
                paths = len(found[2].split(" ")) - 1
                yield name, f"rmqstore {found[1]}{f' {PLACE}' * paths}"
        if re.fullmatch(r"csrc/.+\.[ch]", name):
            for literal in re.findall(r'"(?:[^"\\]|\\.)*"', tree.text_of(name)):
                for found in IN_C.finditer(literal):
                    yield name, f"rmqstore {found[1]} {PLACE}"


def _named() -> Iterator[str]:
    """Yield the word after "rmqstore" in every text that is not a docstring."""
    for nodes in _nodes().values():
        documentation = {id(each.value) for each in nodes if isinstance(each, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                if id(node) not in documentation:
                    yield from NAMED.findall(node.value)


def _parse(words: list[str]) -> list[str]:
    """Return the names of the command in *words*. Raises UsageError for a command or an argument
    that there is not."""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command)
    names: list[str] = []
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        names.append(name)
    command.make_context(names[-1], words, parent=context)
    return names


def _help_of(*words: str) -> str:
    shown = CliRunner().invoke(app, [*words, "--help"])
    assert shown.exit_code == 0, (words, shown.output)
    return shown.output


def test_commands_that_messages_suggest_are_there_and_show_their_help() -> None:
    for text in sorted({text for _, text in (*_suggested(), *_in_texts())}):
        program, *words = shlex.split(text)
        assert program == "rmqstore", text
        assert "Usage" in _help_of(*_parse(words)), text


def test_commands_that_messages_name_are_there_and_show_their_help() -> None:
    names = {*_named()} - VERBS
    assert names
    for name in sorted(names):
        _help_of(name)


def test_suggestions_are_found_in_the_sources() -> None:
    words = re.compile(r"\bsuggested_command=(?!suggested_command\b)[^,)\s]")
    count = sum(
        len(words.findall(tree.text_of(name)))
        for name in tree.files()
        if re.fullmatch(r"rmqstore/.+\.(py|pyx|pxi)", name)
    )
    assert len(dict(_suggested())) == count >= 8
    assert f"rmqstore repair --yes {PLACE}" in {text for _, text in _in_texts()}


def test_a_suggestion_of_a_command_with_too_many_words_is_refused() -> None:
    with pytest.raises(UsageError):
        _parse(["repair", "queues", PLACE])
