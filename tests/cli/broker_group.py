"""A controller on a thread of its own, with a group of brokers that send what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path

from rmqstore.config import ControllerConfig
from rmqstore.controller.server import Controller
from rmqstore.net.addresses import format_address
from rmqstore.net.loop_thread import LoopThread
from rmqstore.net.tls import TlsServer
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from tests.support.waiting import POLL_S, WAIT_S

GROUP = {"clusterName": "c", "brokerName": "b"}


class BrokerGroup:
    """Brokers 1 to 3 of group b in cluster c, whose puts wait for two copies."""

    def __init__(self, controller: Controller, stack: AsyncExitStack) -> None:
        self.controller = controller
        self.address = format_address(controller.address)
        self._stack = stack
        self._clients: dict[int, RemotingClient] = {}
        self._beats = 0
        self._seen: dict[int, dict[str, str]] = {}
        """What each broker repeats of the last answer, so that its report counts."""

    async def form(self) -> None:
        """Register the brokers, make 1 the master and all of them members of the set."""
        for number in (1, 2, 3):
            self._clients[number] = await self._stack.enter_async_context(RemotingClient())
            place = f"127.0.0.1:{number}"
            await self._send(
                number,
                RequestCode.CONTROLLER_APPLY_BROKER_ID,
                **GROUP,
                appliedBrokerId=str(number),
                registerCheckCode=f"{place};1",
            )
            code = RequestCode.CONTROLLER_REGISTER_BROKER
            await self._send(number, code, **GROUP, brokerId=str(number), brokerAddress=place)
            await self.beat(number)
        await self._send(1, RequestCode.CONTROLLER_ELECT_MASTER, **GROUP, brokerId="1")
        await self._clients[1].call(
            self.controller.address,
            Frame.request(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET,
                {"brokerName": "b", "masterBrokerId": "1", "masterEpoch": "1"},
                SyncStateSetBody(frozenset({1, 2, 3}), 1).encode(),
            ),
            WAIT_S,
        )

    async def lose(self, *numbers: int) -> None:
        """End these brokers; return once the controller has taken the master away."""
        for number in numbers:
            await self._clients.pop(number).close()
        deadline = asyncio.get_running_loop().time() + WAIT_S
        while (group := self.controller.state.group("b")) is None or group.master_id is not None:
            assert asyncio.get_running_loop().time() < deadline, "the group still has a master"
            for number in self._clients:
                await self.beat(number)
            await asyncio.sleep(POLL_S)

    async def beat(self, number: int) -> None:
        """Send a heartbeat of one broker, as a broker of this library does."""
        self._beats += 1
        answer = await self._send(
            number,
            RequestCode.BROKER_HEARTBEAT,
            **GROUP,
            brokerId=str(number),
            brokerAddr=f"127.0.0.1:{number}",
            epoch="0",
            maxOffset="100",
            heartbeatTimeoutMills="3600000",
            brokerLife="1",
            heartbeatNumber=str(self._beats),
            inSyncReplicas="2",
            **self._seen.get(number, {}),
        )
        repeated = ("controllerNode", "controllerTimeMillis")
        self._seen[number] = {name: answer.ext_fields[name] for name in repeated}

    async def _send(self, number: int, code: RequestCode, **fields: str) -> Frame:
        answer = await self._clients[number].call(
            self.controller.address, Frame.request(code, fields), WAIT_S
        )
        return answer.raise_for_code()


@contextmanager
def broker_group(
    path: Path, *, tls: TlsServer | None = None
) -> Iterator[tuple[BrokerGroup, LoopThread]]:
    """Run a controller with a log at *path*, and its group, on the thread that is given too."""
    config = ControllerConfig(
        bind_address="127.0.0.1", listen_port=0, store_path=str(path), group="g"
    )
    stack = AsyncExitStack()

    async def start() -> BrokerGroup:
        group = BrokerGroup(await stack.enter_async_context(Controller(config, tls=tls)), stack)
        await group.form()
        return group

    thread = LoopThread("controller", what="the thread of the controller")
    try:
        yield thread.run(start), thread
    finally:
        thread.run(stack.aclose)
        thread.stop()
