"""Metrics of nameserver, controller and broker, as Prometheus gets them."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import ControllerConfig, MetricsExporter, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import MissingExtraError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import Address, format_address
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.service.broker_clients import pull_request
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.metrics_text import value_of
from tests.support.sends import send_request
from tests.support.waiting import WAIT_S, until

GROUP = {"clusterName": "c", "brokerName": "b"}


def _size(path: Path) -> int:
    return path.stat().st_size


@pytest.fixture
def _exporter() -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra metrics")


async def fetched(place: Address | None, request: str = "GET /metrics HTTP/1.1") -> str:
    assert place is not None
    async with asyncio.timeout(WAIT_S):
        reader, writer = await asyncio.open_connection(*place)
        writer.write(f"{request}\r\nHost: h\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
    return answer.decode()


@pytest.mark.usefixtures("_exporter")
@on_loop
async def test_a_controller_counts_requests_elections_and_groups_that_wait(tmp_path: Path) -> None:
    config = ControllerConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        store_path=str(tmp_path / "log"),
        group="g",
        metrics_exporter=MetricsExporter.PROM,
        metrics_port=0,
    )
    async with Controller(config) as controller, RemotingClient() as client:

        async def send(code: RequestCode, **fields: str) -> Frame:
            request = Frame.request(code, {**GROUP, **fields})
            return await client.call(controller.address, request, WAIT_S)

        place = {"brokerId": "1", "brokerAddress": "127.0.0.1:1"}
        await send(
            RequestCode.CONTROLLER_APPLY_BROKER_ID,
            appliedBrokerId="1",
            registerCheckCode="127.0.0.1:1;1",
        )
        await send(RequestCode.CONTROLLER_REGISTER_BROKER, **place)
        beat = {"brokerId": "1", "brokerAddr": "127.0.0.1:1", "epoch": "0", "maxOffset": "1"}
        await send(RequestCode.BROKER_HEARTBEAT, **beat, heartbeatTimeoutMills="3600000")
        elected = await send(RequestCode.CONTROLLER_ELECT_MASTER, brokerId="1")
        assert elected.code == ResponseCode.SUCCESS
        again = await send(RequestCode.CONTROLLER_ELECT_MASTER, brokerId="1")
        assert again.code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST

        text = await fetched(controller.metrics_address)
        node = {"address": format_address(controller.address), "group": "g", "peer_id": "n0"}
        group = {**node, "cluster": "c", "broker_set": "b"}
        assert text.startswith("HTTP/1.1 200 OK")
        assert value_of(text, "role", **node) == 3
        assert value_of(text, "active_broker_num", **group) == 1
        assert value_of(text, "rmqstore_has_master", **group) == 1
        assert value_of(text, "rmqstore_master_epoch", **group) == 1
        for result, count in (
            ("new_master_elected", 1),
            ("keep_current_master", 1),
            ("no_master_elected", 0),
        ):
            assert value_of(text, "election_total", **node, election_result=result) == count
        kind = {"request_type": "controller_elect_master", "request_handle_status": "success"}
        assert value_of(text, "request_total", **node, **kind) == 2
        assert value_of(text, "request_latency_count", **node, **kind) == 2
        assert value_of(text, "request_latency_bucket", **kind, le="+Inf") == 2
        beats = {"request_type": "controller_broker_heartbeat"}
        assert value_of(text, "request_total", **beats) == 1
        assert value_of(text, "dledger_op_total", dLedger_operation_status="success") >= 2
        files = [each for each in (tmp_path / "log").rglob("*") if each.is_file()]
        assert value_of(text, "dledger_disk_usage", **node) == sum(map(_size, files)) > 0
        assert "rmqstore_waits_for_replicas{" not in text


@pytest.mark.usefixtures("_exporter")
@on_loop
async def test_a_nameserver_counts_requests_by_their_answers() -> None:
    config = NameserverConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        metrics_exporter=MetricsExporter.PROM,
        metrics_port=0,
    )
    async with Nameserver(config) as nameserver, RemotingClient() as client:
        for topic in ("x", "y"):
            request = Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
            answer = await client.call(nameserver.address, request, WAIT_S)
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        text = await fetched(nameserver.metrics_address)
        code = {"request_code": "GET_ROUTEINFO_BY_TOPIC", "response_code": "TOPIC_NOT_EXIST"}
        assert value_of(text, "rocketmq_rpc_latency_count", **code) == 2
        assert value_of(text, "rocketmq_topic_number") == 0
        assert value_of(text, "rmqstore_connections") == 1
        assert value_of(text, "rmqstore_refused_connections_total") == 0


@pytest.mark.usefixtures("_exporter")
@on_loop
async def test_a_broker_counts_requests_and_shows_its_log_and_role(tmp_path: Path) -> None:
    config = broker_config(tmp_path, metrics_exporter=MetricsExporter.PROM, metrics_port=0)
    config = config.replace(nameservers=("127.0.0.1:1",))
    async with Broker(config) as broker, RemotingClient() as client:
        end = (await broker.store.put("orders", b"one")).end_offset
        request = Frame.request(RequestCode.GET_ALL_TOPIC_CONFIG)
        (await client.call(broker.address, request, WAIT_S)).raise_for_code()
        text = await fetched(broker.metrics_address)
        node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        code = {"request_code": "GET_ALL_TOPIC_CONFIG", "response_code": "SUCCESS"}
        assert value_of(text, "rocketmq_rpc_latency_count", **node, **code) == 1
        assert value_of(text, "rocketmq_broker_permission", **node) == 6
        assert value_of(text, "rocketmq_topic_number", **node) >= 1
        assert value_of(text, "rocketmq_storage_size", **node, storage_type="local") == end
        assert value_of(text, "rmqstore_role", **node) == 2
        assert value_of(text, "rmqstore_connections", **node) == 1
        assert value_of(text, "rmqstore_absent_nameservers", **node) == 1
        lookups = {**node, "family": "lookup"}
        assert value_of(text, "rmqstore_requests_in_progress", **lookups) == 0


@pytest.mark.usefixtures("_exporter")
@on_loop
async def test_other_requests_to_the_endpoint_are_answered_with_errors() -> None:
    config = NameserverConfig(
        bind_address="127.0.0.1",
        listen_port=0,
        metrics_exporter=MetricsExporter.PROM,
        metrics_port=0,
    )
    async with Nameserver(config) as nameserver:
        place = nameserver.metrics_address
        assert "404 Not Found" in await fetched(place, "GET / HTTP/1.1")
        assert "405 Method Not Allowed" in await fetched(place, "POST /metrics HTTP/1.1")
        assert (await fetched(place, "HEAD /metrics HTTP/1.1")).endswith("\r\n\r\n")
        assert "200 OK" in await fetched(place, "GET /metrics?name=x HTTP/1.0")


@on_loop
async def test_without_the_extra_the_message_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    config = NameserverConfig(metrics_exporter=MetricsExporter.PROM)
    with pytest.raises(MissingExtraError, match=r"rmqstore\[metrics\]"):
        Nameserver(config)
    assert Nameserver(NameserverConfig()).metrics_address is None


def test_exporters_without_an_effect_are_named(caplog: pytest.LogCaptureFixture) -> None:
    config = NameserverConfig.from_properties("metricsExporterType=OTLP_GRPC\n")
    assert Nameserver(config).metrics_address is None
    assert "metricsExporterType=OTLP_GRPC has no effect here" in caplog.text


@pytest.mark.usefixtures("_exporter")
@on_loop
async def test_a_broker_shows_messages_of_topics_and_lags_of_groups(tmp_path: Path) -> None:
    config = broker_config(tmp_path, metrics_exporter=MetricsExporter.PROM, metrics_port=0)
    async with Broker(config) as broker, RemotingClient() as client:
        for number in range(5):
            request = send_request("T", b"%d" % number)
            (await client.call(broker.address, request, WAIT_S)).raise_for_code()
        await broker.store.wait_dispatched()
        pull = pull_request("T", 0, max_messages=3)
        pulled = (await client.call(broker.address, pull, WAIT_S)).raise_for_code()
        broker.metadata.offsets.commit("T", "cg", 0, 1)
        group = {"topic": "T", "consumer_group": "cg", "is_retry": "false", "is_system": "false"}

        async def has_lags() -> bool:
            text = await fetched(broker.metrics_address)
            return "rocketmq_consumer_lag_messages{" in text

        await until(has_lags, "lags are measured", pause=0.2)
        text = await fetched(broker.metrics_address)
        node = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": "broker-a"}
        assert value_of(text, "rocketmq_messages_in_total", **node, topic="T") == 5
        assert (
            value_of(text, "rocketmq_throughput_in_total", topic="T")
            == broker.store.store.end_offset
        )
        assert value_of(text, "rocketmq_messages_out_total", **node, **group) == 3
        assert value_of(text, "rocketmq_throughput_out_total", **group) == len(pulled.body)
        assert value_of(text, "rocketmq_consumer_lag_messages", **node, **group) == 4
        assert value_of(text, "rocketmq_consumer_inflight_messages", **group) == 2
        assert value_of(text, "rocketmq_consumer_ready_messages", **group) == 2
        assert value_of(text, "rocketmq_consumer_lag_latency", **group) > 0
        assert value_of(text, "rocketmq_consumer_queueing_latency", **group) > 0
        assert value_of(text, "rocketmq_timer_enqueue_lag", **node) == 0
        assert value_of(text, "rocketmq_commit_messages_total", **node) == 0
