"""`rmqstore admin` in this process."""

from __future__ import annotations

from typer.testing import CliRunner

from rmqstore.cli.app import app


def admin(*arguments: str, code: int = 0) -> str:
    """Return what `rmqstore admin` prints with *arguments*; it exits with *code*."""
    result = CliRunner().invoke(app, ["admin", *arguments])
    assert result.exit_code == code, result.output
    return result.output
