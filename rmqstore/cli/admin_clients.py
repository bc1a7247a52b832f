"""The commands of `admin` for clients: producers, consumers, and questions to consumers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.cli.admin_common import LOCAL_NAMESERVER, NamesrvOption, on_brokers, print_table
from rmqstore.cli.admin_targets import BrokerOption, TopicOption
from rmqstore.cli.errors import ExitCode, command
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json
from rmqstore.remoting.bodies.queue_name import QueueName

__all__ = [
    "consumer_connection",
    "consumer_status",
    "get_consumer_status",
    "producer",
    "producer_connection",
]

ConsumerGroupOption = Annotated[
    str, typer.Option("-g", "--consumerGroup", help="Name of a consumer group.")
]
_CONNECTION = ("clientId", "clientAddr", "language", "version")


@command
def producer_connection(
    group: Annotated[str, typer.Option("-g", "--producerGroup", help="Name of a producer group.")],
    topic: TopicOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """List the members of a producer group at the brokers of a topic."""
    found = on_brokers(namesrv, lambda admin: admin.producer_connections(group, topic))
    return _print_connections(found, json=json)


@command
def producer(
    broker: Annotated[
        str, typer.Option("-b", "--broker", metavar="HOST:PORT", help="Address of a broker.")
    ],
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """List all producers of a broker."""
    found = on_brokers(namesrv, lambda admin: admin.producers(broker))
    names = ("clientId", "remoteIP", "language", "version", "lastUpdateTimestamp")
    rows = [
        (group, *(each.get(name) for name in names))
        for group, members in sorted(found.items())
        for each in members
    ]
    heads = ("group", "client id", "address", "language", "version", "last heartbeat")
    print_table(heads, ("group", *names), rows, json=json)
    return ExitCode.OK


@command
def consumer_connection(
    group: ConsumerGroupOption,
    broker: BrokerOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """List the members of a consumer group, and what they subscribe to."""
    found = on_brokers(namesrv, lambda admin: admin.consumer_connections(group, broker))
    if json:
        print_json(found)
        return ExitCode.OK
    _print_connections(found.get("connectionSet", []), json=False)
    print()
    rows = [
        (topic, each.get("subString")) for topic, each in found.get("subscriptionTable", {}).items()
    ]
    print_table(("topic", "expression"), ("topic", "expression"), sorted(rows), json=False)
    print()
    names = ("consumeType", "messageModel", "consumeFromWhere")
    rows = [(name, found.get(name)) for name in names]
    print_table(("setting", "value"), ("setting", "value"), rows, json=False)
    return ExitCode.OK


def _print_connections(found: Sequence[Mapping[str, Any]], *, json: bool) -> ExitCode:
    rows = [tuple(each.get(name) for name in _CONNECTION) for each in found]
    print_table(("client id", "address", "language", "version"), _CONNECTION, rows, json=json)
    return ExitCode.OK


@command
def consumer_status(
    group: ConsumerGroupOption,
    client_id: Annotated[
        str | None, typer.Option("-i", "--clientId", help="One member. Default: all.")
    ] = None,
    broker: BrokerOption = None,
    stacks: Annotated[
        bool, typer.Option("-s", "--jstack", help="Show the stacks of the threads, too.")
    ] = False,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the queues that consumers of a group read, as they report them."""

    async def work(admin: BrokerAdmin) -> Mapping[str, Mapping[str, Any]]:
        if client_id is not None:
            members = [client_id]
        else:
            known = await admin.consumer_connections(group, broker)
            members = sorted({each.get("clientId", "") for each in known.get("connectionSet", [])})
        return {
            each: await admin.running_info(group, each, broker=broker, with_stacks=stacks)
            for each in members
        }

    found = on_brokers(namesrv, work)
    if json:
        for member, info in found.items():
            print_json({"clientId": member, **info})
        return ExitCode.OK
    rows = [
        (member, *QueueName.of_key(key), each.get("commitOffset"), each.get("cachedMsgCount"))
        for member, info in found.items()
        for key, each in info.get("mqTable", {}).items()
    ]
    heads = ("client id", "topic", "broker name", "queue", "next offset", "messages in memory")
    print_table(heads, heads, rows, json=False)
    for member, info in found.items():
        if info.get("jstack"):
            print(f"\n{member}\n{info['jstack']}")
    return ExitCode.OK


@command
def get_consumer_status(
    group: Annotated[str, typer.Option("-g", "--group", help="Name of a consumer group.")],
    topic: TopicOption,
    client_id: Annotated[
        str | None, typer.Option("-i", "--originClientId", help="One member. Default: all.")
    ] = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the next offset of each queue, as the consumers of a group have it in memory."""
    found = on_brokers(namesrv, lambda admin: admin.consumer_status(group, topic, client_id))
    rows = [
        (member, name.broker_name, name.queue_id, offset)
        for member, offsets in sorted(found.items())
        for name, offset in sorted(offsets.items())
    ]
    members = ("clientId", "brokerName", "queueId", "offset")
    print_table(("client id", "broker name", "queue", "next offset"), members, rows, json=json)
    return ExitCode.OK
