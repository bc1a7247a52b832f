"""A controller that no longer leads and has not heard of it, over the log of the simulator."""

from __future__ import annotations

from random import Random

from rmqstore.controller.commands import AssignBrokerId, encode_command
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.controller import (
    ControllerHeartbeatRequestHeader,
    ControllerHeartbeatResponseHeader,
    ElectMasterRequestHeader,
)
from rmqstore.sim.clock import MachineClock, Timeline
from rmqstore.sim.controller_node import ServedNode
from rmqstore.sim.decision_log import DecisionLog

LEASE_MS = 600


class Pair:
    """Two controllers, and the broker 1 of their group."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.log = DecisionLog(self.timeline, Random(1), self._committed)
        self.log.is_kind = True
        self.nodes = [
            ServedNode(
                number,
                self.log,
                MachineClock(self.timeline),
                "g",
                timeline=self.timeline,
                elected=lambda node, election: None,
                stuck=lambda node: None,
            )
            for number in range(2)
        ]
        self.beats = 0
        self.log.append(encode_command(AssignBrokerId("g", "c", 1, "host1", "host1;1")))
        self.lead(0)

    def _committed(self, entry: bytes) -> None:
        for node in self.nodes:
            self.timeline.after(0, node.apply_next)

    def lead(self, number: int) -> None:
        """Let a node lead; the other one is not told."""
        self.log.elect(number)
        self.run_ms(10)
        self.nodes[number].lead(self.log.term)

    def run_ms(self, ms: int) -> None:
        """Let everything happen that is due within *ms*."""
        self.timeline.run(self.timeline.now_us + ms * 1000)

    def ask(self, number: int, code: int, fields: dict[str, str]) -> Frame | None:
        """Return what a node answers within a second."""
        answers: list[Frame] = []
        self.nodes[number].receive(1, Frame.request(code, fields), answers.append)
        self.run_ms(1000)
        return answers[0] if answers else None

    def lease_of(self, number: int, *, epoch: int) -> int | None:
        """Return the lease that the master gets of a node, None where it gets no answer."""
        self.beats += 1
        header = ControllerHeartbeatRequestHeader(
            cluster_name="c",
            broker_address="host1",
            broker_name="g",
            broker_id=1,
            life=1,
            number=self.beats,
            epoch=epoch,
            max_offset=0,
            role_epoch=epoch,
            heartbeat_timeout_ms=60_000,
            in_sync=1,
            min_in_sync=1,
            lease_ms=LEASE_MS,
        )
        answer = self.ask(number, RequestCode.BROKER_HEARTBEAT, header.to_fields())
        if answer is None:
            return None
        assert answer.code == ResponseCode.SUCCESS
        return ControllerHeartbeatResponseHeader.from_fields(answer.ext_fields).lease_ms


def test_a_leader_that_was_replaced_and_does_not_know_it_grants_no_lease() -> None:
    pair = Pair()
    pair.lease_of(0, epoch=-1)
    fields = ElectMasterRequestHeader(cluster_name="c", broker_name="g", broker_id=1).to_fields()
    elected = pair.ask(0, RequestCode.CONTROLLER_ELECT_MASTER, fields)
    assert elected is not None
    assert elected.code == ResponseCode.SUCCESS
    pair.lease_of(0, epoch=1)
    pair.nodes[0].review()
    pair.run_ms(100)
    assert pair.lease_of(0, epoch=1) == LEASE_MS

    pair.lead(1)
    assert pair.nodes[0].leader is not None
    assert not pair.lease_of(0, epoch=1), "another node may elect another master"
