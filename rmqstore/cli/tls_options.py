"""The options of commands that use TLS: RocketMQ's file and keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqstore.config import TlsConfig

__all__ = ["TlsFileOption", "TlsKeyOption", "tls_config"]

_FILE_KEY = "tls.config.file"

TlsFileOption = Annotated[
    Path | None,
    typer.Option(
        "--tls-config",
        metavar="FILE",
        help="RocketMQ's file of tls.* keys (tls.config.file).",
        exists=True,
        dir_okay=False,
    ),
]
TlsKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "-D",
        metavar="KEY=VALUE",
        help="A tls.* key, as for Java: -Dtls.server.mode=enforcing. Overrides the file.",
    ),
]


def tls_config(file: Path | None, pairs: list[str] | None) -> TlsConfig:
    """Return the settings of a file and of pairs; without both, TLS is not used."""
    changes = {}
    for each in pairs or ():
        key, equals, value = each.partition("=")
        if not equals:
            raise typer.BadParameter(f"{each!r} is not KEY=VALUE", param_hint="-D")
        changes[key] = value
    named = changes.pop(_FILE_KEY, None)
    return TlsConfig.from_properties(file or (named and Path(named)), changes)
