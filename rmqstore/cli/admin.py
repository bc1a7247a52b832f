"""`admin`: requests to running servers, with the names and options of mqadmin."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from rmqstore.cli import (
    admin_broker,
    admin_clients,
    admin_controller,
    admin_files,
    admin_messages,
    admin_progress,
)
from rmqstore.cli.admin_common import (
    LOCAL_NAMESERVER,
    KeyOption,
    NamesrvOption,
    ValueOption,
    on_nameservers,
    print_changes,
    print_configurations,
    print_table,
    use_tls,
)
from rmqstore.cli.errors import EXIT_CODES, ExitCode, command
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json
from rmqstore.remoting.headers.kv import ORDER_TOPICS

__all__ = ["app"]

_HELP = (
    "Query and change nameservers, controllers and brokers, RocketMQ's or those of this library. "
    "Names and options are those of mqadmin. A query goes to the first server that answers, a "
    "change to all servers."
)

app = typer.Typer(
    help=_HELP,
    epilog=EXIT_CODES,
    no_args_is_help=True,
)
app.callback(help=_HELP)(use_tls)
app.command("getSyncStateSet", epilog=EXIT_CODES)(admin_controller.get_sync_state_set)
app.command("getBrokerEpoch", epilog=EXIT_CODES)(admin_controller.get_broker_epoch)
app.command("getControllerMetaData", epilog=EXIT_CODES)(admin_controller.get_controller_metadata)
app.command("electMaster", epilog=EXIT_CODES)(admin_controller.elect_master)
app.command("getControllerConfig", epilog=EXIT_CODES)(admin_controller.get_controller_config)
app.command("updateControllerConfig", epilog=EXIT_CODES)(admin_controller.update_controller_config)
app.command("cleanBrokerMetadata", epilog=EXIT_CODES)(admin_controller.clean_broker_metadata)
app.command("topicStatus", epilog=EXIT_CODES)(admin_broker.topic_status)
app.command("updateTopic", epilog=EXIT_CODES)(admin_broker.update_topic)
app.command("deleteTopic", epilog=EXIT_CODES)(admin_broker.delete_topic)
app.command("updateSubGroup", epilog=EXIT_CODES)(admin_broker.update_sub_group)
app.command("deleteSubGroup", epilog=EXIT_CODES)(admin_broker.delete_sub_group)
app.command("consumerProgress", epilog=EXIT_CODES)(admin_broker.consumer_progress)
app.command("brokerStatus", epilog=EXIT_CODES)(admin_broker.broker_status)
app.command("getBrokerConfig", epilog=EXIT_CODES)(admin_broker.get_broker_config)
app.command("updateBrokerConfig", epilog=EXIT_CODES)(admin_broker.update_broker_config)
app.command("haStatus", epilog=EXIT_CODES)(admin_broker.ha_status)
app.command("producerConnection", epilog=EXIT_CODES)(admin_clients.producer_connection)
app.command("producer", epilog=EXIT_CODES)(admin_clients.producer)
app.command("consumerConnection", epilog=EXIT_CODES)(admin_clients.consumer_connection)
app.command("consumerStatus", epilog=EXIT_CODES)(admin_clients.consumer_status)
app.command("getConsumerStatus", epilog=EXIT_CODES)(admin_clients.get_consumer_status)
app.command("brokerConsumeStats", epilog=EXIT_CODES)(admin_progress.broker_consume_stats)
app.command("cloneGroupOffset", epilog=EXIT_CODES)(admin_progress.clone_group_offset)
app.command("resetOffsetByTime", epilog=EXIT_CODES)(admin_progress.reset_offset_by_time)
app.command("updateSubGroupList", epilog=EXIT_CODES)(admin_progress.update_sub_group_list)
app.command("queryCq", epilog=EXIT_CODES)(admin_progress.query_cq)
app.command("deleteExpiredCommitLog", epilog=EXIT_CODES)(admin_files.delete_expired_commit_log)
app.command("cleanExpiredCQ", epilog=EXIT_CODES)(admin_files.clean_expired_cq)
app.command("cleanUnusedTopic", epilog=EXIT_CODES)(admin_files.clean_unused_topic)
app.command("updateColdDataFlowCtrGroupConfig", epilog=EXIT_CODES)(
    admin_files.update_cold_data_flow_ctr_group_config
)
app.command("removeColdDataFlowCtrGroupConfig", epilog=EXIT_CODES)(
    admin_files.remove_cold_data_flow_ctr_group_config
)
app.command("getColdDataFlowCtrInfo", epilog=EXIT_CODES)(admin_files.get_cold_data_flow_ctr_info)
app.command("setCommitLogReadAheadMode", epilog=EXIT_CODES)(
    admin_files.set_commit_log_read_ahead_mode
)
app.command("queryMsgById", epilog=EXIT_CODES)(admin_messages.query_message_by_id)
app.command("queryMsgByKey", epilog=EXIT_CODES)(admin_messages.query_message_by_key)


class OrderMethod(StrEnum):
    """The methods of `updateOrderConf`."""

    PUT = "put"
    GET = "get"
    DELETE = "delete"


TopicOption = Annotated[str, typer.Option("-t", "--topic", help="Name of a topic.")]
BrokerNameOption = Annotated[
    str, typer.Option("-b", "--brokerName", help="Name of a broker group.")
]
NamespaceOption = Annotated[str, typer.Option("-s", "--namespace", help="Namespace of the pair.")]


@app.command("topicList", epilog=EXIT_CODES)
@command
def topic_list(
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    cluster: Annotated[
        str | None, typer.Option("-c", "--cluster", help="Topics of this cluster only.")
    ] = None,
    json: JsonOption = False,
) -> ExitCode:
    """List the topics that have a route."""
    topics = on_nameservers(namesrv, lambda admin: admin.topic_list(cluster))
    for topic in topics:
        if json:
            print_json({"topic": topic})
        else:
            print(topic)
    return ExitCode.OK


@app.command("clusterList", epilog=EXIT_CODES)
@command
def cluster_list(namesrv: NamesrvOption = LOCAL_NAMESERVER, json: JsonOption = False) -> ExitCode:
    """List the live brokers."""
    info = on_nameservers(namesrv, lambda admin: admin.cluster_list())
    rows = [
        (cluster, name, broker_id, address, info.brokers[name].enable_acting_master)
        for cluster, names in sorted(info.clusters.items())
        for name in sorted(names)
        if name in info.brokers
        for broker_id, address in sorted(info.brokers[name].addresses.items())
    ]
    members = ("cluster", "brokerName", "brokerId", "address", "enableActingMaster")
    print_table(
        ("cluster", "broker name", "id", "address", "acting master"), members, rows, json=json
    )
    return ExitCode.OK


@app.command("topicRoute", epilog=EXIT_CODES)
@command
def topic_route(
    topic: TopicOption, namesrv: NamesrvOption = LOCAL_NAMESERVER, json: JsonOption = False
) -> ExitCode:
    """Show the brokers and queues of a topic."""
    route = on_nameservers(namesrv, lambda admin: admin.topic_route(topic))
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
    print_table(heads, members, rows, json=json)
    return ExitCode.OK


@app.command("getNamesrvConfig", epilog=EXIT_CODES)
@command
def get_namesrv_config(
    namesrv: NamesrvOption = LOCAL_NAMESERVER, json: JsonOption = False
) -> ExitCode:
    """Show the configuration of each nameserver."""
    found = on_nameservers(namesrv, lambda admin: admin.get_namesrv_config())
    return print_configurations("nameserver", found, json=json)


@app.command("updateNamesrvConfig", epilog=EXIT_CODES)
@command
def update_namesrv_config(
    key: KeyOption,
    value: ValueOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Change one key of the configuration of each nameserver."""
    return print_changes(
        "nameserver",
        on_nameservers(namesrv, lambda admin: admin.update_namesrv_config(key, value)),
        json=json,
    )


@app.command("updateKvConfig", epilog=EXIT_CODES)
@command
def update_kv_config(
    namespace: NamespaceOption,
    key: KeyOption,
    value: ValueOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Add or replace a pair of the key-value configuration."""
    return print_changes(
        "nameserver",
        on_nameservers(namesrv, lambda admin: admin.update_kv_config(namespace, key, value)),
        json=json,
    )


@app.command("deleteKvConfig", epilog=EXIT_CODES)
@command
def delete_kv_config(
    namespace: NamespaceOption,
    key: KeyOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Remove a pair of the key-value configuration."""
    return print_changes(
        "nameserver",
        on_nameservers(namesrv, lambda admin: admin.delete_kv_config(namespace, key)),
        json=json,
    )


@app.command("updateOrderConf", epilog=EXIT_CODES)
@command
def update_order_conf(
    topic: TopicOption,
    method: Annotated[
        OrderMethod, typer.Option("-m", "--method", help="What to do with the configuration.")
    ],
    order_conf: Annotated[
        str | None,
        typer.Option(
            "-v", "--orderConf", metavar="NAME:QUEUES;...", help="Broker names and queues, for put."
        ),
    ] = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Put, get or delete the order configuration of a topic.

    It is a pair of the key-value configuration, in the namespace ORDER_TOPIC_CONFIG.
    """
    if method is OrderMethod.GET:
        found = on_nameservers(namesrv, lambda admin: admin.get_kv_config(ORDER_TOPICS, topic))
        print_table(("topic", "order"), ("topic", "orderConf"), [(topic, found)], json=json)
        return ExitCode.OK
    if method is OrderMethod.DELETE:
        changes = on_nameservers(namesrv, lambda admin: admin.delete_kv_config(ORDER_TOPICS, topic))
        return print_changes("nameserver", changes, json=json)
    if not order_conf:
        raise typer.BadParameter("put needs a configuration", param_hint="-v")
    changes = on_nameservers(
        namesrv, lambda admin: admin.update_kv_config(ORDER_TOPICS, topic, order_conf)
    )
    return print_changes("nameserver", changes, json=json)


@app.command("wipeWritePerm", epilog=EXIT_CODES)
@command
def wipe_write_perm(
    broker_name: BrokerNameOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Clear the write permission of all topics of a broker name."""
    return print_changes(
        "nameserver",
        on_nameservers(namesrv, lambda admin: admin.wipe_write_perm(broker_name)),
        json=json,
    )


@app.command("addWritePerm", epilog=EXIT_CODES)
@command
def add_write_perm(
    broker_name: BrokerNameOption,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Set read and write permission of all topics of a broker name."""
    return print_changes(
        "nameserver",
        on_nameservers(namesrv, lambda admin: admin.add_write_perm(broker_name)),
        json=json,
    )
