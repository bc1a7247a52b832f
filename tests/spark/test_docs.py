"""The tables of docs/spark.md are those of the code."""

from __future__ import annotations

import re

import pytest

from rmqstore.spark import schema
from rmqstore.spark.options import Options, spark_options
from tests.house.tables import WORD, cells_of, rows_of

DOCUMENT = "docs/spark.md"
LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")


def test_columns_are_those_of_the_schema_in_its_order() -> None:
    answer = [
        (WORD.findall(row[0])[0], row[1]) for row in rows_of(DOCUMENT, "column", "type", "what")
    ]
    assert answer == [(column.name, column.ddl) for column in schema.known_columns(kafka=False)]


def test_kafka_columns_are_those_of_the_schema_in_its_order() -> None:
    answer = [
        (WORD.findall(row[0])[0], row[1]) for row in rows_of(DOCUMENT, "column", "type", "is")
    ]
    options = Options.parse({"path": "/x", "columnNames": "kafka", "includeHeaders": "true"})
    types = {column.name: column.ddl for column in schema.known_columns(kafka=True)}
    assert answer == [(name, types[name]) for name in schema.columns_of(options)]


def test_options_are_those_of_the_code_in_its_order() -> None:
    answer = [
        [LINK.sub(r"\1", cell) for cell in row]
        for row in rows_of(DOCUMENT, "option", "default", "unit", "means", "for", "Kafka's")
    ]
    wanted = []
    for option in spark_options():
        names = ", ".join(f"`{name}`" for name in (option.key, *option.aliases))
        wanted.append([names, *cells_of(option), option.effect, option.kafka])
    assert answer == wanted


def test_defaults_are_what_an_option_is_when_it_is_left_out() -> None:
    plain = Options.parse({"path": "/x"})
    for option in spark_options():
        assert option.default_text
        if option.default_text not in ("all", "none"):
            given = {"path": "/x", option.key: option.default_text}
            assert Options.parse(given) == plain, option.key


def test_columns_of_a_writer_are_those_it_takes() -> None:
    rows = pytest.importorskip("rmqstore.spark.write.rows", reason="needs the extra spark")
    answer = {WORD.findall(row[0])[0]: row[1] for row in rows_of(DOCUMENT, "column", "type", "")}
    assert list(answer) == list(rows.COLUMNS)
    for name, types in answer.items():
        kinds = [kind.lower() for kind in types.split(" or ")]
        assert set(kinds) <= set(rows.COLUMNS[name].kinds), name
        assert kinds[0] == rows.COLUMNS[name].kinds[0], name


def test_pipelines_and_commands_are_those_there_are() -> None:
    pipelines = pytest.importorskip("rmqstore.spark.pipelines", reason="needs the extra spark")
    app = pytest.importorskip("rmqstore.cli.spark", reason="needs the extra cli").app
    rows = rows_of(DOCUMENT, "function", "command")
    functions = {name for row in rows for name in WORD.findall(row[0])}
    assert functions == {name for name in pipelines.__all__ if name[0].islower()}
    commands = {WORD.findall(row[1])[0].split()[0] for row in rows}
    assert commands == {command.name for command in app.registered_commands}
