"""Nameservers and controllers whose names are looked up: `fetchNameSrvAddrByDnsLookup` and
`fetchControllerAddrByDnsLookup`."""

from __future__ import annotations

from pathlib import Path

from rmqstore.broker.node import Broker
from rmqstore.config import ControllerConfig, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.nameserver.server import Nameserver
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.waiting import until


@on_loop
async def test_a_broker_registers_at_the_addresses_of_a_name(tmp_path: Path) -> None:
    settings = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
    controller = Controller(
        ControllerConfig(bind_address="127.0.0.1", listen_port=0, store_path=str(tmp_path / "c"))
    )
    async with Nameserver(settings) as server, controller:
        config = broker_config(
            tmp_path / "b",
            nameservers=(f"localhost:{server.address[1]}",),
            nameservers_by_dns=True,
            controller_mode_enable=True,
            controllers=(f"localhost:{controller.address[1]}",),
            controllers_by_dns=True,
        )
        async with Broker(config) as broker:
            found = f"127.0.0.1:{server.address[1]}"
            await until(lambda: broker.status().nameservers.get(found) == "", "is registered")
            assert f"127.0.0.1:{controller.address[1]}" in broker.open.controller_addresses
            await until(lambda: broker.role.name == "master", "the controller elects it")
