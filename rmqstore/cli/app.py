"""The command line with all its commands, each of which is imported when it is run."""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from rmqstore.cli.errors import EXIT_CODES

__all__ = ["app"]

_PLACES = {
    "ls": "show:list_queues",
    "info": "show:info",
    "get": "query:get",
    "tail": "query:tail",
    "grep": "query:grep",
    "verify": "check:verify",
    "repair": "check:repair",
    "epoch": "epoch:epoch",
    "diff": "diff:diff",
    "dump": "show:dump",
    "import": "load:import_files",
    "replica": "replica:app",
    "serve": "serve:app",
    "admin": "admin:app",
    "top": "top:top",
    "bench": "bench:app",
    "spark": "spark:app",
    "demo": "demo.command:demo",
}
"""Module and name of each command: a function, or a group of commands."""


class _Commands(TyperGroup):
    """Imports a command at its first use: importing all of them takes half a second."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        names: dict[str, Any] = dict.fromkeys(_PLACES)
        self.commands = names

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command, None for an unknown name."""
        if cmd_name in _PLACES and self.commands[cmd_name] is None:
            self.commands[cmd_name] = _imported(cmd_name)
        return self.commands.get(cmd_name)


def _imported(name: str) -> Any:
    module, _, attribute = _PLACES[name].partition(":")
    found = getattr(import_module(f"rmqstore.cli.{module}"), attribute)
    holder = typer.Typer(rich_markup_mode=None)
    if isinstance(found, typer.Typer):
        holder.add_typer(found, name=name)
    else:
        holder.command(name, epilog=EXIT_CODES)(found)
    return get_group(holder).commands[name]


app = typer.Typer(
    name="rmqstore",
    cls=_Commands,
    help=(
        "Look into, check, repair and fill message stores, RocketMQ's own included.\n\n"
        "Every command takes the directory that holds `commitlog/`. Only repair, import, replica, "
        "bench and demo write; all others may be used while a broker runs on the store."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"rmqstore {metadata.version('rmqstore')}")
        except metadata.PackageNotFoundError:
            print("rmqstore, run from a source tree")
        for line in import_module("rmqstore.cli.parts").part_lines():
            print(line)
        raise typer.Exit


@app.callback()
def prepare(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and the parts that were built, and exit.",
            callback=_show_version,
        ),
    ] = False,
) -> None:
    """Run before every command."""
    # Stored text may contain characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
