"""Private names of another package's objects are not used, as far as the text shows.

A name that begins with one underscore belongs to the class, or to the module, that gives it. A
module may use such a name of another object only where the module itself defines it, and of its
own object only where its package does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.house import tree

PACKAGES = (
    "rmqstore/aio.py",
    "rmqstore/check/",
    "rmqstore/cli/",
    "rmqstore/config/",
    "rmqstore/net/",
    "rmqstore/replication/",
    "rmqstore/sim/",
    "rmqstore/spark/",
)
PRIVATE = re.compile(r"_[a-z]\w*")
OWN = {"self", "cls", "super()"}
# Documented by Python itself: these names are private in spelling only.
DOCUMENTED = {"_asdict", "_exit", "_fields", "_make", "_replace"}
# asyncio has these for the authors of event loops.
DOCUMENTED |= {"_get_running_loop", "_run", "_set_running_loop"}

FILES = [name for name in tree.files() if name.startswith(PACKAGES) and name.endswith(".py")]


@cache
def _tree(name: str) -> ast.Module:
    return ast.parse(tree.text_of(name), name)


@cache
def _defined(name: str) -> frozenset[str]:
    """Return the private names that a file gives: functions, classes, fields, slots, variables."""
    found: set[str] = set()
    for node in ast.walk(_tree(name)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                found.add(node.name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), ctx=ast.Store()):
                found.add(node.attr)
            case ast.Name(ctx=ast.Store()):
                found.add(node.id)
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=slots)):
                found |= {str(each.value) for each in slots if isinstance(each, ast.Constant)}
    return frozenset(each for each in found if PRIVATE.fullmatch(each))


def _used(node: ast.AST) -> tuple[int, str, str] | None:
    """Return (line, whose, name) of a private attribute that *node* uses."""
    match node:
        case ast.Attribute(value=value, attr=name) if PRIVATE.fullmatch(name):
            return node.lineno, ast.unparse(value), name
        case ast.Call(
            func=ast.Name(id="getattr" | "setattr" | "delattr" | "hasattr"),
            args=[value, ast.Constant(value=str(name)), *_],
        ) if PRIVATE.fullmatch(name):
            return node.lineno, ast.unparse(value), name
    return None


def _foreign(name: str) -> Iterator[str]:
    package = next(each for each in PACKAGES if name.startswith(each))
    ours = frozenset().union(*(_defined(each) for each in FILES if each.startswith(package)))
    for node in ast.walk(_tree(name)):
        used = _used(node)
        if used is not None and used[2] not in DOCUMENTED:
            line, whose, private = used
            if private not in (ours if whose in OWN else _defined(name)):
                yield f"{name}:{line}: {whose}.{private}"
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if PRIVATE.fullmatch(alias.name) and alias.name != "_native":
                    yield f"{name}:{node.lineno}: imports {alias.name} of {node.module}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_private_name_of_another_package_is_used(package: str) -> None:
    files = [name for name in FILES if name.startswith(package)]
    assert files
    wrong = [each for name in files for each in _foreign(name)]
    assert not wrong, "\n".join(wrong)
