"""Which address of this machine a broker names where its file names none."""

from __future__ import annotations

import pytest

from rmqstore.net.own_address import choose_address


@pytest.mark.parametrize(
    ("addresses", "wanted"),
    [
        ([], "127.0.0.1"),
        (["127.0.0.1"], "127.0.0.1"),
        (["127.0.0.1", "10.0.0.7", "10.0.0.8"], "10.0.0.7"),
        (["127.0.0.1", "192.168.1.7", "10.0.0.7"], "10.0.0.7"),
        (["127.0.0.1", "169.254.0.7", "192.168.1.7"], "192.168.1.7"),
    ],
)
def test_a_reachable_address_is_preferred_as_in_rocketmq(addresses: list[str], wanted: str) -> None:
    assert choose_address(addresses) == wanted
