"""Brokers of ours under a controller, in one event loop."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from rmqstore.broker.node import Broker
from rmqstore.config import ControllerConfig
from rmqstore.controller.server import Controller
from rmqstore.errors import StoreError
from rmqstore.message import Durability
from rmqstore.net.addresses import format_address
from tests.support.brokers import broker_config
from tests.support.waiting import until


def controller_of(path: Path, port: int = 0) -> Controller:
    return Controller(
        ControllerConfig(
            bind_address="127.0.0.1",
            listen_port=port,
            store_path=str(path),
            scan_brokers_interval_ms=20,
            scan_masters_interval_ms=50,
        )
    )


class Group:
    """Brokers in directories of their own, under controllers at addresses."""

    def __init__(self, root: Path, *controllers: str, **options: Any) -> None:
        self.root = root
        self.controllers = controllers
        self.options = options
        self.brokers: dict[str, Broker] = {}
        self.stack = contextlib.AsyncExitStack()

    async def start(self, name: str, **options: Any) -> Broker:
        """Start the broker in the directory *name*."""
        settings: dict[str, Any] = {
            "controller_mode_enable": True,
            "controllers": self.controllers,
            "heartbeat_interval_ms": 50,
            "controller_heartbeat_timeout_ms": 3000,
            "ha_send_heartbeat_interval_ms": 200,
            "slave_timeout_ms": 20_000,
        }
        broker = Broker(broker_config(self.root / name, **settings | self.options | options))
        self.brokers[name] = broker
        await broker.start()
        return broker

    async def stop(self, name: str) -> None:
        """End a broker as at a shutdown."""
        await self.brokers.pop(name).close()

    async def kill(self, name: str) -> None:
        """End a broker without the steps of a clean end: its links vanish first."""
        broker = self.brokers.pop(name)
        assert broker.open.membership is not None
        await broker.open.membership.close()
        if broker._client is not None:
            await broker._client.close()
        if broker.replica is not None:
            await broker.replica._close(is_clean=False)
        await broker.close()

    def masters(self) -> list[str]:
        return [name for name, each in self.brokers.items() if each.role.name == "master"]

    async def master(self, *, after: int = 0, members: int | None = None) -> str:
        """Return the master once it takes puts, of an epoch above *after*, with a full set."""
        wanted = len(self.brokers) if members is None else members

        def is_ready() -> bool:
            for name in self.masters():
                broker = self.brokers[name]
                is_later = broker.role.epoch > after
                if is_later and len(broker.role.members) == wanted and takes_puts(broker):
                    return all(each.role.name for each in self.brokers.values())
            return False

        await until(is_ready, f"a master after epoch {after} with {wanted} members")
        (found,) = [each for each in self.masters() if self.brokers[each].role.epoch > after]
        return found


def takes_puts(broker: Broker) -> bool:
    """Return whether the lease is held: memory is enough for this put."""
    try:
        broker.store.store.put("probe", b"x", durability=Durability.MEMORY)
    except StoreError:
        return False
    return True


@contextlib.asynccontextmanager
async def group_of(root: Path, *names: str, **options: Any) -> AsyncIterator[Group]:
    """A controller and brokers."""
    async with controller_of(root / "controller") as controller:
        group = Group(root, format_address(controller.address), **options)
        try:
            for name in names:
                await group.start(name)
            yield group
        finally:
            for name in list(group.brokers):
                await group.stop(name)


async def put(broker: Broker, text: str) -> None:
    await broker.store.put("orders", text.encode(), queue=0, durability=Durability.REPLICATED)


def bodies(broker: Broker) -> list[bytes]:
    queue = broker.store.store.queue("orders", 0)
    return [each.body for each in queue.records(start=0, stop=queue.end)]
