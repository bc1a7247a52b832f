"""`top`: a live view of broker groups."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

from rmqstore.admin.top import HEADS, SPARE_HEADS, View, observe
from rmqstore.cli.admin_common import LOCAL_NAMESERVER, on_servers, use_tls
from rmqstore.cli.errors import ExitCode, command, print_error
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json, print_rows
from rmqstore.cli.tls_options import TlsFileOption, TlsKeyOption
from rmqstore.errors import RemotingError

__all__ = ["top"]

_HOME_AND_CLEAR = "\x1b[H\x1b[2J"


@command
def top(
    namesrv: Annotated[
        str | None,
        typer.Option(
            "-n",
            "--namesrvAddr",
            metavar="HOST:PORT;...",
            envvar="NAMESRV_ADDR",
            help="Nameservers, separated by ;. Default: 127.0.0.1:9876, without -b.",
        ),
    ] = None,
    controller: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--controllerAddress",
            metavar="HOST:PORT;...",
            help="Controllers of one group, the source of masters, epochs and sync-state sets.",
        ),
    ] = None,
    broker_name: Annotated[
        list[str] | None,
        typer.Option("-b", "--brokerName", help="A broker group; may be repeated. Default: all."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("-c", "--clusterName", help="Only groups of this cluster.")
    ] = None,
    interval: Annotated[
        float,
        typer.Option("-i", "--interval", metavar="SECONDS", min=0.01, help="Time between views."),
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one view and end.")] = False,
    tls_file: TlsFileOption = None,
    tls_keys: TlsKeyOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show roles, epochs, in-sync sets and lag of broker groups, repeatedly until Ctrl-C.

    The lag is the difference between the ends of the logs that master and slave report.
    """
    use_tls(file=tls_file, keys=tls_keys)
    if namesrv is None and (controller is None or not broker_name):
        namesrv = LOCAL_NAMESERVER

    def look() -> View:
        return on_servers(
            namesrv,
            controller,
            lambda ns, other: observe(ns, other, broker_name, cluster=cluster),
        )

    while True:
        try:
            view = look()
        except RemotingError as error:
            if once:
                raise
            print_error(str(error))
        else:
            _show(view, json=json, clears=not once)
            if once:
                return ExitCode.FAULT if view.unknown else ExitCode.OK
        sys.stdout.flush()
        time.sleep(interval)


def _show(view: View, *, json: bool, clears: bool = False) -> None:
    if json:
        print_json(view.to_fields())
        return
    if clears and sys.stdout.isatty():
        print(_HOME_AND_CLEAR, end="")
    print_rows(HEADS, [row.cells() for row in view.rows], spare=SPARE_HEADS)
    led = {row.broker_name for row in view.rows if row.is_master}
    for name, reason in sorted(view.waits.items()):
        print(f"{name}: {reason}" if name in led else f"{name} waits for a master: {reason}")
    for name in view.unknown:
        print_error(f"no server knows broker group {name}")
