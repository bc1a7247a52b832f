"""A group of Java brokers under controllers and a nameserver of ours, with Java's own client.

Each fault begins while the client sends messages. All members of the sync-state set acknowledge a
message, so none may be lost. The state of the controller is checked whenever it is asked for: an
id has one address, an epoch one master, and epochs do not go back.
"""

from __future__ import annotations

import functools
import itertools
import json
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any
from urllib.request import urlopen

import pytest

from rmqstore.net.loop_thread import LoopThread
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from tests.interop.faults import FEW, Fault, cut_off, killed, paused
from tests.support.effort import rounds
from tests.support.java_cluster import CLUSTER, GROUP, LIMIT_S, JavaCluster
from tests.support.metrics_text import value_of
from tests.support.releases import NEW, OLD, with_release, with_releases
from tests.support.waiting import WAIT_S, spin_until

pytest.importorskip("typer", reason="the command line needs the extra cli")

from typer.testing import CliRunner

from rmqstore.cli.app import app

_topics = (f"faults-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def cluster(java_release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaCluster]:
    """Return a running group, its servers and a client."""
    made = JavaCluster(java_release, tmp_path_factory.mktemp("cluster"), with_java_nameserver=True)
    yield made
    made.close()


@with_releases(
    "fault", {"killed": (killed, OLD, NEW), "paused": (paused, NEW), "cut_off": (cut_off, OLD)}
)
def test_nothing_acknowledged_is_lost_with_a_master(cluster: JavaCluster, fault: Fault) -> None:
    for _ in range(rounds(1, 20)):
        before = cluster.wait_whole()
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            with fault(cluster.broker(before.master_id)):
                if cluster.wait_successor(before.master_id):
                    cluster.wait_acknowledged(FEW)
            cluster.wait_whole()
            cluster.wait_acknowledged(FEW)
        cluster.wait_readable()


@with_releases(
    "fault", {"killed": (killed, NEW), "paused": (paused, OLD), "cut_off": (cut_off, NEW)}
)
def test_nothing_acknowledged_is_lost_with_a_slave(cluster: JavaCluster, fault: Fault) -> None:
    for _ in range(rounds(1, 20)):
        before = cluster.wait_whole()
        [slave_id] = before.members - {before.master_id}
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            with fault(cluster.broker(slave_id)):
                cluster.wait_outside(slave_id)
                cluster.wait_acknowledged(FEW)
            cluster.wait_whole()
            cluster.wait_acknowledged(FEW)
        cluster.wait_readable()


@with_release(NEW)
def test_master_whose_connection_to_the_controller_ends_stays_the_master(
    cluster: JavaCluster,
) -> None:
    for _ in range(rounds(3, 60)):
        before = cluster.wait_whole()
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            cluster.broker(before.master_id).drop_controllers()
            # The slave reports meanwhile.
            cluster.wait_acknowledged(2 * FEW)
            after = cluster.wait_whole()
            assert (after.master_id, after.epoch) == (before.master_id, before.epoch)
        cluster.wait_readable()


@with_releases(
    "failing",
    {
        "controller-killed": (("controller", killed), OLD),
        "controller-paused": (("controller", paused), NEW),
        "nameserver-killed": (("nameserver", killed), NEW),
        "nameserver-paused": (("nameserver", paused), OLD),
    },
)
def test_brokers_serve_without_a_server_that_comes_back_with_its_state(
    cluster: JavaCluster, failing: tuple[str, Fault]
) -> None:
    server, fault = failing
    for _ in range(rounds(1, 20)):
        before = cluster.wait_whole()
        with cluster.producing(next(_topics)):
            cluster.wait_acknowledged(FEW)
            with fault(cluster.nameserver if server == "nameserver" else cluster.controllers[0]):
                cluster.wait_acknowledged(FEW)
            after = cluster.wait_whole()
            assert (after.epoch, after.set_epoch) >= (before.epoch, before.set_epoch)
            cluster.wait_acknowledged(FEW)
        cluster.wait_readable()


def admin(*arguments: str) -> str:
    """Return what `rmqstore admin` prints; it must end with status 0."""
    result = CliRunner().invoke(app, ["admin", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_mqadmin_prints_the_same_with_our_nameserver_and_with_java_s(cluster: JavaCluster) -> None:
    cluster.wait_whole()
    with cluster.producing(topic := next(_topics)):
        cluster.wait_acknowledged(FEW)

    def printed(nameserver: str) -> tuple[object, ...]:
        brokers = cluster.admin("clusterList", "-n", nameserver).splitlines()
        return (
            # The columns after the version are figures of the moment.
            [line.split()[:5] for line in brokers if line.startswith(CLUSTER)],
            sorted(cluster.admin("topicList", "-n", nameserver).splitlines()),
            cluster.admin("topicRoute", "-n", nameserver, "-t", topic),
        )

    found: list[tuple[object, ...]] = []

    def are_equal() -> bool:
        # Brokers register at one after the other.
        found[:] = [printed(cluster.namesrv), printed(cluster.java_namesrv)]
        return found[0] == found[1]

    spin_until(are_equal, "equal routes", timeout=LIMIT_S)
    brokers, topics, route = found[0]
    assert len(brokers) == 2
    assert topic in topics
    assert '"writeQueueNums":4' in route


def test_mqadmin_shows_the_group_and_elects_the_named_master(cluster: JavaCluster) -> None:
    before = cluster.wait_whole()
    controller = cluster.controller
    shown = cluster.admin("getSyncStateSet", "-a", controller, "-b", GROUP)
    assert "#SyncStateSetNums\t2\n" in shown
    assert shown.count("brokerId=") == shown.count("alive=true") == 2

    [other] = before.members - {before.master_id}
    options = ("-a", controller, "-b", str(other), "-bn", GROUP, "-c", CLUSTER)
    shown = cluster.admin("electMaster", *options)
    assert f"#BrokerMasterAddr\t{cluster.broker(other).address}\n" in shown
    assert cluster.wait_whole().epoch > before.epoch

    shown = cluster.admin("getControllerMetaData", "-a", controller)
    assert f"#ControllerLeaderAddress\t{controller}\n" in shown

    shown = cluster.admin("getBrokerEpoch", "-n", cluster.namesrv, "-b", GROUP)
    epochs = [
        [int(epoch) for epoch in re.findall(r"epoch=(\d+),", part)]
        for part in shown.split("#brokerAddr")[1:]
    ]
    assert len(epochs) == 2
    assert all(each and each == sorted(set(each)) for each in epochs), shown


@with_releases("tool", {"mqadmin": OLD, "rmqstore": NEW})
def test_both_tools_change_both_nameservers_alike(cluster: JavaCluster, tool: str) -> None:
    run = cluster.admin if tool == "mqadmin" else admin
    cluster.wait_whole()
    with cluster.producing(topic := next(_topics)):
        cluster.wait_acknowledged(FEW)

    for nameserver in (cluster.namesrv, cluster.java_namesrv):
        run("updateKvConfig", "-n", nameserver, "-s", tool, "-k", "kept", "-v", "value")
        run("updateKvConfig", "-n", nameserver, "-s", tool, "-k", "other", "-v", "value")
        run("deleteKvConfig", "-n", nameserver, "-s", tool, "-k", "other")
        run(
            "updateNamesrvConfig",
            "-n",
            nameserver,
            "-k",
            "scanNotActiveBrokerInterval",
            "-v",
            "6000",
        )

        def has_permission(wanted: int, change: str, nameserver: str = nameserver) -> bool:
            # A broker that has just changed its topics registers with its own permissions again.
            run(change, "-n", nameserver, "-b", GROUP)
            route = json.loads(admin("topicRoute", "-n", nameserver, "-t", topic, "--json"))
            return route["perm"] == wanted

        for change, wanted in (("wipeWritePerm", 4), ("addWritePerm", 6)):
            spin_until(functools.partial(has_permission, wanted, change), change, timeout=LIMIT_S)
        shown = run("getNamesrvConfig", "-n", nameserver)
        assert re.search(r"scanNotActiveBrokerInterval\W+6000", shown)

    ours, java_s = (json.loads(path.read_text())["configTable"] for path in cluster.kv_files)
    assert ours[tool] == java_s[tool] == {"kept": "value"}


def test_rmqstore_admin_prints_the_same_with_our_nameserver_and_with_java_s(
    cluster: JavaCluster,
) -> None:
    cluster.wait_whole()

    def printed(nameserver: str) -> list[str]:
        verbs = (["topicList"], ["clusterList"], ["topicRoute", "-t", "TBW102"])
        return [admin(*verb, "-n", nameserver) for verb in verbs]

    spin_until(
        lambda: printed(cluster.namesrv) == printed(cluster.java_namesrv),
        "equal answers",
        timeout=LIMIT_S,
    )
    assert GROUP in printed(cluster.java_namesrv)[1]


def shown_by_top(cluster: JavaCluster) -> dict[int, dict[str, Any]]:
    """Return the rows of `rmqstore top` by broker id."""
    servers = ("-n", cluster.namesrv, "-a", cluster.controller)
    result = CliRunner().invoke(app, ["top", "--once", "--json", *servers])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert (shown["waitReasons"], shown["unknown"]) == ({}, [])
    assert {each["brokerName"] for each in shown["brokers"]} == {GROUP}
    return {each["brokerId"]: each for each in shown["brokers"]}


@with_release(NEW)
def test_top_shows_roles_epochs_sets_and_the_lag_of_java_brokers(cluster: JavaCluster) -> None:
    cluster.wait_whole()
    with cluster.producing(next(_topics)):
        cluster.wait_acknowledged(FEW)
    cluster.wait_equal_logs()
    whole = cluster.wait_whole()
    rows = shown_by_top(cluster)
    assert rows.keys() == cluster.ids
    for number, row in rows.items():
        assert row["brokerAddr"] == cluster.broker(number).address
        assert row["role"] == ("master" if number == whole.master_id else "slave")
        assert (row["alive"], row["inSync"], row["lagBytes"]) == (True, True, 0)
        assert (row["epoch"], row["syncStateSetEpoch"]) == (whole.epoch, whole.set_epoch)

    [slave_id] = whole.members - {whole.master_id}
    with cluster.broker(slave_id).without_copies(), cluster.producing(next(_topics)):
        cluster.wait_outside(slave_id)
        cluster.wait_acknowledged(FEW)
        rows = shown_by_top(cluster)
        slave, master = rows[slave_id], rows[whole.master_id]
        assert (slave["alive"], slave["inSync"], slave["role"]) == (True, False, "slave")
        assert slave["endOffset"] + slave["lagBytes"] == master["endOffset"]
        assert slave["lagBytes"] > 0 == master["lagBytes"]
        assert slave["syncStateSetEpoch"] > whole.set_epoch
    cluster.wait_whole()


@with_release(OLD)
def test_metrics_of_both_servers_name_the_group_of_java_brokers(cluster: JavaCluster) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")
    cluster.wait_whole()
    with cluster.producing(next(_topics)):
        cluster.wait_acknowledged(FEW)
    whole = cluster.wait_whole()

    def metrics(address: str) -> str:
        with urlopen(f"http://{address}/metrics", timeout=LIMIT_S) as answer:
            text: str = answer.read().decode()
            return text

    text = metrics(cluster.controller_metrics[0])
    group = {"cluster": CLUSTER, "broker_set": GROUP}
    assert value_of(text, "active_broker_num", **group) == len(cluster.ids)
    assert value_of(text, "rmqstore_sync_state_set_size", **group) == len(cluster.ids)
    assert value_of(text, "rmqstore_has_master", **group) == 1
    assert value_of(text, "rmqstore_master_epoch", **group) == whole.epoch
    assert "rmqstore_waits_for_replicas{" not in text
    assert value_of(text, "role", address=cluster.controller) == 3
    for kind in ("broker_heartbeat", "get_replica_info"):
        succeeded = {"request_type": f"controller_{kind}", "request_handle_status": "success"}
        assert value_of(text, "request_total", **succeeded) > 0

    text = metrics(cluster.nameserver_metrics)
    assert value_of(text, "rmqstore_active_broker_num", cluster=CLUSTER) == len(cluster.ids)
    assert value_of(text, "rocketmq_topic_number") > 0
    for kind in ("REGISTER_BROKER", "GET_ROUTEINFO_BY_TOPIC"):
        code = {"request_code": kind, "response_code": "SUCCESS"}
        assert value_of(text, "rocketmq_rpc_latency_count", **code) > 0


def test_rmqstore_admin_works_with_java_s_controller(cluster: JavaCluster) -> None:
    address = cluster.java_controller
    thread = LoopThread("brokers", what="the thread of the brokers")
    stack = AsyncExitStack()
    try:
        # Java's controller takes a broker for dead once its connection closes.
        thread.run(lambda: _form_group(stack, address))

        leader = json.loads(admin("getControllerMetaData", "-a", address, "--json"))
        assert leader["controllerLeaderAddress"] == address
        shown = json.loads(admin("getSyncStateSet", "-a", address, "-b", "b", "--json"))
        assert (shown["masterBrokerId"], shown["masterEpoch"]) == (1, 1)
        assert [each["brokerId"] for each in shown["inSyncReplicas"]] == [1, 2]

        options = ("-a", address, "-b", "2", "-bn", "b", "-c", "c", "--json")
        elected = json.loads(admin("electMaster", *options))
        assert (elected["masterBrokerId"], elected["masterEpoch"]) == (2, 2)

        admin("updateControllerConfig", "-a", address, "-k", "processReadEvent", "-v", "true")
        assert re.search(r"rocessReadEvent\W+true", admin("getControllerConfig", "-a", address))

        admin("cleanBrokerMetadata", "-a", address, "-bn", "b", "-c", "c", "-l")
        arguments = ["admin", "getSyncStateSet", "-a", address, "-b", "b"]
        assert CliRunner().invoke(app, arguments).exit_code != 0
    finally:
        thread.run(stack.aclose)
        thread.stop()


async def _form_group(stack: AsyncExitStack, controller: str) -> None:
    """Register brokers 1 and 2 of group b in cluster c, 1 as the master, both in the set."""
    group = {"clusterName": "c", "brokerName": "b"}
    clients = [await stack.enter_async_context(RemotingClient()) for _ in range(2)]

    async def send(number: int, code: RequestCode, body: bytes = b"", **fields: str) -> None:
        request = Frame.request(code, group | fields, body)
        (await clients[number - 1].call(controller, request, WAIT_S)).raise_for_code()

    for number in (1, 2):
        own, place = str(number), f"127.0.0.1:{number}"
        code = RequestCode.CONTROLLER_APPLY_BROKER_ID
        await send(number, code, appliedBrokerId=own, registerCheckCode=f"{place};1")
        code = RequestCode.CONTROLLER_REGISTER_BROKER
        await send(number, code, brokerId=own, brokerAddress=place)
        figures = {"epoch": "0", "maxOffset": "100", "confirmOffset": "100"}
        await send(
            number,
            RequestCode.BROKER_HEARTBEAT,
            **figures,
            brokerId=own,
            brokerAddr=place,
            heartbeatTimeoutMills="3600000",
            electionPriority="1",
        )
    await send(1, RequestCode.CONTROLLER_ELECT_MASTER, brokerId="1", designateElect="false")
    await send(
        1,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
        SyncStateSetBody(frozenset({1, 2}), 1).encode(),
        masterBrokerId="1",
        masterEpoch="1",
    )
