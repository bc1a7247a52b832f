"""The controllers of a cluster: production's own (`controller_host`), over connections."""

from __future__ import annotations

import asyncio
from typing import Any

from rmqstore.errors import StoreError
from rmqstore.remoting.frames import Frame
from rmqstore.sim.checker import Violation
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.controller_client import CONTROLLERS
from rmqstore.sim.controller_host import ControllerHost
from rmqstore.sim.controllers import Controllers, Node
from rmqstore.sim.operator import OPERATOR
from rmqstore.sim.places import broker_place, controller_place
from rmqstore.sim.process import Process
from rmqstore.sim.transport import SimClient

__all__ = ["ClusterControllers"]

_DESIGNATE_S = 3.0


class ClusterControllers(Controllers):
    """Nodes that are processes, and an operator's process that calls them."""

    def __init__(self, *world: Any) -> None:
        self._hosts: list[ControllerHost] = []
        self._notices: list[Frame] = []
        super().__init__(*world)
        self._operator = Process(
            OPERATOR,
            timeline=self._timeline,
            network=self._network,
            clock=MachineClock(self._timeline),
            failed=self._failed,
        )

    def _failed(self, context: dict[str, Any]) -> None:
        raise Violation(f"the operator of the controllers raised: {context}")

    def _new_node(self, number: int, clock: MachineClock) -> Node:
        host = ControllerHost(
            number,
            timeline=self._timeline,
            network=self._network,
            clock=clock,
            log=self.log,
            elected=self._elected,
            noticed=self._notices.append,
            started=self._catch_up,
            stuck=self._stuck,
        )
        self._hosts.append(host)
        return host

    def _place_of_broker(self, number: int) -> str:
        return broker_place(number)

    def _begin(self) -> None:
        for host in self._hosts:
            host.restart()

    def close(self) -> None:
        for host in self._hosts:
            host.close()
        self._operator.end(loses_power=True)

    # ---- orders

    def _delay(self, number: int, ms: int) -> None:
        network = self._network
        for address in CONTROLLERS:
            network.block(address, number)
            self._timeline.after(ms * 1000, network.unblock, address, number)

    def delay_orders(self, number: int, ms: int) -> None:
        self._delay(number, ms)
        if self._notices and self._rng.random() < 0.5:
            earlier = self._rng.choice(self._notices[-3:])
            late_us = int(ms * 1000 * self._rng.random())
            self._timeline.after(late_us, self._notify_again, number, earlier)

    def _notify_again(self, number: int, notice: Frame) -> None:
        living = [each for each in self._hosts if each.is_alive]
        if living:
            living[0].notify(broker_place(number), notice)

    # ---- operators

    def _send_designation(self, request: Frame) -> None:
        self._operator.run(lambda: self._operator.loop.create_task(self._designated(request)))

    async def _designated(self, request: Frame) -> None:
        async with SimClient(self._operator.sockets) as client:
            places = [controller_place(each) for each in CONTROLLERS]
            calls = (client.call(place, request, _DESIGNATE_S) for place in places)
            for found in await asyncio.gather(*calls, return_exceptions=True):
                if isinstance(found, BaseException) and not isinstance(found, StoreError):
                    raise found
