"""A consumer of Java answers the questions that a broker of ours passes on, and takes the offsets
of a reset (spec/broker.md 27)."""

from __future__ import annotations

from pathlib import Path

from rmqstore.admin.broker import BrokerAdmin
from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.store.metadata import TopicConfig
from tests.support.brokers import broker_config
from tests.support.java_broker import java_side
from tests.support.loops import on_loop
from tests.support.releases import NEW, with_release
from tests.support.waiting import until

GROUP = "peer-consumer"
MESSAGES = 3


@with_release(NEW)
@on_loop
async def test_java_consumer_answers_an_operator_and_takes_a_reset(
    java_release: str, tmp_path: Path
) -> None:
    with java_side(java_release, tmp_path) as java:
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        async with Nameserver(config) as server:
            namesrv = format_address(server.address)
            settings = broker_config(
                tmp_path / "ours", nameservers=(namesrv,), resets_at_broker=False
            )
            async with Broker(settings) as broker, BrokerAdmin(namesrv) as admin:
                await broker.metadata.change_topic(TopicConfig("T", 1, 1))
                ids = [
                    (await broker.store.put("T", b"%d" % number)).message_id
                    for number in range(MESSAGES)
                ]
                await broker.registered()
                consumer = await java.client()
                consumer.send(f"consume {namesrv} T")

                def received() -> list[int]:
                    return [each["n"] for each in consumer.events_of("received")]

                await until(lambda: len(received()) == MESSAGES, "all messages are consumed")
                connections = await admin.consumer_connections(GROUP)
                [member] = connections["connectionSet"]
                client_id = member["clientId"]

                info = await admin.running_info(GROUP, client_id, with_stacks=True)
                assert "main" in info["jstack"]
                queues = {QueueName.of_key(key)[::2] for key in info["mqTable"]}
                assert ("T", 0) in queues

                status = await admin.consumer_status(GROUP, "T")
                queue = QueueName("T", settings.name, 0)
                assert status == {client_id: {queue: MESSAGES}}

                place = format_address(broker.address)
                result = await admin.consume_directly(GROUP, client_id, "T", ids[1], place)
                assert result["consumeResult"] == "CR_SUCCESS"
                await until(lambda: received()[MESSAGES:] == [1], "one message is consumed at once")

                offsets = await admin.reset_offset_by_time(GROUP, "T", time_ms=0)
                assert offsets == {queue: 0}
                again = MESSAGES + 1
                await until(
                    lambda: sorted(received()[again:]) == [*range(MESSAGES)],
                    "all messages are consumed once more",
                )
