"""Arguments and options that several commands share, and options from the option table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from rmqstore.arguments import INT32_MAX, INT64_MAX
from rmqstore.config import Configuration

__all__ = ["ConfigOption", "JsonOption", "LogFileSizeOption", "StorePath", "setting"]

StorePath = Annotated[
    Path, typer.Argument(metavar="PATH", help="The store: the folder with commitlog/ in it.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A RocketMQ broker's configuration. Default: RocketMQ's defaults, and settings "
        "found in the files of the store.",
        exists=True,
        dir_okay=False,
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print lines of JSON.")]
LogFileSizeOption = Annotated[
    int | None,
    typer.Option(
        metavar="BYTES",
        min=128,
        help="The size of a commit log file, if the only file was truncated.",
    ),
]


def setting(name: str, *flags: str, metavar: str | None = None) -> Any:
    """Return the option of a command that overrides the configuration's field *name*.

    Help and limits come from the option table. The parameter is None if the option is not given.
    """
    about = Configuration.options()[name]
    if isinstance(about.default, bool):
        return typer.Option(*flags, help=about.help_text)
    high = None if about.high in (INT32_MAX, INT64_MAX) else about.high
    return typer.Option(*flags, help=about.help_text, metavar=metavar, min=about.low, max=high)
