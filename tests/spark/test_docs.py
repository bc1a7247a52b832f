"""The tables of docs/spark.md are those of the code."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from rmqstore.errors import ArgumentError
from rmqstore.spark import schema
from rmqstore.spark.options import Options
from tests.house import tree

CELL = re.compile(r"(?<!\\)\|")
WORD = re.compile(r"`([^`]+)`")


def _tables() -> Iterator[list[list[str]]]:
    """Yield the tables of the document as rows of cells, heads first."""
    table: list[list[str]] = []
    for line in [*tree.text_of("docs/spark.md").splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in CELL.split(line)[1:-1]])
        elif table:
            yield [table[0], *table[2:]]
            table = []


def _rows(*head: str) -> list[list[str]]:
    """Return the rows of the one table whose head begins like this."""
    found = [table for table in _tables() if table[0][: len(head)] == list(head)]
    assert len(found) == 1, head
    return found[0][1:]


def _known_options() -> set[str]:
    with pytest.raises(ArgumentError) as caught:
        Options.parse({"path": "/x", "zzzzzzzzzzzz": "1"})
    return set(str(caught.value).partition("there are ")[2].split(", "))


def test_columns_are_those_of_the_schema_in_its_order() -> None:
    told = [(WORD.findall(row[0])[0], row[1]) for row in _rows("column", "type", "what")]
    assert told == [(column.name, column.ddl) for column in schema.known_columns(kafka=False)]


def test_kafka_columns_are_those_of_the_schema_in_its_order() -> None:
    told = [(WORD.findall(row[0])[0], row[1]) for row in _rows("column", "type", "is")]
    options = Options.parse({"path": "/x", "columnNames": "kafka", "includeHeaders": "true"})
    types = {column.name: column.ddl for column in schema.known_columns(kafka=True)}
    assert told == [(name, types[name]) for name in schema.columns_of(options)]


def test_every_option_has_a_row_and_only_options_have() -> None:
    named = [name for row in _rows("option", "default") for name in WORD.findall(row[0])]
    assert len(named) == len(set(named))
    assert {*named, "path", "paths"} == _known_options()


def test_defaults_are_what_an_option_is_when_it_is_left_out() -> None:
    plain = Options.parse({"path": "/x"})
    for row in _rows("option", "default"):
        default = WORD.match(row[1])
        if default is None:
            assert row[1].split()[0] in ("all", "none"), row
            continue
        for name in WORD.findall(row[0]):
            assert Options.parse({"path": "/x", name: default[1]}) == plain, name


def test_columns_of_a_writer_are_those_it_takes() -> None:
    rows = pytest.importorskip("rmqstore.spark.rows", reason="needs the extra spark")
    told = {WORD.findall(row[0])[0]: row[1] for row in _rows("column", "type", "")}
    assert list(told) == list(rows.COLUMNS)
    for name, types in told.items():
        kinds = [kind.lower() for kind in types.split(" or ")]
        assert set(kinds) <= set(rows.COLUMNS[name].kinds), name
        assert kinds[0] == rows.COLUMNS[name].kinds[0], name


def test_pipelines_and_commands_are_those_there_are() -> None:
    pipelines = pytest.importorskip("rmqstore.spark.pipelines", reason="needs the extra spark")
    app = pytest.importorskip("rmqstore.cli.spark", reason="needs the extra cli").app
    rows = _rows("function", "command")
    functions = {name for row in rows for name in WORD.findall(row[0])}
    assert functions == {name for name in pipelines.__all__ if name[0].islower()}
    commands = {WORD.findall(row[1])[0].split()[0] for row in rows}
    assert commands == {command.name for command in app.registered_commands}
