"""The tables of the documents, and the row that an option has in one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rmqstore.config import Option
from tests.house import tree

__all__ = ["WORD", "cells_of", "rows_of", "tables_of"]

CELL = re.compile(r"(?<!\\)\|")
WORD = re.compile(r"`([^`]+)`")


def tables_of(document: str) -> Iterator[list[list[str]]]:
    """Yield the tables of *document* as rows of cells, heads first."""
    table: list[list[str]] = []
    for line in [*tree.text_of(document).splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in CELL.split(line)[1:-1]])
        elif table:
            yield [table[0], *table[2:]]
            table = []


def rows_of(document: str, *head: str) -> list[list[str]]:
    """Return the rows of the one table of *document* whose head begins like this."""
    found = [table for table in tables_of(document) if table[0][: len(head)] == list(head)]
    assert len(found) == 1, head
    return found[0][1:]


def cells_of(option: Option) -> list[str]:
    """Return default, unit and help of *option* as cells of a table."""
    is_value = option.default_text not in ("", "all", "none")
    default = f"`{option.default_text}`" if is_value else option.default_text or "none"
    return [default, option.unit, option.help.replace("|", "\\|")]
