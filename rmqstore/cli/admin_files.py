"""The commands of `admin` for the files of brokers: removal, cold data, reading ahead."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated

import typer

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.admin.servers import Change
from rmqstore.cli.admin_common import LOCAL_NAMESERVER, NamesrvOption, print_configurations
from rmqstore.cli.admin_targets import (
    BrokerOption,
    MembersOption,
    at_members,
    print_broker_changes,
)
from rmqstore.cli.errors import ExitCode, command
from rmqstore.cli.options import JsonOption

__all__ = [
    "clean_expired_cq",
    "clean_unused_topic",
    "delete_expired_commit_log",
    "get_cold_data_flow_ctr_info",
    "remove_cold_data_flow_ctr_group_config",
    "set_commit_log_read_ahead_mode",
    "update_cold_data_flow_ctr_group_config",
]

ColdGroupOption = Annotated[
    str, typer.Option("-g", "--consumerGroup", help="Name of a consumer group.")
]


def _changed(
    namesrv: str,
    broker: str | None,
    cluster: str | None,
    call: Callable[[BrokerAdmin, Sequence[str]], Awaitable[Sequence[Change]]],
    *,
    json: bool,
) -> ExitCode:
    return print_broker_changes(at_members(namesrv, broker, cluster, call), json=json)


@command
def delete_expired_commit_log(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Remove the expired log files of brokers, at any hour."""
    return _changed(namesrv, broker, cluster, BrokerAdmin.delete_expired_commit_log, json=json)


@command
def clean_expired_cq(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Remove the queues of brokers whose messages have expired."""
    return _changed(namesrv, broker, cluster, BrokerAdmin.clean_expired_queues, json=json)


@command
def clean_unused_topic(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Remove the queues of brokers whose topics have no settings."""
    return _changed(namesrv, broker, cluster, BrokerAdmin.clean_unused_topics, json=json)


@command
def update_cold_data_flow_ctr_group_config(
    group: ColdGroupOption,
    threshold: Annotated[int, typer.Option("-v", "--threshold", min=0, help="Cold bytes.")],
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Limit the cold bytes that a group reads."""
    return _changed(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.set_cold_data_limit(group, threshold, brokers),
        json=json,
    )


@command
def remove_cold_data_flow_ctr_group_config(
    group: ColdGroupOption,
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Remove the limit of a group for cold bytes."""
    return _changed(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.remove_cold_data_limit(group, brokers),
        json=json,
    )


@command
def get_cold_data_flow_ctr_info(
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Show the limits and counts of cold data of brokers."""

    async def work(admin: BrokerAdmin, brokers: Sequence[str]) -> dict[str, dict[str, str]]:
        return {
            each: {key: str(value) for key, value in (await admin.cold_data_info(each)).items()}
            for each in brokers
        }

    found = at_members(namesrv, broker, cluster, work)
    return print_configurations("broker", found, json=json)


@command
def set_commit_log_read_ahead_mode(
    mode: Annotated[
        int,
        typer.Option(
            "-m", "--commitLogReadAheadMode", min=0, max=1, help="0 as usual, 1 no reading ahead."
        ),
    ],
    broker: BrokerOption = None,
    cluster: MembersOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    json: JsonOption = False,
) -> ExitCode:
    """Set how brokers read their log ahead."""
    return _changed(
        namesrv,
        broker,
        cluster,
        lambda admin, brokers: admin.set_read_ahead(mode, brokers),
        json=json,
    )
