"""The commands of `admin` for brokers: topics, consumer groups, configuration and state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.cli.admin_common import (
    LOCAL_NAMESERVER,
    IntervalOption,
    KeyOption,
    NamesrvOption,
    ValueOption,
    on_brokers,
    print_changes,
    print_configurations,
    print_table,
    repeat,
)
from rmqstore.cli.admin_targets import (
    BrokerOption,
    GroupOption,
    MastersOption,
    MembersOption,
    Switch,
    TopicOption,
    at_masters,
    at_members,
    print_broker_changes,
    switch,
    time_cell,
)
from rmqstore.cli.errors import ExitCode, command
from rmqstore.cli.options import JsonOption
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.remoting.bodies.topic_config import TOPIC_UNIT, TOPIC_UNIT_SUB
from rmqstore.store.metadata import GroupConfig, TopicConfig

__all__ = [
    "broker_status",
    "consumer_progress",
    "delete_sub_group",
    "delete_topic",
    "get_broker_config",
    "ha_status",
    "topic_status",
    "update_broker_config",
    "update_sub_group",
    "update_topic",
]

# -- topics


@command
def topic_status(
    topic: TopicOption, namesrv: NamesrvOption = LOCAL_NAMESERVER, json: JsonOption = False
) -> ExitCode:
    """Show the offsets of each queue of a topic."""
    found = on_brokers(namesrv, lambda admin: admin.topic_status(topic))
    rows = [
        (
            name.broker_name,
            name.queue_id,
            each.min_offset,
            each.max_offset,
            time_cell(each.updated_ms),
        )
        for name, each in sorted(found.items())
    ]
    heads = ("broker name", "queue", "min offset", "max offset", "last updated")
    members = ("brokerName", "queueId", "minOffset", "maxOffset", "lastUpdated")
    print_table(heads, members, rows, json=json)
    return ExitCode.OK


@command
def update_topic(
    topic: TopicOption,
    broker: BrokerOption = None,
    cluster: MastersOption = None,
    read_queues: Annotated[
        int, typer.Option("-r", "--readQueueNums", min=0, help="Queues to read. Default: 8.")
    ] = 8,
    write_queues: Annotated[
        int, typer.Option("-w", "--writeQueueNums", min=0, help="Queues to write. Default: 8.")
    ] = 8,
    perm: Annotated[
        int, typer.Option("-p", "--perm", help="4 read, 2 write, 6 both. Default: 6.")
    ] = PERM_READ_WRITE,
    order: Annotated[Switch, switch("-o", "--order", "Ordered topic.")] = Switch.FALSE,
    unit: Annotated[Switch, switch("-u", "--unit", "Unit topic.")] = Switch.FALSE,
    has_unit_sub: Annotated[
        Switch, switch("-s", "--hasUnitSub", "Has unit consumers.")
    ] = Switch.FALSE,
    attributes: Annotated[
        str,
        typer.Option(
            "-a", "--attributes", metavar="+KEY=VALUE,-KEY", help="Changes of attributes."
        ),
    ] = "",
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Create or change a topic."""
    config = TopicConfig(
        topic,
        read_queues,
        write_queues,
        perm,
        sys_flag=(TOPIC_UNIT if unit is Switch.TRUE else 0)
        | (TOPIC_UNIT_SUB if has_unit_sub is Switch.TRUE else 0),
        order=order is Switch.TRUE,
    )
    changes = at_masters(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.update_topic(config, brokers, attributes=attributes),
    )
    return print_broker_changes(changes, json=json)


@command
def delete_topic(
    topic: TopicOption,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="Name of a cluster.")],
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Delete a topic at the masters of a cluster and at the nameservers."""
    changes = on_brokers(namesrv, lambda admin: admin.delete_topic(topic, cluster))
    return print_changes("server", changes, json=json)


# -- groups


@command
def update_sub_group(
    group: GroupOption,
    broker: BrokerOption = None,
    cluster: MastersOption = None,
    consume: Annotated[Switch, switch("-s", "--consumeEnable", "May consume.")] = Switch.TRUE,
    from_min: Annotated[
        Switch, switch("-m", "--consumeFromMinEnable", "May start at the first message.")
    ] = Switch.FALSE,
    broadcast: Annotated[
        Switch,
        switch("-d", "--consumeBroadcastEnable", "Each member may receive all messages."),
    ] = Switch.FALSE,
    orderly: Annotated[
        Switch, switch("-o", "--consumeMessageOrderly", "Consumes in order.")
    ] = Switch.FALSE,
    retry_queues: Annotated[
        int, typer.Option("-q", "--retryQueueNums", help="Queues of the retry topic. Default: 1.")
    ] = 1,
    retries: Annotated[
        int, typer.Option("-r", "--retryMaxTimes", help="Repeated deliveries. Default: 16.")
    ] = 16,
    broker_id: Annotated[
        int, typer.Option("-i", "--brokerId", help="Broker to consume from. Default: 0.")
    ] = 0,
    slow_broker_id: Annotated[
        int,
        typer.Option(
            "-w", "--whichBrokerWhenConsumeSlowly", help="Broker for slow consumers. Default: 1."
        ),
    ] = 1,
    notices: Annotated[
        Switch, switch("-a", "--notifyConsumerIdsChanged", "Members are notified of changes.")
    ] = Switch.TRUE,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Create or change a  consumer group. Options that are not given get mqadmin's defaults."""
    config = GroupConfig(
        group,
        consume_enabled=consume is Switch.TRUE,
        consume_from_min_enabled=from_min is Switch.TRUE,
        broadcast_enabled=broadcast is Switch.TRUE,
        is_orderly=orderly is Switch.TRUE,
        retry_queue_count=retry_queues,
        retries_max=retries,
        broker_id=broker_id,
        slow_consumer_broker_id=slow_broker_id,
        notices_enabled=notices is Switch.TRUE,
    )
    changes = at_masters(
        namesrv, broker, cluster, lambda admin, brokers: admin.update_group(config, brokers)
    )
    return print_broker_changes(changes, json=json)


@command
def delete_sub_group(
    group: GroupOption,
    broker: BrokerOption = None,
    cluster: MastersOption = None,
    with_offsets: Annotated[
        Switch, switch("-r", "--removeOffset", "Also delete the offsets of the group.")
    ] = Switch.FALSE,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Delete a consumer group."""
    changes = at_masters(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.delete_group(
            group, brokers, with_offsets=with_offsets is Switch.TRUE
        ),
    )
    return print_broker_changes(changes, json=json)


@command
def consumer_progress(
    group: GroupOption,
    topic: Annotated[
        str | None, typer.Option("-t", "--topicName", help="Queues of this topic only.")
    ] = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the progress of a consumer group in each queue."""
    found = on_brokers(namesrv, lambda admin: admin.consumer_progress(group, topic))
    rows = [
        (
            *(name.topic, name.broker_name, name.queue_id),
            *(each.broker_offset, each.consumer_offset, each.lag, time_cell(each.consumed_ms)),
        )
        for name, each in sorted(found.items())
    ]
    heads = ("topic", "broker name", "queue", "broker offset", "consumer offset", "lag", "last")
    members = (
        *("topic", "brokerName", "queueId"),
        *("brokerOffset", "consumerOffset", "diff", "lastTime"),
    )
    print_table(heads, members, rows, json=json)
    return ExitCode.OK


# -- brokers


@command
def broker_status(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the state of brokers."""

    async def work(admin: BrokerAdmin, brokers: Sequence[str]) -> dict[str, dict[str, str]]:
        return {each: dict(await admin.broker_status(each)) for each in brokers}

    found = at_members(namesrv, broker, cluster, work)
    return print_configurations("broker", found, json=json)


@command
def get_broker_config(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the configuration of brokers."""

    async def work(admin: BrokerAdmin, brokers: Sequence[str]) -> dict[str, dict[str, str]]:
        return {each: dict(await admin.broker_config(each)) for each in brokers}

    found = at_members(namesrv, broker, cluster, work)
    return print_configurations("broker", found, json=json)


@command
def update_broker_config(
    key: KeyOption,
    value: ValueOption,
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Change one key of the configuration of brokers."""
    changes = at_members(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.update_broker_config(key, value, brokers),
    )
    return print_broker_changes(changes, json=json)


@command
def ha_status(
    broker: BrokerOption = None,
    cluster: MastersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    interval: IntervalOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show the replication state that brokers report."""

    async def work(admin: BrokerAdmin, brokers: Sequence[str]) -> dict[str, dict[str, str]]:
        found = {}
        for each in brokers:
            status = await admin.ha_status(each)
            found[each] = {name: str(value) for name, value in status.items()}
        return found

    def show() -> ExitCode:
        found = at_masters(namesrv, broker, cluster, work)
        return print_configurations("broker", found, json=json)

    return repeat(show, interval)
