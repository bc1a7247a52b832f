"""The commands of `admin` for controllers and the groups that they elect masters for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from rmqstore.cli.admin_common import (
    LOCAL_NAMESERVER,
    IntervalOption,
    KeyOption,
    NamesrvOption,
    ValueOption,
    on_controllers,
    on_nameservers,
    print_changes,
    print_configurations,
    print_table,
    repeat,
)
from rmqstore.cli.errors import ExitCode, command, print_error
from rmqstore.cli.options import JsonOption
from rmqstore.cli.output import print_json
from rmqstore.remoting.bodies.controller import ReplicasInfo

__all__ = [
    "clean_broker_metadata",
    "elect_master",
    "get_broker_epoch",
    "get_controller_config",
    "get_controller_metadata",
    "get_sync_state_set",
    "update_controller_config",
]

ControllerOption = Annotated[
    str,
    typer.Option(
        "-a",
        "--controllerAddress",
        metavar="HOST:PORT;...",
        help="Controllers of one group, separated by ;. Default port: 9878.",
    ),
]
ClusterOption = Annotated[
    str | None, typer.Option("-c", "--clusterName", help="All broker groups of this cluster.")
]
GroupOption = Annotated[
    str | None, typer.Option("-b", "--brokerName", help="Name of a broker group.")
]
# mqadmin's -bn, where -b is an id.
NameOption = Annotated[str, typer.Option("-bn", "--brokerName", help="Name of a broker group.")]


@command
def get_sync_state_set(
    controller: ControllerOption,
    broker_name: GroupOption = None,
    cluster: ClusterOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    interval: IntervalOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show the masters and sync-state sets of broker groups.

    With -c the names of the groups come from the nameservers of -n. A controller of this
    library also reports why a group has no master, and the replicas that it waits for.
    """

    def show() -> ExitCode:
        names = _names(broker_name, cluster, namesrv)
        groups = on_controllers(controller, lambda admin: admin.sync_state_sets(names))
        for name in sorted(names - {group.broker_name for group in groups}):
            print_error(f"the controller knows no broker group {name}")
        _print_groups(groups, json=json)
        return ExitCode.OK if len(groups) == len(names) else ExitCode.FAULT

    return repeat(show, interval)


@command
def get_broker_epoch(
    broker_name: GroupOption = None,
    cluster: ClusterOption = None,
    namesrv: NamesrvOption = LOCAL_NAMESERVER,
    interval: IntervalOption = None,
    json: JsonOption = False,
) -> ExitCode:
    """Show the epochs that brokers report of their logs."""

    def show() -> ExitCode:
        names = _names(broker_name, cluster, namesrv)
        found = on_nameservers(namesrv, lambda admin: admin.broker_epochs(names))
        rows = [
            (each.cluster, each.broker_name, each.broker_id, each.address, *entry)
            for each in found
            if each.cache is not None
            for entry in each.cache.ranges()
        ]
        members = ("clusterName", "brokerName", "brokerId", "brokerAddr")
        heads = ("cluster", "broker name", "id", "address", "epoch", "start", "end")
        print_table(heads, (*members, "epoch", "startOffset", "endOffset"), rows, json=json)
        for each in found:
            if each.error is not None:
                print_error(f"{each.broker_name} {each.broker_id}: {each.error}")
        is_failed = any(each.error is not None for each in found)
        return ExitCode.FAILED if is_failed else ExitCode.OK

    return repeat(show, interval)


@command
def get_controller_metadata(controller: ControllerOption, json: JsonOption = False) -> ExitCode:
    """Show the leader and the nodes of a group of controllers."""
    found = on_controllers(controller, lambda admin: admin.metadata())
    members = ("group", "controllerLeaderId", "controllerLeaderAddress", "peers")
    row = (found.group, found.leader_id, found.leader_address, found.peers)
    print_table(("group", "leader", "address of the leader", "peers"), members, [row], json=json)
    return ExitCode.OK


@command
def elect_master(
    controller: ControllerOption,
    broker_id: Annotated[
        int,
        typer.Option(
            "-b", "--brokerId", min=1, help="The new master: the id that the controller assigned."
        ),
    ],
    broker_name: NameOption,
    cluster: Annotated[str, typer.Option("-c", "--clusterName", help="Name of its cluster.")],
    json: JsonOption = False,
) -> ExitCode:
    """Make a replica the master of its broker group.

    This is for an operator who knows the replicas: acknowledged messages that the new master
    lacks are lost. A controller of this library names them in its answer.
    """
    found = on_controllers(
        controller, lambda admin: admin.elect_master(cluster, broker_name, broker_id)
    )
    master, members = found.master, sorted(found.elected.sync_state_set)
    if json:
        print_json(
            {
                "clusterName": cluster,
                "brokerName": broker_name,
                "masterBrokerId": master.master_broker_id,
                "masterAddress": master.master_address,
                "masterEpoch": master.master_epoch,
                "syncStateSetEpoch": master.sync_state_set_epoch,
                "syncStateSet": members,
                "brokerAddrs": {str(n): at for n, at in found.elected.group.addresses.items()},
                "risk": found.risk,
            }
        )
        return ExitCode.OK
    print(
        f"{broker_name}: broker {master.master_broker_id} at {master.master_address} is master of "
        f"epoch {master.master_epoch}, set epoch {master.sync_state_set_epoch}, in sync: "
        f"{' '.join(map(str, members))}"
    )
    if found.risk:
        print(found.risk)
    return ExitCode.OK


@command
def get_controller_config(controller: ControllerOption, json: JsonOption = False) -> ExitCode:
    """Show the configuration of each controller."""
    found = on_controllers(controller, lambda admin: admin.get_config())
    return print_configurations("controller", found, json=json)


@command
def update_controller_config(
    controller: ControllerOption, key: KeyOption, value: ValueOption, json: JsonOption = False
) -> ExitCode:
    """Change one key of the configuration of each controller."""
    changes = on_controllers(controller, lambda admin: admin.update_config(key, value))
    return print_changes("controller", changes, json=json)


@command
def clean_broker_metadata(
    controller: ControllerOption,
    broker_name: NameOption,
    broker_ids: Annotated[
        str | None,
        typer.Option(
            "-b",
            "--brokerControllerIdsToClean",
            metavar="ID;...",
            help="Brokers to remove: ids that the controller assigned. Default: the whole group.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", help="Name of the cluster; needed without -l."),
    ] = None,
    cleans_living: Annotated[
        bool, typer.Option("-l", "--cleanLivingBroker", help="Also remove living brokers.")
    ] = False,
    json: JsonOption = False,
) -> ExitCode:
    """Remove brokers from the state of a controller; they must not be alive.

    With -l a controller of RocketMQ ignores -b and removes the whole group.
    """
    if cluster is None and not cleans_living:
        raise typer.BadParameter("give the cluster, or -l", param_hint="-c")
    on_controllers(
        controller,
        lambda admin: admin.clean_broker_metadata(
            broker_name, cluster=cluster, broker_ids=broker_ids, cleans_living=cleans_living
        ),
    )
    removed = broker_ids or "all"
    if json:
        print_json({"brokerName": broker_name, "removed": removed})
    else:
        print(f"{broker_name}: removed {removed}")
    return ExitCode.OK


def _names(broker_name: str | None, cluster: str | None, namesrv: str) -> frozenset[str]:
    """Returns the given name, or the names in a cluster at the nameservers."""
    if broker_name is not None:
        return frozenset({broker_name})
    if cluster is None:
        raise typer.BadParameter("give a broker group, or a cluster", param_hint="-b, -c")
    return frozenset(on_nameservers(namesrv, lambda admin: admin.broker_names(cluster)))


def _print_groups(groups: Sequence[ReplicasInfo], *, json: bool) -> None:
    if json:
        for group in groups:
            print_json(group.to_fields() | {"brokerName": group.broker_name})
        return
    rows = [
        (
            group.broker_name,
            replica.broker_id,
            replica.address,
            "master" if replica.broker_id == group.master_id else "slave",
            "in sync" if replica in group.in_sync else "not in sync",
            "alive" if replica.is_alive else "dead",
            group.master_epoch,
            group.set_epoch,
        )
        for group in groups
        for replica in (*group.in_sync, *group.not_in_sync)
    ]
    heads = ("broker name", "id", "address", "role", "in sync", "alive", "epoch", "set epoch")
    print_table(heads, heads, rows, json=False)
    for group in groups:
        if group.wait_reason and group.master_id is not None:
            print(f"{group.broker_name}: {group.wait_reason}")
        elif group.wait_reason:
            waits = " ".join(map(str, sorted(group.waits_for)))
            print(
                f"{group.broker_name} waits for a master, for replicas {waits}: {group.wait_reason}"
            )
