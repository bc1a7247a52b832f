"""Nameservers and controllers whose names are looked up: `fetchNameSrvAddrByDnsLookup` and
`fetchControllerAddrByDnsLookup`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.broker.server_addresses import ServerAddresses
from rmqstore.config import BrokerConfig, ControllerConfig, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.identity_log import IdentityLog
from rmqstore.net.runtime import LoopRuntime
from rmqstore.remoting.client import RemotingClient
from tests.support.brokers import broker_config
from tests.support.loops import on_loop
from tests.support.waiting import until

ONE, TWO, THREE = (f"10.0.0.{number}:9876" for number in (1, 2, 3))


class _World(LoopRuntime):
    """A world with its own service of names."""

    def __init__(self, names: Names) -> None:
        super().__init__("broker", log=names.log, client=RemotingClient())
        self._names = names

    async def addresses_of(self, place: str, *, limit_s: float) -> Sequence[str]:
        try:
            return self._names.known[place]
        except KeyError:
            raise OSError("no such host") from None


class Names:
    """A broker's settings, and a service of names that can be changed and that can fail."""

    def __init__(self, **config: object) -> None:
        self.config = BrokerConfig.from_properties(
            "".join(f"{key}={value}\n" for key, value in config.items())
        )
        self.log = IdentityLog("rmqstore.broker", "broker")
        self.runtime: Any = _World(self)
        self.known: dict[str, Sequence[str]] = {}
        self.changes = 0
        self.addresses = ServerAddresses(self, self._changed, interval_s=0.005, retry_s=0.005)

    def _changed(self) -> None:
        self.changes += 1


@on_loop
async def test_a_name_stands_for_all_its_addresses_and_follows_their_changes() -> None:
    names = Names(
        namesrvAddr=f"names:9876;{THREE}",
        fetchNameSrvAddrByDnsLookup="true",
        controllerAddr="names:9876",
    )
    names.known = {"names:9876": [TWO, ONE, TWO], THREE: [THREE, ONE]}
    await names.addresses.start()
    try:
        assert names.addresses.nameservers == (ONE, TWO, THREE)
        assert names.addresses.controllers == ("names:9876",), "is not to be looked up"
        assert names.changes == 1
        names.known = {"names:9876": [TWO], THREE: [THREE]}
        await until(lambda: names.addresses.nameservers == (TWO, THREE), "the change is found")
        assert names.changes == 2
    finally:
        await names.addresses.close()


@on_loop
async def test_a_name_that_cannot_be_looked_up_keeps_its_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(controllerAddr="names:9876", fetchControllerAddrByDnsLookup="true")
    with caplog.at_level(logging.WARNING, "rmqstore"):
        await names.addresses.start()
    try:
        assert names.addresses.controllers == ("names:9876",)
        assert "names:9876: its addresses are not known: no such host" in caplog.text
        assert names.changes == 0
        names.known = {"names:9876": [ONE, TWO]}
        await until(lambda: names.addresses.controllers == (ONE, TWO), "the name is tried again")
        names.known = {}
        names.addresses.update()
        await until(
            lambda: len([each for each in caplog.records if "names:9876" in each.message]) == 2,
            "the failure is reported",
        )
        assert names.addresses.controllers == (ONE, TWO)
    finally:
        await names.addresses.close()


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
