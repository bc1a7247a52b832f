"""The table of a broker's clients: who is in which group, and who is notified of changes.

Behaviour of upstream's ConsumerManagerTest; a docstring names the methods.
"""

from __future__ import annotations

from rmqstore.broker.clients import BROADCASTING, Change, Client, ClientTable
from rmqstore.remoting.bodies.clients import ConsumerData, SubscriptionData


def client(name: str) -> Client:
    return Client(name, f"id-{name}", "JAVA", 479)


def consumer(
    *topics: str, group: str = "g", version: int = 1, model: str = "CLUSTERING"
) -> ConsumerData:
    subscriptions = tuple(SubscriptionData(topic=each, version=version) for each in topics)
    return ConsumerData(group=group, subscriptions=subscriptions, message_model=model)


def test_all_members_are_notified_of_a_new_one_and_of_other_topics_only() -> None:
    table = ClientTable()
    assert table.register_consumer(consumer("T"), client("a")) == Change("g", ("a",))
    assert table.register_consumer(consumer("T"), client("b")) == Change("g", ("a", "b"))
    assert table.register_consumer(consumer("T", version=2), client("a")) is None
    assert table.register_consumer(consumer("T", "U"), client("a")) == Change("g", ("a", "b"))
    assert table.register_consumer(consumer("U"), client("b")) == Change("g", ("a", "b"))


def test_older_subscription_does_not_replace_a_newer_one() -> None:
    table = ClientTable()
    table.register_consumer(consumer("T", version=5), client("a"))
    table.register_consumer(consumer("T", version=4), client("a"))
    group = table.consumer_group("g")
    assert group is not None
    assert group.subscriptions["T"].version == 5


def test_subscriptions_that_were_left_out_stay() -> None:
    """testRegisterConsumerWithoutSub, findSubscriptionDataTest, findSubscriptionDataCountTest."""
    table = ClientTable()
    table.register_consumer(consumer("T"), client("a"), fingerprint=3)
    kept = table.register_consumer(consumer(), client("a"), fingerprint=3, keeps_subscriptions=True)
    group = table.consumer_group("g")
    assert kept is None
    assert group is not None
    assert list(group.subscriptions) == ["T"]


def test_groups_that_broadcast_are_notified_of_nothing() -> None:
    """registerConsumerTest."""
    table = ClientTable()
    data = consumer("T", model=BROADCASTING)
    assert table.register_consumer(data, client("a")) is None
    assert table.register_consumer(data, client("b")) is None
    assert table.forget("a") == ()


def test_last_member_takes_the_group_along() -> None:
    """unregisterConsumerTest, doChannelCloseEventTest."""
    table = ClientTable()
    table.register_consumer(consumer("T"), client("a"))
    table.register_consumer(consumer("T"), client("b"))
    left = table.unregister("a", producer_group=None, consumer_group="g")
    assert left == (Change("g", ("b",)),)
    assert table.unregister("a", producer_group="p", consumer_group="g") == ()
    assert table.forget("b") == ()
    assert table.consumer_group("g") is None
    assert list(table.consumer_groups()) == []


def test_producers_come_and_go() -> None:
    table = ClientTable()
    assert table.register_producer("p", client("a"))
    assert not table.register_producer("p", client("a"))
    assert [each.client_id for each in table.producers("p")] == ["id-a"]
    assert table.forget("a") == ()
    assert table.producers("p") == ()


def test_connections_without_a_heartbeat_are_named_after_the_time() -> None:
    """scanNotActiveChannelTest."""
    table = ClientTable(timeout_ms=100)
    table.heard("a", now_ms=0)
    table.heard("b", now_ms=50)
    assert table.silent(100) == ()
    assert table.silent(101) == ("a",)
    table.heard("a", now_ms=101)
    assert table.silent(151) == ("b",)
    table.forget("b")
    assert len(table) == 1


def test_connection_cannot_fill_the_table_with_groups() -> None:
    table = ClientTable(groups_max=2)
    for number in range(5):
        table.register_consumer(consumer("T", group=str(number)), client("a"))
        table.register_producer(str(number), client("a"))
    assert [each.name for each in table.consumer_groups()] == ["0"]
    assert table.producers("0")
    assert not table.producers("1")


def test_producer_is_found_by_the_id_of_its_client_at_its_newest_connection() -> None:
    table = ClientTable()
    former, newer = (Client(name, "id", "JAVA", 479) for name in ("a", "b"))
    for group in ("p", "q"):
        table.register_producer(group, former)
    assert table.producer("id") == "a"
    table.register_producer("p", newer)
    assert table.producer("id") == "b"
    table.forget("a")
    assert table.producer("id") == "b"
    table.register_producer("q", newer)
    table.unregister("b", producer_group="p", consumer_group=None)
    assert table.producer("id") == "b", "it is still in another group"
    table.unregister("b", producer_group="q", consumer_group=None)
    assert table.producer("id") is None


def test_group_whose_members_want_different_messages_is_mixed() -> None:
    table = ClientTable()
    table.register_consumer(consumer("T", "U"), client("a"))
    table.register_consumer(consumer("U", "T", version=7), client("b"))
    table.register_consumer(consumer("V", group="h"), client("b"))
    assert table.mixed_groups == ()
    table.register_consumer(consumer("T"), client("b"))
    assert table.mixed_groups == ("g",)
    table.register_consumer(consumer(), client("b"), keeps_subscriptions=True)
    assert table.mixed_groups == ("g",)
    table.forget(client("b").connection)
    assert table.mixed_groups == ()
