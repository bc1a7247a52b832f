"""C functions assert what only a bug of this project could break."""

from __future__ import annotations

import re

import pytest

from tests.house import tree

COMMENT_OR_TEXT = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
# clang-format leaves the braces of a function, and only those, alone in the first column.
FUNCTION = re.compile(r"\)\n\{\n(.*?)^\}$", re.DOTALL | re.MULTILINE)
ASSERTION = re.compile(r"\bassert\([^;]*;")
LINES_MIN = 5
"""Beside assertions. Shorter functions mostly hand a call on, or read one field."""
FOLDERS = sorted({name.split("/")[1] for name in tree.files() if re.match(r"csrc/\w+/", name)})


def count(code: str) -> tuple[int, int]:
    """Return how many functions have LINES_MIN lines and more, and the assertions in them."""
    functions = assertions = 0
    for body in FUNCTION.findall(COMMENT_OR_TEXT.sub("", code)):
        rest, found = ASSERTION.subn("", body)
        if sum(bool(line.strip()) for line in rest.splitlines()) >= LINES_MIN:
            functions += 1
            assertions += found
    return functions, assertions


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_have_an_assertion_each_on_average(folder: str) -> None:
    names = [name for name in tree.files() if re.match(rf"csrc/{folder}/.+\.[ch]$", name)]
    functions, assertions = count("\n".join(map(tree.text_of, names)))
    assert functions > 0
    assert assertions >= functions, (
        f"csrc/{folder} has {assertions} assertions in {functions} functions of {LINES_MIN} lines "
        "and more; assert the preconditions of new functions and the state they leave"
    )


def test_comments_texts_and_short_functions_do_not_count() -> None:
    lines = "    a();\n" * LINES_MIN
    assert count(f"int f(int n)\n{{\n    assert(n > 0);\n{lines}}}\n") == (1, 1)
    assert count(f'int f(int n)\n{{\n    /* assert(n); */\n    g("assert(n);");\n{lines}}}\n') == (
        1,
        0,
    )
    assert count("int f(int n)\n{\n    assert(n);\n    assert(n);\n    return n;\n}\n") == (0, 0)
