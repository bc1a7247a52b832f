"""The controllers of replicas without brokers, over single messages.

The nodes (`controller_node`) and the replicas exchange single frames of the remoting protocol,
which are late, lost, and, if a repetition has no effect, doubled.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from rmqstore.controller.group import Group
from rmqstore.remoting.bodies.controller import SyncStateSetBody
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.controller import NotifyBrokerRoleChangedRequestHeader
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.controller_client import CONTROLLERS, GROUP, address_of, place_of
from rmqstore.sim.controller_node import ServedNode
from rmqstore.sim.controllers import Controllers, Node
from rmqstore.sim.operator import OPERATOR

__all__ = ["BareControllers"]

_REVIEW_MS = 100


class BareControllers(Controllers):
    """Nodes without processes."""

    def __init__(self, *world: Any) -> None:
        self._served: list[ServedNode] = []
        self._late: dict[int, int] = {}
        """End of the time in which a replica receives nothing."""
        self._notices: list[bytes] = []
        super().__init__(*world)

    def _new_node(self, number: int, clock: MachineClock) -> Node:
        node = ServedNode(
            number,
            self.log,
            clock,
            GROUP,
            timeline=self._timeline,
            elected=self._elected,
            stuck=self._stuck,
        )
        self._served.append(node)
        return node

    def _place_of_broker(self, number: int) -> str:
        return address_of(number, 0)

    def _begin(self) -> None:
        self._network.receive(OPERATOR, lambda source, data: None)
        for node in self._served:
            self._network.receive(CONTROLLERS[node.number], partial(self._receive, node))
            self._timeline.after(_REVIEW_MS * 1000, self._review, node)

    def _review(self, node: ServedNode) -> None:
        self._timeline.after(_REVIEW_MS * 1000, self._review, node)
        if node.is_alive and node.leader is not None:
            node.liveness.expire(node.now_ms())
            node.review()

    def heal(self) -> None:
        self._late.clear()
        super().heal()

    @property
    def is_well(self) -> bool:
        now_us = self._timeline.now_us
        return super().is_well and all(until_us < now_us for until_us in self._late.values())

    def close(self) -> None:
        """Do nothing: the nodes have no processes."""

    # ---- notices

    def _announce(self, node: Node, group: Group) -> None:
        super()._announce(node, group)
        self._timeline.after(self._rng.randrange(1000, 8000), self._notify, node, group)

    def _notify(self, node: Node, group: Group) -> None:
        if not node.is_alive:
            return
        header = NotifyBrokerRoleChangedRequestHeader(
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
            master_broker_id=group.master_id,
            master_life=group.master_life,
        )
        frame = Frame.request(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            header.to_fields(),
            SyncStateSetBody(group.sync_state_set, group.set_epoch).encode(),
        )
        notice = encode(frame.with_opaque(0, is_one_way=True))
        self._notices.append(notice)
        for record in group.brokers.values():
            self._tell(node, place_of(record.address), notice)

    def delay_orders(self, number: int, ms: int) -> None:
        self._delay(number, ms)
        if self._notices and self._rng.random() < 0.5:
            earlier = self._rng.choice(self._notices[-3:])
            late_us = int(ms * 1000 * self._rng.random())
            self._timeline.after(late_us, self._network.send, CONTROLLERS[0], number, earlier)

    def _delay(self, number: int, ms: int) -> None:
        self._late[number] = self._timeline.now_us + ms * 1000

    # ---- requests

    def _receive(self, node: ServedNode, source: int, data: bytes) -> None:
        if not node.is_alive:
            return
        for frame in FrameDecoder().feed(data):
            node.receive(source, frame, partial(self._respond, node, source))

    def _respond(self, node: ServedNode, source: int, answer: Frame) -> None:
        self._tell(node, source, encode(answer))

    def _tell(self, node: Node, number: int, data: bytes) -> None:
        if self._timeline.now_us >= self._late.get(number, 0):
            self._network.send(CONTROLLERS[node.number], number, data)

    def _send_designation(self, request: Frame) -> None:
        data = encode(request)
        for address in CONTROLLERS:
            self._network.send(OPERATOR, address, data, is_once=True)
