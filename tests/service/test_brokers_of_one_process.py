"""Brokers of one process, on one loop, that share connections and a prefix of their log."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import LoopRuntime
from rmqstore.remoting.client import RemotingClient
from tests.support.brokers import broker_config
from tests.support.loops import on_loop

COUNT = 20


@on_loop
async def test_brokers_share_a_client_and_a_prefix_and_end_by_themselves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmqstore.broker")
    async with AsyncExitStack() as stack:
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        nameserver = await stack.enter_async_context(Nameserver(config))
        client = await stack.enter_async_context(RemotingClient())
        brokers = []
        for number in range(COUNT):
            log = IdentityLog("rmqstore.broker", "container one")
            runtime = LoopRuntime("broker", log=log, client=client)
            stack.callback(runtime.close)
            settings = broker_config(
                tmp_path / str(number),
                name=f"broker-{number}",
                nameservers=(format_address(nameserver.address),),
            )
            broker = Broker(settings, runtime=runtime)
            brokers.append(await stack.enter_async_context(broker))

        def known(broker: Broker) -> bool:
            members = nameserver.table.member_group("DefaultCluster", broker.config.name)
            return members.addresses == {0: format_address(broker.address)}

        for broker in brokers:
            await broker.registered()
        assert all(known(each) for each in brokers)
        assert len(client.connections) == 1

        first, *others = brokers
        await first.close()
        assert not known(first)
        for broker in others:
            await broker.registered()
            await broker.store.put("orders", b"one")
        assert all(known(each) for each in others)
        assert len(client.connections) == 1

    started = [each for each in caplog.messages if each.endswith("started as master with id 0")]
    names = [f"[container one broker broker-{n} " for n in range(COUNT)]
    assert [any(line.startswith(name) for line in started) for name in names] == [True] * COUNT
