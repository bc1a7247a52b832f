"""Which address of this machine a broker names where its file names none."""

from __future__ import annotations

import pytest

from rmqstore.net.own_address import OwnAddress, choose_address

LAN, BRIDGE = "eth0", "docker0"


@pytest.mark.parametrize(
    ("addresses", "wanted"),
    [
        ([], "127.0.0.1"),
        (["10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["192.168.1.7", "10.0.0.7"], "10.0.0.7"),
        (["169.254.0.7", "192.168.1.7"], "192.168.1.7"),
        (["fd00::5"], "fd00::5"),
        (["fd00::5", "192.168.1.7"], "192.168.1.7"),
        (["fd00::5", "fd00::6"], "fd00::5"),
    ],
)
def test_a_reachable_address_is_preferred_as_in_rocketmq(addresses: list[str], wanted: str) -> None:
    found = [OwnAddress(address, LAN) for address in addresses]
    assert choose_address(found).address == wanted


@pytest.mark.parametrize(
    ("reachable", "inside", "wanted"),
    [
        (["192.168.1.7"], ["172.17.0.1"], "192.168.1.7"),
        (["fd00::5"], ["172.17.0.1"], "fd00::5"),
        ([], ["172.17.0.1", "fd00::5"], "172.17.0.1"),
        ([], ["fd00::5"], "fd00::5"),
    ],
)
def test_an_address_inside_this_machine_comes_after_all_others(
    reachable: list[str], inside: list[str], wanted: str
) -> None:
    found = [
        *(OwnAddress(address, BRIDGE, is_reachable=False) for address in inside),
        *(OwnAddress(address, LAN) for address in reachable),
    ]
    chosen = choose_address(found)
    assert chosen.address == wanted
    assert chosen.is_reachable is bool(reachable)


def test_a_machine_without_addresses_names_the_loopback_address_as_unreachable() -> None:
    assert choose_address([]) == OwnAddress("127.0.0.1", "lo", is_reachable=False)
