"""The names of nameservers and controllers in virtual time: `fetchNameSrvAddrByDnsLookup` and
`fetchControllerAddrByDnsLookup`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from rmqstore.broker.server_addresses import ServerAddresses
from rmqstore.config import BrokerConfig
from tests.support.virtual import VirtualProcess

ONE, TWO, THREE = (f"10.0.0.{number}:9876" for number in (1, 2, 3))


class Names:
    """A broker's settings, and a service of names that can be changed and that can fail."""

    def __init__(self, **config: object) -> None:
        self.process = VirtualProcess()
        self.runtime: Any = self.process.runtime
        self.runtime.addresses_of = self._look_up
        self.log = self.process.runtime.log
        self.config = BrokerConfig.from_properties(
            "".join(f"{key}={value}\n" for key, value in config.items())
        )
        self.known: dict[str, Sequence[str]] = {}
        self.silent: set[str] = set()
        self.changes = 0
        self.process.loop.run(self._begin)

    def _begin(self) -> None:
        self.addresses = ServerAddresses(self, self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def _look_up(self, place: str, *, limit_s: float) -> Sequence[str]:
        if place in self.silent:
            await self.runtime.sleep(limit_s)
            raise TimeoutError
        if place not in self.known:
            raise OSError("no such host")
        return self.known[place]

    def start(self) -> None:
        self.process.run(self.addresses.start())


def test_a_name_stands_for_all_its_addresses_and_follows_their_changes() -> None:
    names = Names(
        namesrvAddr=f"names:9876;{THREE}",
        fetchNameSrvAddrByDnsLookup="true",
        controllerAddr="names:9876",
    )
    names.known = {"names:9876": [TWO, ONE, TWO], THREE: [THREE, ONE]}
    names.start()
    assert names.addresses.nameservers == (ONE, TWO, THREE)
    assert names.addresses.controllers == ("names:9876",), "is not to be looked up"
    assert names.changes == 1
    names.known = {"names:9876": [TWO], THREE: [THREE]}
    names.process.pass_time(119)
    assert names.changes == 1
    names.process.pass_time(2)
    assert names.addresses.nameservers == (TWO, THREE)
    names.process.pass_time(600)
    assert names.changes == 2


def test_a_name_that_cannot_be_looked_up_keeps_its_addresses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    names = Names(controllerAddr="names:9876", fetchControllerAddrByDnsLookup="true")
    with caplog.at_level(logging.WARNING, "rmqstore"):
        names.start()
        names.process.pass_time(5)
    assert names.addresses.controllers == ("names:9876",)
    assert caplog.text.count("names:9876: its addresses are not known: no such host") == 1
    assert names.changes == 0

    names.known = {"names:9876": [ONE, TWO]}
    names.process.pass_time(6)
    assert names.addresses.controllers == (ONE, TWO), "a failure is tried again after 10 s"

    names.known = {}
    names.process.pass_time(121)
    assert names.addresses.controllers == (ONE, TWO)
    assert caplog.text.count("names:9876: its addresses are not known: no such host") == 2


def test_a_silent_service_of_names_delays_the_start_by_its_limit_alone() -> None:
    names = Names(namesrvAddr=f"names:9876;{THREE}", fetchNameSrvAddrByDnsLookup="true")
    names.known, names.silent = {THREE: [THREE]}, {"names:9876"}
    began_ms = names.process.now_ms()
    names.start()
    assert names.process.now_ms() - began_ms <= 5001
    assert names.addresses.nameservers == ("names:9876", THREE)


def test_a_changed_configuration_is_looked_up_at_once_and_nothing_after_the_close() -> None:
    names = Names(namesrvAddr="names:9876", fetchNameSrvAddrByDnsLookup="true")
    names.known = {"names:9876": [ONE], "others:9876": [TWO]}
    names.start()
    names.config = names.config.replace(nameservers=("others:9876",))
    names.process.loop.run(names.addresses.update)
    names.process.pass_time(0.1)
    assert names.addresses.nameservers == (TWO,)

    names.process.run(names.addresses.close())
    names.known = {"others:9876": [THREE]}
    names.process.pass_time(600)
    assert names.addresses.nameservers == (TWO,)
