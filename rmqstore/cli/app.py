"""The command line with all its commands."""

from __future__ import annotations

import sys
from importlib import metadata
from typing import Annotated

import typer

from rmqstore.cli import (
    admin,
    bench,
    check,
    diff,
    epoch,
    load,
    query,
    replica,
    serve,
    show,
    spark,
    top,
)
from rmqstore.cli.demo import command as demo
from rmqstore.cli.errors import EXIT_CODES

__all__ = ["app"]

app = typer.Typer(
    name="rmqstore",
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

app.command("ls", epilog=EXIT_CODES)(show.list_queues)
app.command("info", epilog=EXIT_CODES)(show.info)
app.command("get", epilog=EXIT_CODES)(query.get)
app.command("tail", epilog=EXIT_CODES)(query.tail)
app.command("grep", epilog=EXIT_CODES)(query.grep)
app.command("verify", epilog=EXIT_CODES)(check.verify)
app.command("repair", epilog=EXIT_CODES)(check.repair)
app.command("epoch", epilog=EXIT_CODES)(epoch.epoch)
app.command("diff", epilog=EXIT_CODES)(diff.diff)
app.command("dump", epilog=EXIT_CODES)(show.dump)
app.command("import", epilog=EXIT_CODES)(load.import_files)
app.add_typer(replica.app, name="replica")
app.add_typer(serve.app, name="serve")
app.add_typer(admin.app, name="admin")
app.command("top", epilog=EXIT_CODES)(top.top)
app.add_typer(bench.app, name="bench")
app.add_typer(spark.app, name="spark")
app.command("demo", epilog=EXIT_CODES)(demo.demo)


def _show_version(wanted: bool) -> None:
    if wanted:
        try:
            print(f"rmqstore {metadata.version('rmqstore')}")
        except metadata.PackageNotFoundError:
            print("rmqstore, run from a source tree")
        raise typer.Exit


@app.callback()
def prepare(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_show_version),
    ] = False,
) -> None:
    """Run before every command."""
    # Stored text may contain characters that the terminal cannot show.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
