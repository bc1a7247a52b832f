"""Clients of a broker in virtual time: notices to their groups, and the end of silent ones."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from rmqstore.broker.clients import ClientTable
from rmqstore.broker.handlers.clients import ClientRequests
from rmqstore.broker.metadata.consumer_filters import ConsumerFilters
from rmqstore.filters import Bloom
from rmqstore.remoting.bodies.clients import ConsumerData, HeartbeatData, SubscriptionData
from rmqstore.remoting.codes import RequestCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import (
    ConsumerGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rmqstore.remoting.requests import Call
from rmqstore.store.metadata import FilterTable, GroupConfig, TopicConfig
from tests.support.model_peer import ModelPeer
from tests.support.virtual import VirtualProcess


class Clients:
    """The clients of a broker that has every group and topic."""

    def __init__(self) -> None:
        self.process = VirtualProcess()
        self.table = ClientTable()
        self.group = GroupConfig("G")
        self.filters = ConsumerFilters(FilterTable(), Bloom(), now_ms=0)
        context: Any = SimpleNamespace(
            runtime=self.process.runtime,
            now_ms=self.process.now_ms,
            wall_ms=self.process.now_ms,
            metadata=SimpleNamespace(
                group=lambda name: self.group,
                topic=lambda name: TopicConfig(name),
                filters=self.filters,
            ),
        )
        self.requests = ClientRequests(context, self.table)
        self.process.loop.run(self.requests.start)

    def beat(self, *peers: ModelPeer, group: str = "G") -> None:
        """Send the heartbeat of a consumer from each of *peers*, and let notices go out."""
        subscription = SubscriptionData(
            topic="T", expression="a > 5", version=1, expression_type="SQL92"
        )
        consumers = (ConsumerData(group=group, subscriptions=(subscription,)),)
        for peer in peers:
            data = HeartbeatData(client_id=peer.address, consumers=consumers)
            self._send(peer, RequestCode.HEART_BEAT, None, data)
        self.process.pass_time(0.1)

    def leave(self, peer: ModelPeer) -> None:
        """Unregister the consumer of *peer*."""
        header = UnregisterClientRequestHeader(client_id=peer.address, consumer_group="G")
        self._send(peer, RequestCode.UNREGISTER_CLIENT, header, b"")
        self.process.pass_time(0.1)

    def _send(self, peer: ModelPeer, code: int, header: Any, body: Any) -> None:
        handle: Any = self.requests.handlers()[code]

        async def answered() -> None:
            answer = handle(Call(peer, Frame.request(code), header, body))
            if not isinstance(answer, Frame):
                await answer

        self.process.run(answered())


def peers(count: int) -> list[ModelPeer]:
    return [ModelPeer(number) for number in range(1, count + 1)]


def noticed(peer: ModelPeer) -> list[str]:
    """Return the groups of the notices that a client has got since the last call."""
    sent, peer.sent[:] = list(peer.sent), []
    assert all(each.code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED for each in sent)
    return [ConsumerGroupRequestHeader.from_fields(each.ext_fields).consumer_group for each in sent]


def test_each_change_of_a_group_is_told_to_its_members_once() -> None:
    clients, (one, two) = Clients(), peers(2)
    clients.beat(one)
    assert noticed(one) == ["G"]
    clients.beat(two)
    assert (noticed(one), noticed(two)) == (["G"], ["G"])
    clients.beat(one, two)
    assert (noticed(one), noticed(two)) == ([], []), "nothing has changed"
    clients.leave(two)
    assert (noticed(one), noticed(two)) == (["G"], [])


def test_a_change_is_not_told_again_with_that_of_another_group() -> None:
    clients, (one, two) = Clients(), peers(2)
    clients.beat(one)
    noticed(one)
    clients.beat(two, group="H")
    assert (noticed(one), noticed(two)) == ([], ["H"])


def test_changes_at_the_same_time_are_one_notice() -> None:
    clients, all_three = Clients(), peers(3)
    clients.beat(*all_three)
    assert [noticed(each) for each in all_three] == 3 * [["G"]]


def test_members_learn_of_a_connection_that_ended() -> None:
    clients, (one, two) = Clients(), peers(2)
    clients.beat(one, two)
    noticed(one)
    clients.process.loop.run(two.lose)
    clients.process.pass_time(0.1)
    assert noticed(one) == ["G"]
    group = clients.table.consumer_group("G")
    assert group is not None
    assert tuple(group.members) == (one,)


def test_a_client_that_does_not_read_gets_no_notice() -> None:
    clients, (one, two) = Clients(), peers(2)
    clients.beat(one)
    noticed(one)
    one.is_writable = False
    clients.beat(two)
    assert (noticed(one), noticed(two)) == ([], ["G"])


def test_a_silent_client_is_removed_and_its_group_learns_of_it() -> None:
    clients, (one, two) = Clients(), peers(2)
    clients.beat(one, two)
    for _ in range(3):
        clients.process.pass_time(35)
        clients.beat(one)
    assert two.is_open
    noticed(one)
    clients.process.pass_time(25)
    clients.beat(one)
    assert not two.is_open
    assert "heartbeat" in two.reason
    assert one.is_open
    assert noticed(one) == ["G"]
    assert len(clients.table) == 1
    clients.process.loop.run(two.lose)
    clients.process.pass_time(0.1)
    assert noticed(one) == [], "the end of its connection is no other change"


def test_nothing_runs_after_the_stop_and_clients_are_known_in_the_next_run() -> None:
    clients, (one,) = Clients(), peers(1)
    clients.beat(one)
    clients.process.loop.run(clients.requests.stop)
    clients.process.pass_time(200)
    assert one.is_open
    clients.process.loop.run(clients.requests.start)
    clients.process.pass_time(11)
    assert not one.is_open


def test_expression_of_a_group_is_dead_once_its_last_client_is_silent() -> None:
    clients, (one,) = Clients(), peers(1)
    clients.beat(one)
    [data] = clients.filters.of_group("G")
    assert not data.is_dead
    clients.process.pass_time(135)
    assert not one.is_open
    [data] = clients.filters.of_group("G")
    assert data.is_dead
