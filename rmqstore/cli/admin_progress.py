"""The commands of `admin` for the offsets of groups, lists of groups, and units of queues."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rmqstore.cli.admin_common import LOCAL_NAMESERVER, NamesrvOption, on_brokers, print_table
from rmqstore.cli.admin_targets import (
    BrokerOption,
    MastersOption,
    Switch,
    TopicOption,
    at_masters,
    print_broker_changes,
    switch,
    time_cell,
)
from rmqstore.cli.errors import ExitCode, command
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json
from rmqstore.remoting import fastjson
from rmqstore.store.metadata import GroupConfig
from rmqstore.store.metadata.members import Members

__all__ = [
    "broker_consume_stats",
    "clone_group_offset",
    "query_cq",
    "reset_offset_by_time",
    "update_sub_group_list",
]


@command
def broker_consume_stats(
    broker: Annotated[
        str, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Address of a broker.")
    ],
    level: Annotated[
        int, typer.Option("-l", "--level", help="Smallest lag to show. Default: 0.")
    ] = 0,
    order: Annotated[Switch, switch("-o", "--order", "Ordered topics only.")] = Switch.FALSE,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the progress of all groups of a broker."""
    found = on_brokers(
        namesrv,
        lambda admin: admin.broker_consume_stats(broker, only_ordered=order is Switch.TRUE),
    )
    rows = [
        (
            *(name.topic, group, name.broker_name, name.queue_id),
            *(each.broker_offset, each.consumer_offset, each.lag, time_cell(each.consumed_ms)),
        )
        for group, of_topics in sorted(found.groups.items())
        for stats in of_topics
        for name, each in sorted(stats.queues.items())
        if each.lag >= level
    ]
    heads = (
        *("topic", "group", "broker name", "queue"),
        *("broker offset", "consumer offset", "lag", "last"),
    )
    members = (
        *("topic", "group", "brokerName", "queueId"),
        *("brokerOffset", "consumerOffset", "diff", "lastTime"),
    )
    print_table(heads, members, rows, json=json)
    return ExitCode.OK


@command
def clone_group_offset(
    source: Annotated[str, typer.Option("-s", "--srcGroup", help="Group to copy from.")],
    group: Annotated[str, typer.Option("-d", "--destGroup", help="Group that gets the offsets.")],
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", help="One topic. Default: all of the source.")
    ] = None,
    offline: Annotated[
        Switch,
        switch("-o", "--offline", "Also topics that the source's consumers do not subscribe to."),
    ] = Switch.FALSE,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Give a group the offsets of another group."""
    changes = on_brokers(
        namesrv,
        lambda admin: admin.clone_group_offset(
            source, group, topic, is_offline=offline is Switch.TRUE
        ),
    )
    return print_broker_changes(changes, json=json)


@command
def reset_offset_by_time(
    group: Annotated[str, typer.Option("-g", "--group", help="Name of a consumer group.")],
    topic: TopicOption,
    time: Annotated[
        str, typer.Option("-s", "--timestamp", metavar="now|MS", help="Store time to begin at.")
    ],
    force: Annotated[
        Switch, switch("-f", "--force", "Offsets may be raised, too. Default: true.")
    ] = Switch.TRUE,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Set the offsets of a group on a topic to those of a time."""
    if time != "now" and not time.isdecimal():
        raise typer.BadParameter("give now or milliseconds since 1970", param_hint="-s")
    found = on_brokers(
        namesrv,
        lambda admin: admin.reset_offset_by_time(
            group,
            topic,
            time_ms=None if time == "now" else int(time),
            is_forced=force is Switch.TRUE,
        ),
    )
    rows = [(name.broker_name, name.queue_id, offset) for name, offset in sorted(found.items())]
    members = ("brokerName", "queueId", "offset")
    print_table(("broker name", "queue", "next offset"), members, rows, json=json)
    return ExitCode.OK


@command
def update_sub_group_list(
    file: Annotated[
        Path, typer.Option("-f", "--filename", help="JSON file with a list of groups.")
    ],
    broker: BrokerOption = None,
    cluster: MastersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Create or change the consumer groups of a file, as `updateSubGroupList` of mqadmin reads."""
    try:
        found = fastjson.loads(file.read_bytes())
        groups = [GroupConfig.of(Members(each, str(file))) for each in found]
    except (OSError, ValueError, TypeError) as error:
        text = f"{file} has no list of groups: {error}"
        raise typer.BadParameter(text, param_hint="-f") from None
    changes = at_masters(
        namesrv, broker, cluster, lambda admin, brokers: admin.update_groups(groups, brokers)
    )
    return print_broker_changes(changes, json=json)


@command
def query_cq(
    topic: TopicOption,
    queue: Annotated[int, typer.Option("-q", "--queue", min=0, help="Number of a queue.")],
    index: Annotated[int, typer.Option("-i", "--index", min=0, help="First queue offset.")],
    count: Annotated[
        int, typer.Option("-c", "--count", min=1, help="Units at most. Default: 10.")
    ] = 10,
    broker: Annotated[
        str | None,
        typer.Option("-b", "--broker", metavar="HOST:PORT", help="Address of one broker."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("-g", "--consumer", help="Consumer group with a subscription.")
    ] = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show units of a queue."""
    found = on_brokers(
        namesrv,
        lambda admin: admin.queue_units(
            topic, queue, start=index, count=count, broker=broker, group=group
        ),
    )
    if json:
        print_json(found)
        return ExitCode.OK
    rows = [
        (index + number, each.get("physicOffset"), each.get("physicSize"), each.get("tagsCode"))
        for number, each in enumerate(found.get("queueData", []))
    ]
    heads = ("queue offset", "physical offset", "size", "tags code")
    print_table(heads, heads, rows, json=False)
    return ExitCode.OK
