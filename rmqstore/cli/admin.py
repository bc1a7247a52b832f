"""`admin`: requests to running servers, with the names and options of mqadmin."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, TypeVar

import typer

from rmqstore.admin.nameserver import Change, NameserverAdmin
from rmqstore.cli.errors import EXIT_CODES, ExitCode, command, print_error
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json, print_rows

__all__ = ["app"]

T = TypeVar("T")

app = typer.Typer(
    help=(
        "Query and change nameservers, RocketMQ's or those of this library. Names "
        "and options are those of mqadmin. A query goes to the first nameserver that answers, "
        "a change to all of them."
    ),
    epilog=EXIT_CODES,
    no_args_is_help=True,
)

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
TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Name of a topic.")]
BrokerNameOption = Annotated[
    str, typer.Option("-b", "--brokerName", help="Name of a broker group.")
]
NamespaceOption = Annotated[str, typer.Option("-s", "--namespace", help="Namespace of the pair.")]
KeyOption = Annotated[str, typer.Option("-k", "--key", help="Key.")]
ValueOption = Annotated[str, typer.Option("-v", "--value", help="Value.")]

_LOCAL = "127.0.0.1:9876"


def _run(addresses: str, call: Callable[[NameserverAdmin], Awaitable[T]]) -> T:
    async def work() -> T:
        async with NameserverAdmin(addresses) as admin:
            return await call(admin)

    return asyncio.run(work())


@app.command("topicList", epilog=EXIT_CODES)
@command
def topic_list(
    namesrv: NamesrvOption = _LOCAL,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", help="Topics of this cluster only.")
    ] = None,
    json: JsonOption = False,
) -> ExitCode:
    """List the topics that have a route."""
    topics = _run(namesrv, lambda admin: admin.topic_list(cluster))
    for topic in topics:
        if json:
            print_json({"topic": topic})
        else:
            print(topic)
    return ExitCode.OK


@app.command("clusterList", epilog=EXIT_CODES)
@command
def cluster_list(namesrv: NamesrvOption = _LOCAL, json: JsonOption = False) -> ExitCode:
    """List the live brokers."""
    info = _run(namesrv, lambda admin: admin.cluster_list())
    rows = [
        (cluster, name, broker_id, address, info.brokers[name].enable_acting_master)
        for cluster, names in sorted(info.clusters.items())
        for name in sorted(names)
        if name in info.brokers
        for broker_id, address in sorted(info.brokers[name].addresses.items())
    ]
    members = ("cluster", "brokerName", "brokerId", "address", "enableActingMaster")
    _print(("cluster", "broker name", "id", "address", "acting master"), members, rows, json=json)
    return ExitCode.OK


@app.command("topicRoute", epilog=EXIT_CODES)
@command
def topic_route(
    topic: TopicOption, namesrv: NamesrvOption = _LOCAL, json: JsonOption = False
) -> ExitCode:
    """Show the brokers and queues of a topic."""
    route = _run(namesrv, lambda admin: admin.topic_route(topic))
    brokers = {each.broker_name: each for each in route.brokers}

    rows = [
        (
            queue.broker_name,
            queue.read_queues,
            queue.write_queues,
            queue.perm,
            " ".join(
                f"{broker_id}={address}"
                for broker_id, address in sorted(brokers[queue.broker_name].addresses.items())
            ),
        )
        for queue in sorted(route.queues, key=lambda each: each.broker_name)
        if queue.broker_name in brokers
    ]

    members = ("brokerName", "readQueueNums", "writeQueueNums", "perm", "brokerAddrs")
    heads = ("broker name", "read queues", "write queues", "permission", "addresses")
    _print(heads, members, rows, json=json)
    return ExitCode.OK


@app.command("getNamesrvConfig", epilog=EXIT_CODES)
@command
def get_namesrv_config(namesrv: NamesrvOption = _LOCAL, json: JsonOption = False) -> ExitCode:
    """Show the configuration of each nameserver."""
    found = _run(namesrv, lambda admin: admin.get_namesrv_config())
    rows = [
        (address, key, value)
        for address, pairs in found.items()
        for key, value in sorted(pairs.items())
    ]
    _print(("nameserver", "key", "value"), ("nameserver", "key", "value"), rows, json=json)
    return ExitCode.OK


@app.command("updateNamesrvConfig", epilog=EXIT_CODES)
@command
def update_namesrv_config(
    key: KeyOption, value: ValueOption, namesrv: NamesrvOption = _LOCAL, json: JsonOption = False
) -> ExitCode:
    """Change one key of the configuration of each nameserver."""
    return _changed(_run(namesrv, lambda admin: admin.update_namesrv_config(key, value)), json=json)


@app.command("updateKvConfig", epilog=EXIT_CODES)
@command
def update_kv_config(
    namespace: NamespaceOption,
    key: KeyOption,
    value: ValueOption,
    namesrv: NamesrvOption = _LOCAL,
    json: JsonOption = False,
) -> ExitCode:
    """Add or replace a pair of the key-value configuration."""
    return _changed(
        _run(namesrv, lambda admin: admin.update_kv_config(namespace, key, value)), json=json
    )


@app.command("deleteKvConfig", epilog=EXIT_CODES)
@command
def delete_kv_config(
    namespace: NamespaceOption,
    key: KeyOption,
    namesrv: NamesrvOption = _LOCAL,
    json: JsonOption = False,
) -> ExitCode:
    """Remove a pair of the key-value configuration."""
    return _changed(_run(namesrv, lambda admin: admin.delete_kv_config(namespace, key)), json=json)


@app.command("wipeWritePerm", epilog=EXIT_CODES)
@command
def wipe_write_perm(
    broker_name: BrokerNameOption, namesrv: NamesrvOption = _LOCAL, json: JsonOption = False
) -> ExitCode:
    """Clear the write permission of all topics of a broker name."""
    return _changed(_run(namesrv, lambda admin: admin.wipe_write_perm(broker_name)), json=json)


@app.command("addWritePerm", epilog=EXIT_CODES)
@command
def add_write_perm(
    broker_name: BrokerNameOption, namesrv: NamesrvOption = _LOCAL, json: JsonOption = False
) -> ExitCode:
    """Set read and write permission of all topics of a broker name."""
    return _changed(_run(namesrv, lambda admin: admin.add_write_perm(broker_name)), json=json)


def _print(
    heads: Sequence[str], members: Sequence[str], rows: Sequence[Sequence[object]], *, json: bool
) -> None:
    if not json:
        print_rows(heads, rows)
        return
    for row in rows:
        print_json(dict(zip(members, row, strict=True)))


def _changed(changes: Sequence[Change], *, json: bool) -> ExitCode:
    """Prints the result of each nameserver. Returns FAILED when one did not make the change."""
    for change in changes:
        topics = {} if change.topic_count is None else {"topics": change.topic_count}
        if change.error is not None:
            print_error(f"{change.address}: not changed: {change.error}")
        elif json:
            print_json({"nameserver": change.address, "changed": True, **topics})
        else:
            suffix = f", {change.topic_count} topics" if topics else ""
            print(f"{change.address}: changed{suffix}")
    is_failed = any(change.error is not None for change in changes)
    return ExitCode.FAILED if is_failed else ExitCode.OK
