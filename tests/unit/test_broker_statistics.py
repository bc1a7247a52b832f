"""The counters of a broker by RocketMQ's names. Behaviour of its BrokerStatsManagerTest."""

from __future__ import annotations

import pytest

from rmqstore.broker.statistics import Statistics

CLUSTER = "DefaultCluster"


def _total(statistics: Statistics, name: str, key: str) -> int | None:
    sums = statistics.sums(name, key, cluster=CLUSTER, now_s=1.0)
    return None if sums is None else sums.minute.total


@pytest.fixture
def statistics() -> Statistics:
    found = Statistics(0.0)
    found.stored("orders", 2, 300)
    found.stored("orders", 1, 100)
    found.pulled("orders", "billing", 3, 400)
    found.put_back("orders", "billing", is_dead=False)
    found.put_back("orders", "billing", is_dead=True)
    return found


@pytest.mark.parametrize(
    ("name", "key", "total"),
    [
        ("TOPIC_PUT_NUMS", "orders", 3),
        ("TOPIC_PUT_SIZE", "orders", 400),
        ("GROUP_GET_NUMS", "orders@billing", 3),
        ("GROUP_GET_SIZE", "orders@billing", 400),
        ("SNDBCK_PUT_NUMS", "orders@billing", 2),
        ("BROKER_PUT_NUMS", CLUSTER, 3),
        ("BROKER_GET_NUMS", CLUSTER, 3),
        ("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, 3),
        ("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER, 3),
        ("TEST", "TEST", None),
        ("TOPIC_PUT_NUMS", "bills", None),
        ("GROUP_GET_NUMS", "orders", None),
        ("BROKER_PUT_NUMS", "OtherCluster", None),
    ],
)
def test_a_counter_is_found_by_rocketmqs_name(
    statistics: Statistics, name: str, key: str, total: int | None
) -> None:
    assert _total(statistics, name, key) == total
    statistics.sample(10.0)
    assert _total(statistics, name, key) == total


def test_topics_of_the_system_do_not_count_as_those_of_users(statistics: Statistics) -> None:
    statistics.stored("RMQ_SYS_TRACE_TOPIC", 5, 500)
    statistics.pulled("rmq_sys_wheel_timer", "g", 7, 700)
    assert _total(statistics, "BROKER_PUT_NUMS", CLUSTER) == 8
    assert _total(statistics, "BROKER_GET_NUMS", CLUSTER) == 10
    assert statistics.users_messages == (3, 3)


def test_a_deleted_topic_has_no_counters(statistics: Statistics) -> None:
    statistics.stored("bills", 1, 1)
    statistics.pulled("bills", "billing", 1, 1)
    statistics.sample(10.0)
    statistics.forget_topic("orders")
    for name in ("TOPIC_PUT_NUMS", "TOPIC_PUT_SIZE"):
        assert _total(statistics, name, "orders") is None
    for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"):
        assert _total(statistics, name, "orders@billing") is None
    assert _total(statistics, "BROKER_PUT_NUMS", CLUSTER) == statistics.users_messages[0] == 4
    assert _total(statistics, "TOPIC_PUT_NUMS", "bills") == 1
    assert _total(statistics, "GROUP_GET_NUMS", "bills@billing") == 1


def test_the_broker_keeps_the_counts_of_topics_that_are_deleted(statistics: Statistics) -> None:
    statistics.forget_topic("orders")
    assert statistics.users_messages == (3, 3)
    statistics.sample(10.0)
    statistics.stored("bills", 1, 1)
    assert statistics.users_messages == (4, 3)
    statistics.forget_group("billing")
    assert statistics.users_messages == (4, 3)


def test_a_deleted_group_has_no_counters(statistics: Statistics) -> None:
    statistics.pulled("orders", "audit", 1, 1)
    statistics.sample(10.0)
    statistics.forget_group("billing")
    for name in ("GROUP_GET_NUMS", "GROUP_GET_SIZE", "SNDBCK_PUT_NUMS"):
        assert _total(statistics, name, "orders@billing") is None
    assert _total(statistics, "GROUP_GET_NUMS", "orders@audit") == 1
    assert _total(statistics, "TOPIC_PUT_NUMS", "orders") == 3


def test_light_queues_share_one_counter(statistics: Statistics) -> None:
    statistics.pulled("%LMQ%a", "%LMQ%g", 1, 10)
    statistics.pulled("%LMQ%b", "%LMQ%h", 2, 20)
    assert _total(statistics, "GROUP_GET_NUMS", "%LMQ%@%LMQ%") == 3
