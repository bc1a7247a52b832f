"""A broker with its nameserver for `rmqstore admin`, on the loopback interface."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from rmqstore.broker.node import Broker
from rmqstore.config import NameserverConfig
from rmqstore.message import Message
from rmqstore.nameserver.server import Nameserver
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.store.metadata import TopicConfig
from tests.support.brokers import broker_config

__all__ = ["Served"]

T = TypeVar("T")


class Served:
    """A broker and its nameserver on a thread of their own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._stack = AsyncExitStack()
        self._thread = LoopThread("broker", what="the thread of the broker")
        try:
            self._thread.run(self._start)
        except BaseException:
            self.close()
            raise

    async def _start(self) -> None:
        config = NameserverConfig(bind_address="127.0.0.1", listen_port=0)
        server = await self._stack.enter_async_context(Nameserver(config))
        self.namesrv = format_address(server.address)
        settings = broker_config(self._root, nameservers=(self.namesrv,), cluster_name="east")
        self.broker = await self._stack.enter_async_context(Broker(settings))
        await self.broker.registered()
        self.address = format_address(self.broker.address)

    def consume(self) -> None:
        """Put three messages, of which the group g has consumed two."""

        async def work() -> None:
            for _ in range(3):
                await self.broker.store.put("orders", b"m", queue=1)
            await self.broker.metadata.retry_topic("g")
            self.broker.metadata.offsets.commit("orders", "g", 1, 2)
            await self.broker.registered()

        self._thread.run(work)

    def put(self, *messages: Message) -> list[str]:
        """Put messages into queue 0 and return their offset ids."""

        async def work() -> list[str]:
            ids = []
            for each in messages:
                receipt = await self.broker.store.put(each)
                ids.append(receipt.message_id)
            await self.broker.metadata.change_topic(TopicConfig("orders", 4, 4))
            await self.broker.registered()
            self.broker.store.store.wait_dispatched()
            return ids

        return self._thread.run(work)

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of *work* on the loop of the broker."""
        return self._thread.run(work)

    def close(self) -> None:
        """End both servers."""
        self._thread.run(self._stack.aclose)
        self._thread.stop()
