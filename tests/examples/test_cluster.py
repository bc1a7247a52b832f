"""The ready configurations of examples/cluster: each mode starts, and does what its page says."""

from __future__ import annotations

import logging
import re
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rmqstore import Durability
from rmqstore.broker.node import Broker
from rmqstore.config import BrokerConfig, ControllerConfig, NameserverConfig, parse_properties
from rmqstore.controller.server import Controller
from rmqstore.errors import PutError
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from tests.house import tree
from tests.support.brokers import SMALL_FILES
from tests.support.loops import on_loop
from tests.support.waiting import until

CLUSTER = tree.ROOT / "examples" / "cluster"
FILES = sorted(str(each.relative_to(CLUSTER)) for each in CLUSTER.rglob("*.conf"))
NAMESRV, CONTROLLER = "namesrv.conf", re.compile(r"controller-\d")


class Mode:
    """A nameserver, and brokers with the files of one folder but for ports and places."""

    def __init__(self, stack: AsyncExitStack, nameserver: Nameserver, root: Path) -> None:
        self._stack = stack
        self.nameserver = nameserver
        self._root = root

    async def start(self, name: str, **changes: Any) -> Broker:
        config = BrokerConfig.from_properties(CLUSTER / f"{name}.conf").replace(
            bind_address="127.0.0.1",
            listen_port=0,
            ha_listen_port=0,
            nameservers=(format_address(self.nameserver.address),),
            root_path=str(self._root / name),
            **{**SMALL_FILES, **changes},
        )
        broker = await self._stack.enter_async_context(Broker(config))
        await broker.registered()
        return broker

    def brokers(self, name: str) -> dict[int, str]:
        """Return what the nameserver knows of a group."""
        return dict(self.nameserver.table.member_group("DefaultCluster", name).addresses)


async def running(stack: AsyncExitStack, root: Path) -> Mode:
    config = NameserverConfig.from_properties(CLUSTER / NAMESRV)
    config = replace(config, bind_address="127.0.0.1", listen_port=0, kv_config_path="")
    return Mode(stack, await stack.enter_async_context(Nameserver(config)), root)


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_every_file_has_an_effect(name: str, caplog: pytest.LogCaptureFixture) -> None:
    kind: type[BrokerConfig] | type[ControllerConfig] | type[NameserverConfig] = BrokerConfig
    if name == NAMESRV:
        kind = NameserverConfig
    elif CONTROLLER.search(name):
        kind = ControllerConfig
    with caplog.at_level(logging.WARNING):
        kind.from_properties(CLUSTER / name)
    assert not caplog.messages


@on_loop
async def test_one_broker_answers_once_a_message_is_on_its_disk(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mode = await running(stack, tmp_path)
        broker = await mode.start("one-broker/broker")
        assert mode.brokers("broker-a") == {0: format_address(broker.address)}
        receipt = await broker.store.put("orders", b"one")
        assert receipt.durability is Durability.DISK


@on_loop
async def test_several_masters_are_groups_of_their_own(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mode = await running(stack, tmp_path)
        for letter in "ab":
            broker = await mode.start(f"several-masters/broker-{letter}")
            assert mode.brokers(f"broker-{letter}") == {0: format_address(broker.address)}
            receipt = await broker.store.put("orders", b"one")
            assert receipt.durability is Durability.MEMORY


@on_loop
async def test_asynchronous_slave_has_the_messages_later(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mode = await running(stack, tmp_path)
        master = await mode.start("async-slave/broker-a")
        receipt = await master.store.put("orders", b"one")
        assert receipt.durability is Durability.MEMORY
        slave = await mode.start("async-slave/broker-a-s")
        assert mode.brokers("broker-a").keys() == {0, 1}
        end = receipt.end_offset
        await until(lambda: slave.store.store.dispatched_offset == end, "the slave has it")
        assert (await slave.store.get("orders", offset=0)).body == b"one"


@on_loop
async def test_synchronous_slave_has_what_was_answered(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        mode = await running(stack, tmp_path)
        master = await mode.start("sync-slave/broker-a")
        with pytest.raises(PutError) as caught:
            await master.store.put("orders", b"one")
        assert caught.value.status.name == "SLAVE_NOT_AVAILABLE"
        slave = await mode.start("sync-slave/broker-a-s")
        assert master.replica is not None
        await master.replica.wait_in_sync(2)
        receipt = await master.store.put("orders", b"two")
        assert receipt.durability is Durability.REPLICATED
        assert slave.store.store.end_offset == receipt.end_offset


@on_loop
async def test_group_with_a_controller_answers_once_two_replicas_have_a_message(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        mode = await running(stack, tmp_path)
        # The three controllers of the files need ports that are known before they start.
        config = ControllerConfig(
            bind_address="127.0.0.1", listen_port=0, store_path=str(tmp_path / "controller")
        )
        controller = await stack.enter_async_context(Controller(config))
        places = (format_address(controller.address),)
        brokers = [
            await mode.start(f"controller-group/broker-{number}", controllers=places)
            for number in range(3)
        ]

        def master() -> Broker | None:
            found = [each for each in brokers if each.role.name == "master"]
            return found[0] if found and len(found[0].role.members) == 3 else None

        await until(master, "a master with a set of three")
        leading = master()
        assert leading is not None
        await until(lambda: len(mode.brokers("broker-a")) == 3, "all three are registered")
        assert mode.brokers("broker-a")[0] == format_address(leading.address)
        receipt = await leading.store.put("orders", b"one")
        assert receipt.durability is Durability.REPLICATED


@pytest.mark.parametrize(
    ("page", "pattern"),
    [
        ("compose/compose.yaml", r'"\.\./([\w/.-]+\.conf):'),
        ("README.md", r"`(\w[\w-]*\.conf)`"),
        ("README.md", r"`(systemd|compose/compose.yaml)"),
    ],
)
def test_every_file_that_a_page_names_is_there(page: str, pattern: str) -> None:
    found = re.findall(pattern, (CLUSTER / page).read_text())
    assert found
    assert not [each for each in found if not (CLUSTER / each).exists()]


@pytest.mark.parametrize("name", FILES)
def test_changed_settings_of_every_file_are_beside_its_data(name: str) -> None:
    pairs = parse_properties((CLUSTER / name).read_text())
    assert pairs["configStorePath"].startswith("/var/lib/rmqstore/")
    own = pairs.get("controllerStorePath")
    assert own is None or not pairs["configStorePath"].startswith(f"{own}/")


def test_image_has_controllers_and_metrics() -> None:
    text = (CLUSTER / "compose" / "Dockerfile").read_text()
    images = re.findall(r"^FROM (\S+)", text, re.MULTILINE)
    assert len(images) == 2
    assert all(each.endswith("-bookworm") for each in images)
    assert "/src[cli,metrics]" in text
    found = re.search(r"--version \| grep '(.+)'", text)
    assert found is not None
    assert re.search(found[1], "C-Raft (groups of controllers): built")


def test_units_and_containers_run_servers_that_there_are() -> None:
    units = [each.read_text() for each in (CLUSTER / "systemd").iterdir()]
    served = re.findall(r"rmqstore serve (\w+)", "\n".join(units))
    served += re.findall(r"command: \[(\w+),", (CLUSTER / "compose" / "compose.yaml").read_text())
    assert set(served) == {"namesrv", "controller", "broker"}
    assert len(units) == 3
