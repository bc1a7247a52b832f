"""Where the command line begins: says what to install when typer is missing."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command that the process's arguments name, and exit with its code."""
    try:
        from rmqstore.cli.app import app
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("rich", "typer"):
            raise
        print(
            f"rmqstore: the command line needs {error.name}; pip install 'rmqstore[cli]'",
            file=sys.stderr,
        )
        sys.exit(1)
    app()
