"""The link of a broker to its nameservers, in virtual time: registrations, heartbeats, members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

from rmqstore.broker.nameserver_link import NameserverLink
from rmqstore.broker.registration import Announcement
from rmqstore.config import BrokerConfig
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import RegisterBrokerResponseHeader
from tests.support.role_model import ModelClient, Server
from tests.support.virtual import VirtualProcess

ONE, TWO = "10.0.0.8:9876", "10.0.0.9:9876"
OWN, OTHER = "10.0.0.1:10911", "10.0.0.2:10911"
REGISTER, UNREGISTER = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER
BEAT, MEMBERS = RequestCode.BROKER_HEARTBEAT, RequestCode.GET_BROKER_MEMBER_GROUP
MASTER = Announcement(
    cluster_name="c",
    name="g",
    broker_id=0,
    address=OWN,
    ha_address="10.0.0.1:10912",
    acting_master=True,
    timeout_ms=None,
    body=b"",
    version=b"{}",
)


def knows(members: Mapping[int, str]) -> Server:
    """Return a nameserver that has *members* of the group."""
    group = BrokerMemberGroup("c", "g", members).encode()

    def answer(request: Frame) -> Frame:
        body = group if request.code == MEMBERS else b""
        return request.respond(ResponseCode.SUCCESS, fields={}, body=body)

    return answer


def is_silent(request: Frame) -> Frame | None:
    return None


class Broker:
    """The master of a group with two nameservers, which both know it unless *servers* replaces
    them."""

    def __init__(self, servers: Mapping[str, Server] | None = None, **config: object) -> None:
        both = {ONE: knows({0: OWN}), TWO: knows({0: OWN})}
        self.client = ModelClient(both | dict(servers or {}))
        self.process = VirtualProcess(self.client)
        self.client.runtime = self.runtime = self.process.runtime
        self.log = self.runtime.log
        self.config = BrokerConfig(registration_timeout_ms=6000).replace(**config)
        self.nameserver_addresses = (ONE, TWO)
        self.announced: Announcement | None = MASTER
        self.announced_until_ms: int | None = None
        self.awaits_master = False
        self.members: list[Mapping[int, str]] = []
        self.process.loop.run(self._start)
        self.process.pass_time(0.1)

    def _start(self) -> None:
        self.link = NameserverLink(self)
        self.link.start()

    def announcement(self) -> Announcement | None:
        return self.announced

    def learn_master(self, answer: RegisterBrokerResponseHeader) -> None:
        pass

    def learn_order_topics(self, topics: Collection[str]) -> None:
        pass

    def learn_members(self, members: Mapping[int, str]) -> None:
        self.members.append(members)

    def change(self) -> None:
        """Change the topics."""
        assert self.announced is not None
        self.announced = replace(self.announced, body=self.announced.body + b"x")
        self.process.loop.run(self.link.due)

    def count(self, address: str, code: int) -> int:
        """Return the number of requests that a nameserver got."""
        return len(self.client.times(address, code))


def test_a_silent_nameserver_delays_no_other() -> None:
    broker = Broker({ONE: is_silent})
    assert broker.count(TWO, REGISTER) == 1
    broker.client.sent.clear()
    broker.change()
    broker.process.pass_time(0.1)
    assert (broker.count(ONE, REGISTER), broker.count(TWO, REGISTER)) == (0, 1)


def test_a_registration_is_repeated_after_its_period() -> None:
    broker = Broker(registration_interval_ms=20_000)
    broker.process.pass_time(60)
    times = broker.client.times(TWO, REGISTER)
    pauses = [late - early for early, late in pairwise(times)]
    assert len(pauses) == 3
    assert all(20_000 <= pause <= 20_010 for pause in pauses)


def test_a_slave_asks_for_its_master_more_often_until_a_nameserver_names_one() -> None:
    broker = Broker(registration_interval_ms=30_000)
    broker.awaits_master = True
    broker.change()
    broker.process.pass_time(6.1)
    assert broker.count(TWO, REGISTER) == 4
    broker.awaits_master = False
    broker.process.pass_time(20)
    assert broker.count(TWO, REGISTER) == 5


def test_a_lost_connection_makes_a_registration_due() -> None:
    broker = Broker()
    broker.process.loop.run(lambda: broker.client.lose(ONE))
    broker.process.pass_time(1)
    assert (broker.count(ONE, REGISTER), broker.count(TWO, REGISTER)) == (2, 1)
    broker.process.loop.run(lambda: broker.client.lose(ONE))
    broker.process.pass_time(1)
    assert broker.count(ONE, REGISTER) == 3, "the next connection is watched too"


def test_the_end_of_the_lease_is_announced_when_it_comes() -> None:
    broker = Broker()
    broker.announced_until_ms = broker.process.now_ms() + 2000
    broker.change()
    broker.process.pass_time(1.9)
    assert broker.count(ONE, REGISTER) == 2
    broker.announced, broker.announced_until_ms = replace(MASTER, broker_id=1), None
    broker.process.pass_time(0.2)
    assert broker.count(ONE, REGISTER) == 3


def test_the_close_unregisters_everywhere_and_waits_for_no_silent_nameserver() -> None:
    broker = Broker()
    broker.client.servers[ONE] = is_silent
    began_ms = broker.process.now_ms()
    broker.process.run(broker.link.close())
    assert (broker.count(ONE, UNREGISTER), broker.count(TWO, UNREGISTER)) == (1, 1)
    assert broker.process.now_ms() - began_ms <= 2010
    broker.process.pass_time(60)
    assert broker.count(TWO, REGISTER) == 1, "nothing is sent after the close"


def test_a_nameserver_that_is_no_longer_named_is_left() -> None:
    broker = Broker()
    broker.nameserver_addresses = (TWO,)
    broker.process.loop.run(broker.link.update)
    broker.process.pass_time(60)
    assert (broker.count(ONE, UNREGISTER), broker.count(ONE, REGISTER)) == (1, 1)
    assert broker.link.states == {TWO: ""}


def test_registered_waits_for_those_that_answer_and_at_most_three_seconds() -> None:
    broker = Broker()
    broker.client.servers[ONE] = is_silent
    began_ms = broker.process.now_ms()
    broker.process.run(broker.link.registered())
    assert broker.count(TWO, REGISTER) == 2
    assert 3000 <= broker.process.now_ms() - began_ms <= 3010
    broker.process.pass_time(10)

    began_ms = broker.process.now_ms()
    broker.process.run(broker.link.registered())
    assert broker.count(TWO, REGISTER) >= 3
    assert broker.process.now_ms() - began_ms <= 10, "one that failed is not waited for"


def acting(servers: Mapping[str, Server] | None = None) -> Broker:
    """Return a broker that sends heartbeats each second and looks for members as often."""
    return Broker(
        servers,
        acting_master_enable=True,
        compatible_with_old_nameserver=False,
        heartbeat_interval_ms=1000,
        member_group_interval_ms=1000,
    )


def test_heartbeats_go_on_after_one_that_failed() -> None:
    broker = acting()
    server = broker.client.servers.pop(ONE)
    broker.process.pass_time(1)
    assert broker.count(ONE, BEAT) == 1, "it failed"
    broker.client.servers[ONE] = server
    broker.process.pass_time(3)
    assert (broker.count(ONE, BEAT), broker.count(TWO, BEAT)) == (4, 4)


def test_members_are_those_of_the_first_nameserver_that_knows_the_group() -> None:
    broker = acting({ONE: knows({}), TWO: knows({0: OWN, 2: OTHER})})
    broker.process.pass_time(1)
    assert broker.members == [{0: OWN, 2: OTHER}]


def test_members_are_asked_of_the_next_nameserver_after_one_without_an_answer() -> None:
    broker = acting({TWO: knows({0: OWN, 2: OTHER})})
    broker.client.servers[ONE] = is_silent
    broker.process.pass_time(5)
    assert broker.members
    assert all(members == {0: OWN, 2: OTHER} for members in broker.members)


def test_broker_that_locks_at_a_majority_looks_for_members() -> None:
    both = {ONE: knows({0: OWN, 2: OTHER}), TWO: knows({})}
    settings = {"compatible_with_old_nameserver": False, "member_group_interval_ms": 1000}
    broker = Broker(both, strict_locks=True, **settings)
    broker.process.pass_time(1)
    assert broker.members == [{0: OWN, 2: OTHER}]
