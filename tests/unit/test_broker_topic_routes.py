"""The routes that a broker asks its nameservers for, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from rmqstore.broker.topic_routes import TopicRoutes
from rmqstore.config import BrokerConfig
from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.route import QueueData, TopicRoute
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from tests.support.role_model import ModelClient
from tests.support.virtual import VirtualProcess

ONE, TWO = "10.0.0.8:9876", "10.0.0.9:9876"
AGE_S = 30.0


class Nameserver:
    """A nameserver with the queues of every topic; None for a topic that it does not have."""

    def __init__(self, *queues: QueueData) -> None:
        self.queues: Sequence[QueueData] | None = queues
        self.is_silent = False
        self.asked = 0

    def __call__(self, request: Frame) -> Frame | None:
        assert request.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        self.asked += 1
        if self.is_silent:
            return None
        if self.queues is None:
            return request.respond(ResponseCode.TOPIC_NOT_EXIST, "no route")
        body = TopicRoute(queues=self.queues).encode(standard=True)
        return request.respond(ResponseCode.SUCCESS, body=body)


class Broker:
    """A broker with two nameservers."""

    def __init__(self, *servers: Nameserver) -> None:
        self.config = BrokerConfig()
        self.nameserver_addresses = (ONE, TWO)[: len(servers)]
        client = ModelClient(dict(zip(self.nameserver_addresses, servers, strict=True)))
        self.process = VirtualProcess(client)
        client.runtime = self.runtime = self.process.runtime
        self.log = self.runtime.log
        self.routes = TopicRoutes(self)

    def queues(self, topic: str = "T") -> list[tuple[str, int]] | None:
        found = self.process.run(self.routes.readable_queues(topic))
        return found and [(each.broker_name, each.queue_id) for each in found]


def of(broker: str, count: int, perm: int = 6) -> QueueData:
    return QueueData(broker, count, 9, perm)


def test_queues_that_may_be_read_of_all_brokers() -> None:
    broker = Broker(Nameserver(of("a", 2), of("b", 1, perm=4), of("c", 4, perm=2)))
    assert broker.queues() == [("a", 0), ("a", 1), ("b", 0)]


def test_route_is_asked_for_again_when_it_is_old() -> None:
    server = Nameserver(of("a", 1))
    broker = Broker(server)
    broker.queues()
    broker.process.pass_time(AGE_S - 1)
    server.queues = [of("a", 2)]
    assert (broker.queues(), server.asked) == ([("a", 0)], 1)
    broker.process.pass_time(1)
    assert (broker.queues(), server.asked) == ([("a", 0), ("a", 1)], 2)


def test_nameserver_that_does_not_answer_is_passed_over() -> None:
    silent, other = Nameserver(), Nameserver(of("a", 1))
    silent.is_silent = True
    assert Broker(silent, other).queues() == [("a", 0)]


def test_old_route_counts_while_no_nameserver_answers() -> None:
    server = Nameserver(of("a", 1))
    broker = Broker(server)
    broker.queues()
    broker.process.pass_time(AGE_S)
    server.is_silent = True
    began_ms = broker.runtime.now_ms()
    assert broker.queues() == [("a", 0)]
    assert broker.runtime.now_ms() - began_ms < 500
    broker.process.pass_time(5)
    server.is_silent, server.queues = False, [of("a", 2)]
    assert broker.queues() == [("a", 0), ("a", 1)]


def test_deleted_topic_has_no_queues() -> None:
    server = Nameserver(of("a", 1))
    broker = Broker(server)
    broker.queues()
    broker.process.pass_time(AGE_S)
    server.queues = None
    assert broker.queues() is None


def test_questions_at_the_same_time_are_one() -> None:
    server = Nameserver(of("a", 1))
    broker = Broker(server)

    async def both() -> list[list[QueueName] | None]:
        ask = broker.routes.readable_queues
        return await broker.runtime.gather(ask("T"), ask("T"))

    first, second = broker.process.run(both())
    assert first == second == [QueueName("T", "a", 0)]
    assert server.asked == 1


def test_broker_without_nameservers_refuses() -> None:
    with pytest.raises(RequestRefused, match="set namesrvAddr"):
        Broker().queues()


def test_wrong_number_of_queues_is_limited() -> None:
    found = Broker(Nameserver(of("a", 2**31 - 1))).queues()
    assert found is not None
    assert len(found) == 65_536
