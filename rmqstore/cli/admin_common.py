"""Shared parts of the commands of `admin`: options, event loop, and printing of results."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import Annotated, TypeVar

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.admin.controller import ControllerAdmin
from rmqstore.admin.nameserver import NameserverAdmin
from rmqstore.admin.servers import Change, ServerAdmin
from rmqstore.cli.errors import ExitCode, command, print_error
from rmqstore.cli.output import print_json, print_rows
from rmqstore.cli.tls_options import TlsFileOption, TlsKeyOption, tls_config
from rmqstore.net.tls import TlsClient

__all__ = [
    "LOCAL_NAMESERVER",
    "IntervalOption",
    "KeyOption",
    "NamesrvOption",
    "ValueOption",
    "on_brokers",
    "on_controllers",
    "on_nameservers",
    "on_servers",
    "print_changes",
    "print_configurations",
    "print_table",
    "repeat",
    "use_tls",
]

A = TypeVar("A", bound=ServerAdmin)
T = TypeVar("T")

_tls: ContextVar[TlsClient | None] = ContextVar("tls", default=None)
"""The TLS of the present command."""

LOCAL_NAMESERVER = "127.0.0.1:9876"

NamesrvOption = Annotated[
    str,
    typer.Option(
        "-n",
        "--namesrvAddr",
        metavar="HOST:PORT;...",
        envvar="NAMESRV_ADDR",
        help="Nameservers, separated by ;. Default: 127.0.0.1:9876.",
    ),
]
KeyOption = Annotated[str, typer.Option("-k", "--key", help="Key.")]
ValueOption = Annotated[str, typer.Option("-v", "--value", help="Value.")]
IntervalOption = Annotated[
    float | None,
    typer.Option(
        "-i",
        "--interval",
        metavar="SECONDS",
        min=0.01,
        help="Time between two queries, until Ctrl-C. Default: one query.",
    ),
]


@command
def use_tls(file: TlsFileOption = None, keys: TlsKeyOption = None) -> ExitCode:
    """Run before each command of `admin`: its connections use TLS with tls.enable=true."""
    _tls.set(TlsClient.from_config(tls_config(file, keys)))
    return ExitCode.OK


def on_nameservers(addresses: str, call: Callable[[NameserverAdmin], Awaitable[T]]) -> T:
    """Return the result of *call* with the nameservers at *addresses*."""
    return _run(lambda: NameserverAdmin(addresses, tls=_tls.get()), call)


def on_brokers(addresses: str, call: Callable[[BrokerAdmin], Awaitable[T]]) -> T:
    """Return the result of *call* with brokers that the nameservers at *addresses* know."""
    return _run(lambda: BrokerAdmin(addresses, tls=_tls.get()), call)


def on_controllers(addresses: str, call: Callable[[ControllerAdmin], Awaitable[T]]) -> T:
    """Return the result of *call* with the controllers at *addresses*."""
    return _run(lambda: ControllerAdmin(addresses, tls=_tls.get()), call)


def on_servers(
    nameservers: str | None,
    controllers: str | None,
    call: Callable[[NameserverAdmin | None, ControllerAdmin | None], Awaitable[T]],
) -> T:
    """Return the result of *call* with both kinds of servers; None for a kind without addresses."""

    async def work() -> T:
        async with AsyncExitStack() as stack:
            nameserver = controller = None
            if nameservers is not None:
                nameserver = NameserverAdmin(nameservers, tls=_tls.get())
                await stack.enter_async_context(nameserver)
            if controllers is not None:
                controller = ControllerAdmin(controllers, tls=_tls.get())
                await stack.enter_async_context(controller)
            return await call(nameserver, controller)

    return asyncio.run(work())


def _run(make: Callable[[], A], call: Callable[[A], Awaitable[T]]) -> T:
    async def work() -> T:
        async with make() as admin:
            return await call(admin)

    return asyncio.run(work())


def repeat(show: Callable[[], ExitCode], interval_s: float | None) -> ExitCode:
    """Return the result of *show*; with an interval, repeat it until it raises."""
    while True:
        code = show()
        if interval_s is None:
            return code
        sys.stdout.flush()
        time.sleep(interval_s)


def print_table(
    heads: Sequence[str], members: Sequence[str], rows: Sequence[Sequence[object]], *, json: bool
) -> None:
    """Print *rows* below *heads*; with *json* print each row as an object with *members*."""
    if not json:
        print_rows(heads, [["" if cell is None else cell for cell in row] for row in rows])
        return
    for row in rows:
        print_json(dict(zip(members, row, strict=True)))


def print_configurations(
    server: str, found: Mapping[str, Mapping[str, str]], *, json: bool
) -> ExitCode:
    """Print the configuration of each *server* by its address."""
    rows = [
        (address, key, value)
        for address, pairs in found.items()
        for key, value in sorted(pairs.items())
    ]
    print_table((server, "key", "value"), (server, "key", "value"), rows, json=json)
    return ExitCode.OK


def print_changes(server: str, changes: Sequence[Change], *, json: bool) -> ExitCode:
    """Print the result of each *server*. Return FAILED if any server did not make the change."""
    for change in changes:
        topics = {} if change.topic_count is None else {"topics": change.topic_count}
        if change.error is not None:
            print_error(f"{change.address}: not changed: {change.error}")
        elif json:
            remark = {} if change.remark is None else {"remark": change.remark}
            print_json({server: change.address, "changed": True, **topics, **remark})
        else:
            suffix = f", {change.topic_count} topics" if topics else ""
            suffix += "" if change.remark is None else f", {change.remark}"
            print(f"{change.address}: changed{suffix}")
    is_failed = any(change.error is not None for change in changes)
    return ExitCode.FAILED if is_failed else ExitCode.OK
