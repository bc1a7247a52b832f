"""Where tests and their helpers lie."""

from __future__ import annotations

import ast

import pytest

from tests.house import tree

SHARED = {"support", "c", "golden", "house", "reference", "scenarios"}
"""Folders whose helpers tests of every folder may import; c has the core, golden the stores of
Java, reference the codecs and scenarios the replayed machines."""
WHOLE_TESTS = {"tests.crash.test_role_change.lose_power"}
"""Tests that another folder runs on code it has changed."""
MODULES = [name for name in tree.files() if name.startswith("tests/") and name.endswith(".py")]


def _imported(name: str) -> set[str]:
    """Return the modules of tests that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(tree.text_of(name), name)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests"):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@pytest.mark.parametrize("name", MODULES)
def test_helpers_that_folders_share_are_in_support(name: str) -> None:
    own = name.split("/")[1]
    for imported in _imported(name) - WHOLE_TESTS:
        folder = imported.split(".")[1]
        assert folder == own or folder in SHARED, f"{imported}: move it to tests/support"
