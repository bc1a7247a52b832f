"""Defects of RocketMQ's nameserver, one scenario each, and hostile orders of requests."""

from __future__ import annotations

import pytest

from rmqstore.data_version import DataVersion
from rmqstore.nameserver.routes import (
    CloseConnection,
    NotifyMinBrokerId,
    Refused,
    Registered,
    Registration,
    RouteOptions,
    RouteTable,
)
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.route import QueueData
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable

TOPICS = ("orders", "payments")
A, B, C = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
ACTING = RouteOptions(acting_master=True, notify_min_broker_id=True)


class Brokers:
    """A route table with short methods for the requests of brokers."""

    def __init__(self, options: RouteOptions = ACTING) -> None:
        self.table = RouteTable(options)
        self.now_ms = 1_000_000

    def register(
        self,
        broker_id: int,
        address: str,
        *,
        connection: int,
        version: DataVersion = DataVersion(counter=1, timestamp_ms=1),  # noqa: B008
        topics: tuple[str, ...] = TOPICS,
        acting: bool | None = True,
        name: str = "broker-a",
        cluster: str = "east",
        timeout_ms: int | None = 10_000,
        zone: str | None = None,
        queues: int = 4,
    ) -> Registered | Refused:
        header = Registration(
            cluster, name, broker_id, address, f"{address}.ha", zone, timeout_ms, acting
        )
        table = TopicTable(version, {topic: TopicConfig(topic, queues, 4, 6) for topic in topics})
        return self.table.register(
            header, RegisterBrokerBody(table, ()), connection=connection, now_ms=self.now_ms
        )

    def addresses(self, name: str = "broker-a") -> dict[int, str]:
        return dict(self.table.member_group("", name).addresses)

    def route(self, topic: str = "orders") -> tuple[dict[int, str], int] | None:
        """Return addresses and permission of the only broker name in a route."""
        route = self.table.route(topic)
        if route is None:
            return None
        [broker], [queue] = route.brokers, route.queues
        return dict(broker.addresses), queue.perm


# -- Registrations that are refused (acting-master.md 4, steps 5 and 6).


def test_a_refused_first_registration_with_one_topic_leaves_nothing_behind() -> None:
    brokers = Brokers()
    answer = brokers.register(0, A, connection=1, topics=("orders",))
    assert isinstance(answer, Refused)
    assert answer.reason.startswith("register broker failed")
    info = brokers.table.cluster_info()
    assert (dict(info.brokers), dict(info.clusters)) == ({}, {})
    assert brokers.table.connection_closed(1) == ()


def test_a_change_of_one_topic_is_taken_after_the_whole_table() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    later = DataVersion(counter=2, timestamp_ms=2)
    answer = brokers.register(0, A, connection=1, version=later, topics=("refunds",))
    assert isinstance(answer, Registered)
    assert set(brokers.table.topics().topics) == {"orders", "payments", "refunds"}


def test_a_fenced_master_learns_that_it_is_refused_and_keeps_its_former_place() -> None:
    brokers = Brokers()
    brokers.register(
        1, B, connection=2, version=DataVersion(counter=1, state_version=3, timestamp_ms=1)
    )
    brokers.register(
        0, A, connection=1, version=DataVersion(counter=1, state_version=5, timestamp_ms=1)
    )
    answer = brokers.register(
        0, B, connection=2, version=DataVersion(counter=9, state_version=4, timestamp_ms=9)
    )
    assert isinstance(answer, Refused)
    assert f"is alive at {A} with state version 5, above 4" in answer.reason
    assert brokers.addresses() == {0: A, 1: B}
    assert brokers.table.version("broker-a", B) == DataVersion(
        counter=1, state_version=3, timestamp_ms=1
    )


# -- Two brokers with one name and id, and two clusters with one name.


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_broker_name_that_another_cluster_uses_is_refused(broker_id: int) -> None:
    """A Java nameserver shows the brokers of both as one group."""
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    answer = brokers.register(broker_id, B, connection=2, cluster="west")
    assert isinstance(answer, Refused)
    assert f"is in use by cluster east at {A}" in answer.reason
    assert brokers.addresses() == {0: A}
    assert dict(brokers.table.cluster_info().clusters) == {"east": ["broker-a"]}


def test_a_group_moves_to_another_cluster_with_its_master() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    for _ in range(2):
        brokers.register(0, A, connection=2, cluster="west")
        brokers.register(1, B, connection=3, cluster="west")
    assert dict(brokers.table.cluster_info().clusters) == {"west": ["broker-a"]}
    assert brokers.addresses() == {0: A, 1: B}


@pytest.mark.parametrize("state", [5, 6])
def test_of_two_brokers_with_one_name_and_id_the_later_state_version_stays(state: int) -> None:
    brokers = Brokers()
    brokers.register(
        0, A, connection=1, version=DataVersion(counter=1, state_version=5, timestamp_ms=1)
    )
    assert isinstance(
        brokers.register(
            0, B, connection=2, version=DataVersion(counter=1, state_version=state, timestamp_ms=1)
        ),
        Registered,
    )
    assert brokers.addresses() == {0: B}
    # The replaced one is forgotten: its connection and its unregistration change nothing.
    assert brokers.table.unregister("broker-a", A, connection=1) == ()
    assert brokers.table.connection_closed(1) == ()
    assert brokers.addresses() == {0: B}
    assert brokers.route() == ({0: B}, 6)


def test_a_broker_behind_two_addresses_has_the_one_it_named_last() -> None:
    brokers = Brokers()
    for address in (A, B, A):
        brokers.register(0, address, connection=1)
        assert brokers.addresses() == {0: address}
    assert not brokers.table.heartbeat("broker-a", B, connection=1, now_ms=brokers.now_ms)
    brokers.table.connection_closed(1)
    assert brokers.addresses() == {}


def test_brokers_of_one_process_end_together_with_their_connection() -> None:
    """A Java nameserver removes one of them and leaves the others until they expire."""
    brokers = Brokers()
    brokers.register(0, A, connection=1, name="broker-a")
    brokers.register(0, B, connection=1, name="broker-b")
    brokers.table.connection_closed(1)
    assert brokers.addresses("broker-a") == {}
    assert brokers.addresses("broker-b") == {}
    assert brokers.table.topics().topics == ()


def test_an_expired_broker_does_not_take_the_connection_of_its_neighbours() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1, name="broker-a", timeout_ms=1_000)
    brokers.register(0, B, connection=1, name="broker-b")
    brokers.now_ms += 5_000
    assert brokers.table.expire(brokers.now_ms) == ()
    assert (brokers.addresses("broker-a"), brokers.addresses("broker-b")) == ({}, {0: B})
    brokers.now_ms += 6_000
    assert brokers.table.expire(brokers.now_ms) == (CloseConnection(1),)


# -- Late, doubled and reordered requests (11043 upstream).


def test_an_old_unregistration_does_not_remove_a_fresh_registration() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.register(0, A, connection=2)
    assert brokers.table.unregister("broker-a", A, connection=1) == ()
    assert brokers.addresses() == {0: A}
    brokers.table.unregister("broker-a", A, connection=2)
    assert brokers.addresses() == {}


def test_the_end_of_an_old_connection_does_not_remove_a_fresh_registration() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.register(0, A, connection=2)
    assert brokers.table.connection_closed(1) == ()
    assert brokers.addresses() == {0: A}


def test_a_broker_whose_heartbeats_moved_to_a_new_connection_outlives_the_old_one() -> None:
    """A Java nameserver removes it until it registers again, up to 30 seconds later."""
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    assert brokers.table.heartbeat("broker-a", A, connection=2, now_ms=brokers.now_ms)
    brokers.table.connection_closed(1)
    assert brokers.addresses() == {0: A}
    brokers.table.connection_closed(2)
    assert brokers.addresses() == {}


@pytest.mark.parametrize("broker_id", [0, 1])
def test_a_late_registration_neither_moves_nor_demotes_a_broker(broker_id: int) -> None:
    brokers = Brokers()
    brokers.register(
        0, A, connection=2, version=DataVersion(counter=7, state_version=2, timestamp_ms=7)
    )
    answer = brokers.register(
        broker_id, A, connection=1, version=DataVersion(counter=6, state_version=2, timestamp_ms=6)
    )
    assert isinstance(answer, Refused)
    assert "late" in answer.reason
    assert brokers.addresses() == {0: A}
    brokers.table.connection_closed(1)
    assert brokers.addresses() == {0: A}


def test_doubled_requests_change_nothing_more() -> None:
    brokers = Brokers()
    for _ in range(2):
        brokers.register(0, A, connection=1)
        brokers.register(1, B, connection=2)
    assert brokers.route() == ({0: A, 1: B}, 6)
    effects = brokers.table.unregister("broker-a", A, connection=1)
    assert effects == (NotifyMinBrokerId((B,), 1, B, A, None),)
    assert brokers.table.unregister("broker-a", A, connection=1) == ()
    assert brokers.route() == ({0: B}, 4)


def test_an_unregistration_of_a_replaced_master_announces_no_new_smallest_id() -> None:
    """A Java nameserver compares the id in the request, which another broker has meanwhile."""
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.register(1, C, connection=3)
    brokers.register(0, B, connection=2)
    assert brokers.table.unregister("broker-a", A, connection=4) == ()
    assert brokers.route() == ({0: B, 1: C}, 6)


# -- Silence, and clocks.


def test_a_broker_that_registers_and_never_speaks_again_expires() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1, timeout_ms=None)
    for _ in range(24):
        brokers.now_ms += 5_000
        assert brokers.table.expire(brokers.now_ms) == ()
    brokers.now_ms += 5_000
    assert brokers.table.expire(brokers.now_ms) == (CloseConnection(1),)
    assert brokers.table.route("orders") is None


def test_heartbeats_keep_a_broker_that_does_not_register() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    for _ in range(20):
        brokers.now_ms += 5_000
        assert brokers.table.heartbeat("broker-a", A, connection=1, now_ms=brokers.now_ms)
        assert brokers.table.expire(brokers.now_ms) == ()
    assert not brokers.table.heartbeat("broker-a", B, connection=1, now_ms=brokers.now_ms)


def test_a_nameserver_that_was_stopped_expires_no_broker_before_it_reads_its_sockets() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.table.expire(brokers.now_ms)
    brokers.now_ms += 3_600_000
    assert brokers.table.expire(brokers.now_ms) == ()
    # The broker is silent from now on.
    for _ in range(2):
        brokers.now_ms += 5_000
        brokers.table.expire(brokers.now_ms)
    assert brokers.addresses() == {}


def test_a_heartbeat_that_waited_while_the_nameserver_was_stopped_is_not_of_the_future() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.table.expire(brokers.now_ms)
    brokers.now_ms += 3_600_000
    assert brokers.table.heartbeat("broker-a", A, connection=1, now_ms=brokers.now_ms)
    # The scan comes after the heartbeat, and the broker is silent from now on.
    for _ in range(3):
        assert brokers.addresses() == {0: A}
        brokers.table.expire(brokers.now_ms)
        brokers.now_ms += 5_000
    brokers.table.expire(brokers.now_ms)
    assert brokers.addresses() == {}


def test_times_in_versions_do_not_decide_who_lives() -> None:
    brokers = Brokers()
    brokers.register(
        0, A, connection=1, version=DataVersion(counter=5, timestamp_ms=2_000_000_000_000)
    )
    # The clock of the broker stepped back; it lost its files and counts from 0 again.
    brokers.register(
        0, A, connection=2, version=DataVersion(timestamp_ms=1), topics=("refunds", "x")
    )
    assert brokers.table.version("broker-a", A) == DataVersion(timestamp_ms=1)
    assert "refunds" in brokers.table.topics().topics


# -- Acting masters.


def test_a_stand_in_is_shown_read_only_and_the_master_takes_its_place_back() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    brokers.register(2, B, connection=2)
    brokers.register(3, C, connection=3)
    assert brokers.table.connection_closed(1) == (NotifyMinBrokerId((B, C), 2, B, A, None),)
    assert brokers.route() == ({0: B, 3: C}, 4)
    assert brokers.addresses() == {2: B, 3: C}

    answer = brokers.register(0, A, connection=4)
    assert answer == Registered(effects=(NotifyMinBrokerId((B, C), 0, A, None, f"{A}.ha"),))
    assert brokers.route() == ({0: A, 2: B, 3: C}, 6)


@pytest.mark.parametrize(("acting", "expected"), [(True, ({0: B}, 4)), (False, ({1: B}, 6))])
def test_a_slave_alone_is_shown_as_its_mode_says(
    acting: bool, expected: tuple[dict[int, str], int]
) -> None:
    brokers = Brokers()
    brokers.register(1, B, connection=1, acting=acting)
    assert brokers.route() == expected


def test_topics_of_a_slave_before_5_0_are_not_taken() -> None:
    brokers = Brokers()
    brokers.register(1, B, connection=1, acting=None)
    assert brokers.route() is None
    assert brokers.addresses() == {1: B}


def test_in_a_mixed_group_the_order_of_registrations_does_not_matter() -> None:
    """A Java nameserver takes the mode from the broker that registered last."""
    for order in ((0, 1, 2), (2, 1, 0), (1, 2, 0), (0, 2, 1)):
        brokers = Brokers()
        for broker_id in order:
            address, acting = ((A, True), (B, True), (C, False))[broker_id]
            brokers.register(broker_id, address, connection=broker_id, acting=acting)
        brokers.table.connection_closed(0)
        assert brokers.route() == ({0: B, 2: C}, 4)
        brokers.table.connection_closed(1)
        assert brokers.route() == ({2: C}, 4)


def test_a_slave_that_becomes_master_at_its_address_gives_its_topics_again() -> None:
    """A Java nameserver compares the version alone, which the change of role left as it was."""
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    for broker_id in (1, 0):
        brokers.register(broker_id, B, connection=2, queues=8)
    assert brokers.route() == ({0: B}, 6)
    route = brokers.table.route("orders")
    assert route is not None
    assert route.queues[0].read_queues == 8


def test_a_wiped_permission_stays_until_the_topics_of_the_master_change() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1)
    assert brokers.table.wipe_write_permission("broker-a") == 2
    brokers.register(0, A, connection=1)
    assert brokers.route() == ({0: A}, 4)
    brokers.register(0, A, connection=1, version=DataVersion(counter=2, timestamp_ms=2))
    assert brokers.route() == ({0: A}, 6)
    assert brokers.table.add_write_permission("broker-a") == 2
    assert brokers.table.add_write_permission("broker-b") == 0


# -- Registrations in batches of one version (enableSplitRegistration of 5.3.4 to 5.5.0).

FULL = ("orders", "payments", "refunds", "returns")


def send_batches(brokers: Brokers, counter: int, queues: int = 4) -> None:
    for batch in (FULL[:2], FULL[2:]):
        brokers.register(
            0, A, connection=1, version=DataVersion(counter=counter), topics=batch, queues=queues
        )


def read_queues(brokers: Brokers, topic: str) -> int | None:
    route = brokers.table.route(topic)
    return None if route is None else route.queues[0].read_queues


def test_every_batch_of_one_version_is_taken() -> None:
    brokers = Brokers()
    send_batches(brokers, 1)
    send_batches(brokers, 2, queues=8)
    assert [read_queues(brokers, topic) for topic in FULL] == [8, 8, 8, 8]


def test_a_batch_of_a_version_that_was_taken_before_is_taken() -> None:
    brokers = Brokers()
    send_batches(brokers, 1)
    brokers.register(0, A, connection=1, version=DataVersion(counter=2), topics=FULL[:2], queues=8)
    send_batches(brokers, 2, queues=8)
    assert [read_queues(brokers, topic) for topic in FULL] == [8, 8, 8, 8]


def test_mappings_that_come_with_the_last_batch_are_taken() -> None:
    brokers = Brokers()
    send_batches(brokers, 1)
    mapping = {"topic": "static", "bname": "broker-a", "totalQueues": 4, "epoch": 1}
    topics = {name: TopicConfig(name, 4, 4, 6) for name in ("static", "orders")}
    table = TopicTable(DataVersion(counter=1), topics, mappings={"static": mapping})
    header = Registration("east", "broker-a", 0, A, acting_master=True)
    brokers.table.register(
        header, RegisterBrokerBody(table, ()), connection=1, now_ms=brokers.now_ms
    )
    route = brokers.table.route("static")
    assert route is not None
    assert route.mappings == {"broker-a": mapping}


def test_a_master_that_comes_back_in_batches_has_all_its_permissions_again() -> None:
    brokers = Brokers()
    send_batches(brokers, 1)
    brokers.register(1, B, connection=2, version=DataVersion(counter=1), topics=FULL)
    brokers.table.connection_closed(1)
    assert [brokers.route(topic) for topic in FULL] == [({0: B}, 4)] * 4
    send_batches(brokers, 1)
    assert [brokers.route(topic) for topic in FULL] == [({0: A, 1: B}, 6)] * 4


def test_batches_leave_a_wiped_permission_wiped_until_the_broker_starts_again() -> None:
    brokers = Brokers()
    send_batches(brokers, 1)
    brokers.register(1, B, connection=2, topics=FULL)
    brokers.table.wipe_write_permission("broker-a")
    send_batches(brokers, 1)
    assert [brokers.route(topic) for topic in FULL] == [({0: A, 1: B}, 4)] * 4
    brokers.table.connection_closed(1)
    send_batches(brokers, 1)
    assert [brokers.route(topic) for topic in FULL] == [({0: A, 1: B}, 6)] * 4


def test_no_batch_removes_the_topics_of_the_others() -> None:
    brokers = Brokers(RouteOptions(delete_topics=True))
    for counter, pause_ms in enumerate((30_000, 30_000, 119_000, 150_000, 30_000)):
        brokers.now_ms += pause_ms
        for batch in (FULL[:2], FULL[2:], FULL[3:]):
            version = DataVersion(counter=counter)
            brokers.register(
                0, A, connection=1, version=version, topics=batch, timeout_ms=1_000_000
            )
            known = set(brokers.table.topics().topics)
            assert known == set(FULL) or counter == 0
    assert set(brokers.table.topics().topics) == set(FULL)


def test_a_topic_that_registrations_name_no_more_is_removed_if_configured() -> None:
    for delete_topics in (False, True):
        brokers = Brokers(RouteOptions(delete_topics=delete_topics))
        brokers.register(0, A, connection=1, topics=FULL, timeout_ms=1_000_000)
        for _ in range(5):
            assert brokers.route("returns") is not None
            brokers.now_ms += 30_000
            brokers.register(0, A, connection=1, topics=FULL[:3], timeout_ms=1_000_000)
        assert (brokers.route("returns") is None) is delete_topics
        assert brokers.route("refunds") is not None


def test_the_topic_of_the_member_group_shows_true_ids() -> None:
    topic = "rmq_sys_SYNC_BROKER_MEMBER_broker-a"
    brokers = Brokers()
    brokers.register(1, B, connection=1, topics=("orders", topic))
    assert brokers.route() == ({0: B}, 4)
    assert brokers.route(topic) == ({1: B}, 4)


def test_a_zone_hides_the_masters_of_other_zones() -> None:
    brokers = Brokers()
    brokers.register(0, A, connection=1, name="broker-a", zone="North")
    brokers.register(0, B, connection=2, name="broker-b", zone="south")
    brokers.register(1, C, connection=3, name="broker-c", zone="south", acting=False)
    shown = brokers.table.route("orders", zone="north")
    assert shown is not None
    assert [each.broker_name for each in shown.brokers] == ["broker-a", "broker-c"]
    assert [each.broker_name for each in shown.queues] == ["broker-a", "broker-c"]


# -- Static topics.


def test_mappings_of_a_static_topic_are_shown_until_the_topic_is_deleted() -> None:
    table = RouteTable()
    mapping = {"topic": "static", "bname": "broker-a", "totalQueues": 4, "epoch": 1}
    topics = TopicTable(
        DataVersion(counter=1),
        {name: TopicConfig(name, 4, 4, 6) for name in ("static", "orders")},
        mappings={"static": mapping},
    )
    for connection, (broker_id, address) in enumerate([(0, A), (1, B)]):
        header = Registration("east", "broker-a", broker_id, address, acting_master=False)
        body = RegisterBrokerBody(topics, ())
        table.register(header, body, connection=connection, now_ms=0)

    route = table.route("static")
    assert route is not None
    assert route.mappings == {"broker-a": mapping}
    plain = table.route("orders")
    assert plain is not None
    assert plain.mappings is None

    table.delete_topic("static", cluster="west")
    assert table.route("static") is not None
    table.delete_topic("static")
    assert table.route("static") is None
    table.register_topic("static", [QueueData("broker-a", 1, 1, 6)])
    again = table.route("static")
    assert again is not None
    assert again.mappings is None
