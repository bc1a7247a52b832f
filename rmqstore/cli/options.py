"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["ConfigOption", "JsonOption", "LogFileSizeOption", "StorePath"]

StorePath = Annotated[
    Path, typer.Argument(metavar="PATH", help="The store: the folder with commitlog/ in it.")
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="A broker's configuration, where the store differs from RocketMQ's defaults.",
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
        help="The size of a commit log file, where the only one there was cut.",
    ),
]
