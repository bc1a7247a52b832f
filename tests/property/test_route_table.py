"""The route table and its slow reference agree on random requests, closes and times."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rmqstore.data_version import DataVersion
from rmqstore.nameserver.routes import (
    Effect,
    NotifyMinBrokerId,
    Refused,
    Registration,
    RouteOptions,
    RouteTable,
)
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import QueueData
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from tests.reference.route_table import ReferenceRoutes
from tests.support.effort import rounds

NAMES = ("broker-a", "broker-b")
ADDRESSES = tuple(f"10.0.0.{number}:10911" for number in range(4))
CLUSTERS = ("east", "west")
TOPICS = ("orders", "payments", "refunds")
CONNECTIONS = 4

names = st.sampled_from(NAMES)
addresses = st.sampled_from(ADDRESSES)
connections = st.integers(0, CONNECTIONS - 1)
versions = st.builds(DataVersion, counter=st.integers(0, 2), state_version=st.integers(0, 1))
configs = st.builds(
    TopicConfig, st.just(""), st.integers(1, 2), st.integers(1, 2), st.sampled_from([6, 6, 4, 1])
)
headers = st.builds(
    Registration,
    st.sampled_from([*CLUSTERS[:1] * 4, *CLUSTERS]),
    names,
    st.integers(0, 3),
    addresses,
    st.sampled_from(["10.0.0.9:10912", "10.0.0.8:10912"]),
    st.none(),
    st.sampled_from([None, 10_000]),
    st.sampled_from([True, True, False, None]),
)


@st.composite
def tables(draw: st.DrawFn) -> TopicTable:
    """Return a table of some topics."""
    chosen = draw(st.lists(st.sampled_from(TOPICS), unique=True))
    topics = {}
    for name in chosen:
        config = draw(configs)
        topics[name] = TopicConfig(name, config.read_queues, config.write_queues, config.perm)
    return TopicTable(draw(versions), topics)


def plain(effects: tuple[Effect, ...]) -> list[tuple[Any, ...]]:
    """Return effects in the form of the reference."""
    return [
        (
            "notify",
            each.recipients,
            each.min_broker_id,
            each.min_address,
            each.offline_address,
            each.ha_address,
        )
        if isinstance(each, NotifyMinBrokerId)
        else ("close", each.connection)
        for each in effects
    ]


class RouteTableMachine(RuleBasedStateMachine):
    """Both tables get the same requests."""

    @initialize(acting=st.booleans(), notify=st.booleans(), delete=st.booleans())
    def begin(self, acting: bool, notify: bool, delete: bool) -> None:
        options = RouteOptions(acting, notify, delete)
        self.table = RouteTable(options)
        self.reference = ReferenceRoutes(options)
        self.now_ms = 1_000_000

    @rule(header=headers, topics=tables(), connection=connections)
    def register(self, header: Registration, topics: TopicTable, connection: int) -> None:
        before = self.answers()
        is_refused = self.reference.is_refused(header, topics, connection)

        answer = self.table.register(
            header, RegisterBrokerBody(topics, ()), connection=connection, now_ms=self.now_ms
        )

        if is_refused:
            assert isinstance(answer, Refused)
            assert self.answers() == before
            return

        assert not isinstance(answer, Refused)
        effects = self.reference.register(header, topics, connection, self.now_ms)
        assert plain(answer.effects) == effects

        masters = [row for row in self.reference.group(header.name) if row.header.broker_id == 0]
        if header.broker_id and masters:
            expected = (masters[0].header.address, masters[0].header.ha_address)
            assert (answer.master_address, answer.ha_address) == expected
        else:
            assert answer.master_address is None

    @rule(name=names, address=addresses, connection=connections)
    def unregister(self, name: str, address: str, connection: int) -> None:
        effects = self.table.unregister(name, address, connection=connection)
        assert plain(effects) == self.reference.unregister(name, address, connection)

    @rule(connection=connections)
    def close(self, connection: int) -> None:
        effects = self.table.connection_closed(connection)
        assert sorted(plain(effects)) == sorted(self.reference.close(connection))

    @rule(later_ms=st.sampled_from([0, 900, 5_000, 9_000, 60_000, 200_000]))
    def scan(self, later_ms: int) -> None:
        self.now_ms += later_ms
        effects = self.table.expire(self.now_ms)
        assert sorted(map(repr, plain(effects))) == sorted(
            map(repr, self.reference.expire(self.now_ms))
        )

    @rule(name=names, address=addresses, connection=connections)
    def heartbeat(self, name: str, address: str, connection: int) -> None:
        known = self.table.heartbeat(name, address, connection=connection, now_ms=self.now_ms)
        assert known == self.reference.heartbeat(name, address, connection, self.now_ms)

    @rule(name=names, is_writable=st.booleans())
    def set_write(self, name: str, is_writable: bool) -> None:
        change = (
            self.table.add_write_permission if is_writable else self.table.wipe_write_permission
        )
        assert change(name) == self.reference.set_write(name, is_writable)

    @rule(topic=st.sampled_from(TOPICS), cluster=st.sampled_from([None, *CLUSTERS]))
    def delete_topic(self, topic: str, cluster: str | None) -> None:
        self.table.delete_topic(topic, cluster=cluster)
        self.reference.delete_topic(topic, cluster)

    @rule(topic=st.sampled_from(TOPICS), chosen=st.lists(names, unique=True))
    def register_topic(self, topic: str, chosen: list[str]) -> None:
        is_taken = self.table.register_topic(topic, [QueueData(each, 1, 1, 6) for each in chosen])
        assert is_taken == (bool(chosen) and all(self.reference.group(each) for each in chosen))
        if is_taken:
            self.reference.register_topic(topic, chosen)

    @invariant()
    def answers_agree(self) -> None:
        if not hasattr(self, "table"):
            return
        reference = self.reference
        routes = {topic: reference.route(topic) for topic in TOPICS}
        groups = {
            name: {row.header.broker_id: row.header.address for row in reference.group(name)}
            for name in NAMES
        }
        assert self.answers() == (routes, groups, {topic for topic in TOPICS if routes[topic]})
        for name in NAMES:
            for address in ADDRESSES:
                row = reference.at(name, address)
                assert self.table.version(name, address) == (row and row.version)

    def answers(self) -> Any:
        """Return everything that peers can see of the table."""
        routes: dict[str, Any] = {}

        for topic in TOPICS:
            route = self.table.route(topic)
            shown = {} if route is None else {each.broker_name: each for each in route.brokers}
            routes[topic] = {
                queue.broker_name: (
                    (queue.read_queues, queue.write_queues, queue.perm),
                    dict(shown[queue.broker_name].addresses),
                )
                for queue in (() if route is None else route.queues)
            }

        info = self.table.cluster_info()
        listed = [name for names in info.clusters.values() for name in names]
        assert sorted(listed) == sorted(info.brokers)

        groups = {name: dict(self.table.member_group("", name).addresses) for name in NAMES}
        return routes, groups, set(self.table.topics().topics)

    def teardown(self) -> None:
        if hasattr(self, "table"):
            for connection in range(CONNECTIONS):
                self.table.connection_closed(connection)
            assert self.table.cluster_info().encode() == (
                b'{"brokerAddrTable":{},"clusterAddrTable":{}}'
            )
            assert self.table.topics().topics == ()


TestRouteTable = RouteTableMachine.TestCase
TestRouteTable.settings = settings(max_examples=rounds(60, 500), stateful_step_count=40)
