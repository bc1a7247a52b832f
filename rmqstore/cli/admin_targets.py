"""Which brokers a command of `admin` is for, and the options that name them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Annotated, Any, TypeVar

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.admin.servers import Change
from rmqstore.cli.admin_common import on_brokers, print_changes
from rmqstore.cli.errors import ExitCode
from rmqstore.cli.output import time_text

__all__ = [
    "BrokerOption",
    "GroupOption",
    "MastersOption",
    "MembersOption",
    "Switch",
    "TopicOption",
    "at_masters",
    "at_members",
    "print_broker_changes",
    "switch",
    "time_cell",
]

T = TypeVar("T")

BrokerOption = Annotated[
    str | None,
    typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Address of one broker."),
]
MastersOption = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="All masters of this cluster.")
]
MembersOption = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="All brokers of this cluster.")
]
TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Name of a topic.")]
GroupOption = Annotated[str, typer.Option("-g", "--groupName", help="Name of a consumer group.")]


class Switch(StrEnum):
    """The value of a switch; mqadmin writes it out."""

    TRUE = "true"
    FALSE = "false"


def switch(short: str, long: str, text: str) -> Any:
    """Return a switch in the form of mqadmin: an option with the value true or false."""
    return typer.Option(short, long, help=text, case_sensitive=False)


def at_masters(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    call: Callable[[BrokerAdmin, Sequence[str]], Awaitable[T]],
) -> T:
    """Return the result of *call* with the broker of -b, or the masters of the cluster of -c."""
    return _at(namesrv, broker, cluster, call, only_masters=True)


def at_members(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    call: Callable[[BrokerAdmin, Sequence[str]], Awaitable[T]],
) -> T:
    """Return the result of *call* with the broker of -b, or all brokers of the cluster of -c."""
    return _at(namesrv, broker, cluster, call, only_masters=False)


def _at(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    call: Callable[[BrokerAdmin, Sequence[str]], Awaitable[T]],
    *,
    only_masters: bool,
) -> T:
    """Returns the result of *call* with the addresses of the brokers that -b or -c names."""
    if (broker is None) == (cluster is None):
        raise typer.BadParameter("give the address of a broker (-b) or a cluster (-c)")

    async def work(admin: BrokerAdmin) -> T:
        if broker is not None:
            return await call(admin, (broker,))
        assert cluster is not None
        find = admin.masters if only_masters else admin.members
        return await call(admin, await find(cluster))

    return on_brokers(namesrv, work)


def print_broker_changes(changes: Sequence[Change], *, json: bool) -> ExitCode:
    """Print the result of each broker; return FAILED if any did not make the change."""
    return print_changes("broker", changes, json=json)


def time_cell(time_ms: int) -> str:
    """Return a time as a cell of a table, which is empty for 0."""
    return time_text(time_ms) if time_ms else ""
