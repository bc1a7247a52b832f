"""Exported names, the top level of the tree, and words that have no place in it."""

from __future__ import annotations

import builtins
import inspect
import re

import rmqstore
from tests.house import tree

TOP_LEVEL = re.compile(
    r"pyproject\.toml|setup\.py|pyspark_rmqstore\.py|README\.md|rmqstore|csrc|benchmarks|tests|examples|docs"
    r"|CHANGELOG\.md|LICENSE|Makefile|MANIFEST\.in|CONTRIBUTING\.md|\.ci|\.github|\.gitignore"
    r"|\.gitattributes|\.editorconfig|\.clang-format|\.pre-commit-config\.yaml"
)
# Spelt so that this file does not match itself.
FOREIGN = re.compile(
    r"(?<![\w.-])/(?:work|farm)/"
    r"|repo[.]maven|pypi[.]org|registry[.]npmjs|files[.]pythonhosted"
)
LOOSE_END = re.compile(r"\b(?:TO[D]O|FIX[M]E|X[X]X|HAC[K])\b")


def test_all_is_sorted_and_names_every_public_thing() -> None:
    exported = list(rmqstore.__all__)
    assert exported == sorted(set(exported))
    public = {
        name
        for name, value in vars(rmqstore).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    modules = {name for name in exported if inspect.ismodule(getattr(rmqstore, name))}
    # A star import must not hide builtins: rmqstore.open is called by this name.
    public -= set(dir(builtins))
    assert public == {name for name in exported if not name.startswith("_")} - modules


def test_the_top_level_holds_only_what_belongs_there() -> None:
    top = {name.partition("/")[0] for name in tree.files()}
    assert sorted(name for name in top if not TOP_LEVEL.fullmatch(name)) == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    assert _found(FOREIGN) == []


def test_no_file_leaves_a_loose_end() -> None:
    assert _found(LOOSE_END) == []


def _found(pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{name}:{number}: {line.strip()}"
        for name in tree.files()
        if name != "LICENSE"
        for number, line in enumerate(tree.text_of(name).splitlines(), 1)
        if pattern.search(line)
    ]
