"""What several modules share has one definition: permission bits, layouts of files, names."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.house import tree

SOURCES = [name for name in tree.files() if re.fullmatch(r"(rmqstore|benchmarks)/.+\.py", name)]
PERMISSIONS = "rmqstore/permissions.py"
PERMISSION_NAME = re.compile(r"_?(perm\w*|read|write|inherit|read_(and_)?write)", re.IGNORECASE)
LAYOUTS = {
    ">qiq": "rmqstore/queue_units.py",
    ">qiqqqhii": "rmqstore/queue_units.py",
    ">hqqh": "rmqstore/queue_units.py",
    ">qqqqii": "rmqstore/index_layout.py",
    ">iqii": "rmqstore/index_layout.py",
    ">6q": "rmqstore/checkpoint.py",
    ">qI": "rmqstore/checkpoint.py",
}


def _name_of(node: ast.expr | None) -> str:
    return node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")


def _is_number(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value > 0


def _pairs(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield the names that *node* gives a value, or compares with one, each with the value."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
            yield from ((_name_of(name), value) for name, value in zip(names, values, strict=False))
        case ast.Assign(targets=targets, value=value):
            yield from ((_name_of(target), value) for target in targets)
        case ast.AnnAssign(target=target, value=value):
            yield _name_of(target), value
        case ast.keyword(arg=str(name), value=value):
            yield name, value
        case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr(), right=right):
            yield _name_of(left), right
            yield _name_of(right), left
        case ast.Compare(left=left, comparators=right):
            for one, other in zip([left, *right], [*right, left], strict=True):
                yield _name_of(one), other
        case ast.arguments():
            names = [*node.posonlyargs, *node.args][-len(node.defaults) :]
            yield from (
                (each.arg, value) for each, value in zip(names, node.defaults, strict=False)
            )
            yield from (
                (each.arg, value)
                for each, value in zip(node.kwonlyargs, node.kw_defaults, strict=True)
            )


def _permission_numbers(text: str) -> list[int]:
    return [
        value.lineno
        for node in ast.walk(ast.parse(text))
        for name, value in _pairs(node)
        if PERMISSION_NAME.fullmatch(name) and value is not None and _is_number(value)
    ]


@pytest.mark.parametrize(
    "text",
    [
        "_READ, _WRITE = 4, 2",
        "_READ_AND_WRITE = 6",
        "class Topic:\n    perm: int = 6",
        "if topic.perm & 2: pass",
        "if 0 <= topic.perm <= 7: pass",
        "Topic('orders', perm=6)",
        "def topic(name, perm=6): pass",
        "def topic(name, *, permission=6): pass",
    ],
)
def test_a_permission_as_a_number_is_found(text: str) -> None:
    assert _permission_numbers(text)


def test_permission_bits_are_defined_once() -> None:
    found = {name: _permission_numbers(tree.text_of(name)) for name in SOURCES}
    del found[PERMISSIONS]
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_each_layout_of_a_file_is_defined_once() -> None:
    found = [
        (node.value, name)
        for name in SOURCES
        for node in ast.walk(ast.parse(tree.text_of(name)))
        if isinstance(node, ast.Constant) and node.value in LAYOUTS
    ]
    assert sorted(found) == sorted(LAYOUTS.items())


def test_the_name_of_a_queue_has_one_class() -> None:
    found = defaultdict(list)
    for name in SOURCES:
        for node in ast.walk(ast.parse(tree.text_of(name))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(name)
    assert found["QueueName"] == ["rmqstore/remoting/bodies/queue_name.py"]
