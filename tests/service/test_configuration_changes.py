"""Changes of the configuration of running servers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rmqstore.broker.node import Broker
from rmqstore.config import ControllerConfig, NameserverConfig
from rmqstore.controller.server import Controller
from rmqstore.nameserver.server import Nameserver
from tests.support.brokers import broker_config
from tests.support.loops import on_loop

LOCAL: dict[str, Any] = {"bind_address": "127.0.0.1", "listen_port": 0}


def nameserver_of(root: Path) -> Nameserver:
    return Nameserver(NameserverConfig(**LOCAL, config_store_path=str(root / "changes")))


def controller_of(root: Path) -> Controller:
    return Controller(
        ControllerConfig(
            **LOCAL, store_path=str(root / "log"), config_store_path=str(root / "changes")
        )
    )


def broker_of(root: Path) -> Broker:
    return Broker(broker_config(root / "store", config_store_path=str(root / "changes")))


@pytest.mark.parametrize(
    ("server_of", "one", "two"),
    [
        (nameserver_of, {"scanNotActiveBrokerInterval": "7000"}, {"supportActingMaster": "true"}),
        (
            controller_of,
            {"scanNotActiveBrokerInterval": "7000"},
            {"enableElectUncleanMaster": "true"},
        ),
        (broker_of, {"brokerPermission": "4"}, {"slaveReadEnable": "true"}),
    ],
)
@on_loop
async def test_two_changes_at_once_are_both_in_effect(
    server_of: Any, one: Mapping[str, str], two: Mapping[str, str], tmp_path: Path
) -> None:
    async with server_of(tmp_path) as server:
        await asyncio.gather(server.configure(one), server.configure(two))
        properties = server.config.to_properties().splitlines()
        for key, value in {**one, **two}.items():
            assert f"{key}={value}" in properties
