"""The clients of a broker: which consumers and producers are online, at which connection.

Each heartbeat of a client names the groups that it is in. It leaves a group with a request, when
its connection ends, or after the time without a heartbeat. Members that stay are notified of each
change, so that they share the queues again.

Time comes in as *now_ms*.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rmqstore.remoting.bodies.clients import ConsumerData, SubscriptionData
from rmqstore.remoting.requests import Peer

__all__ = ["BROADCASTING", "Change", "Client", "ClientTable", "ConsumerGroup"]

BROADCASTING = "BROADCASTING"
"""The message model whose consumers share no queues."""
_PASSIVELY = "CONSUME_PASSIVELY"
"""The type of consumers whose client pulls for a listener."""


class Client(NamedTuple):
    """One client at one connection."""

    connection: Peer
    client_id: str
    language: str
    version: int


class Change(NamedTuple):
    """A group whose members have changed, and the connections to notify of it."""

    group: str
    connections: tuple[Peer, ...]


@dataclass(slots=True)
class ConsumerGroup:
    """The members of a consumer group; the last heartbeat's settings apply to all."""

    name: str
    consume_type: str
    message_model: str
    consume_from: str
    subscriptions: dict[str, SubscriptionData] = field(default_factory=dict)
    """By topic."""
    members: dict[Peer, Client] = field(default_factory=dict)
    """By connection, in the order in which they came."""
    fingerprint: int = 0
    wanted: dict[Peer, frozenset[tuple[str, str]]] = field(default_factory=dict)
    """What each member said last that it subscribes to: topics and expressions."""

    @property
    def is_mixed(self) -> bool:
        """Whether members subscribe to different messages: each then gets queues with messages that
        the broker filters for another one."""
        return len(set(self.wanted.values())) > 1


class ClientTable:
    """All clients of one broker.

    A connection may register *groups_max* groups of either kind; further ones are left out.
    """

    def __init__(self, *, timeout_ms: int = 120_000, groups_max: int = 1000) -> None:
        self._timeout_ms = timeout_ms
        self._groups_max = groups_max
        self._consumers: dict[str, ConsumerGroup] = {}
        self._producers: dict[str, dict[Peer, Client]] = {}
        self._producer_ids: dict[str, Peer] = {}
        """The newest connection of each producer, by the id of its client."""
        self._groups_of: dict[Peer, set[tuple[str, str]]] = {}
        """Of each connection: kind and name of its groups."""
        self._heard_ms: dict[Peer, int] = {}

    def __len__(self) -> int:
        return len(self._heard_ms)

    def consumer_group(self, name: str) -> ConsumerGroup | None:
        """Return a consumer group that has members, None for another one."""
        return self._consumers.get(name)

    def broadcaster(self, group: str, connection: Peer) -> str | None:
        """Return the id of the client at *connection* if its group broadcasts to listeners."""
        found = self._consumers.get(group)
        if found is None or found.message_model != BROADCASTING:
            return None
        member = found.members.get(connection)
        return None if member is None or found.consume_type != _PASSIVELY else member.client_id

    def has_consumer(self, group: str, client_id: str) -> bool:
        """Return whether a client is a member of a consumer group."""
        found = self._consumers.get(group)
        members = () if found is None else found.members.values()
        return any(each.client_id == client_id for each in members)

    def consumer(self, group: str, client_id: str) -> Client | None:
        """Return the newest connection of a member of a consumer group, None for another client."""
        found = self._consumers.get(group)
        members = () if found is None else reversed(found.members.values())
        return next((each for each in members if each.client_id == client_id), None)

    def producer_groups(self) -> Mapping[str, tuple[Client, ...]]:
        """Return the members of every producer group."""
        return {group: tuple(found.values()) for group, found in self._producers.items()}

    def heard_ms(self, connection: Peer) -> int | None:
        """Return when *connection* sent its last heartbeat, None before the first."""
        return self._heard_ms.get(connection)

    def producers(self, group: str) -> tuple[Client, ...]:
        """Return the members of a producer group."""
        return tuple(self._producers.get(group, {}).values())

    def producer(self, client_id: str) -> Peer | None:
        """Return the newest connection of a producer, None for an unknown client."""
        return self._producer_ids.get(client_id)

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the subscription of a consumer group to a topic, None without one."""
        found = self._consumers.get(group)
        return None if found is None else found.subscriptions.get(topic)

    def subscribers(self, topic: str) -> tuple[str, ...]:
        """Return the consumer groups whose members that are online subscribe to a topic."""
        groups = self._consumers.items()
        return tuple(name for name, each in groups if topic in each.subscriptions)

    # -- Heartbeats.

    def heard(self, connection: Peer, *, now_ms: int) -> None:
        """Count a heartbeat of *connection*, which keeps it for the time of the table."""
        self._heard_ms[connection] = now_ms

    def register_producer(self, group: str, client: Client) -> bool:
        """Add a producer; return whether its connection is new in the group."""
        if not self._has_room(client.connection, ("producer", group)):
            return False
        members = self._producers.setdefault(group, {})
        is_new = client.connection not in members
        members[client.connection] = client
        if is_new:
            self._producer_ids[client.client_id] = client.connection
        return is_new

    def register_consumer(
        self,
        data: ConsumerData,
        client: Client,
        *,
        fingerprint: int = 0,
        keeps_subscriptions: bool = False,
    ) -> Change | None:
        """Add a consumer, or renew it; return whom to notify of what has changed by it.

        With *keeps_subscriptions* the consumer left its subscriptions out, and those of the group
        stay. Groups that broadcast are notified of nothing.
        """
        if not self._has_room(client.connection, ("consumer", data.group)):
            return None
        group = self._consumers.get(data.group)
        if group is None:
            group = self._consumers[data.group] = ConsumerGroup(
                data.group, data.consume_type, data.message_model, data.consume_from
            )
        is_changed = client.connection not in group.members
        group.members[client.connection] = client
        group.fingerprint = fingerprint
        if not keeps_subscriptions:
            group.consume_type = data.consume_type
            group.message_model = data.message_model
            group.consume_from = data.consume_from
            group.wanted[client.connection] = frozenset(
                (each.topic, each.expression) for each in data.subscriptions
            )
            is_changed |= _subscribe(group.subscriptions, data.subscriptions)
        return _change_of(group) if is_changed else None

    def _has_room(self, connection: Peer, entry: tuple[str, str]) -> bool:
        groups = self._groups_of.setdefault(connection, set())
        if entry not in groups and len(groups) >= self._groups_max:
            return False
        groups.add(entry)
        return True

    # -- The end.

    def unregister(
        self, connection: Peer, *, producer_group: str | None, consumer_group: str | None
    ) -> tuple[Change, ...]:
        """Take the client at *connection* out of the groups; return whom to notify."""
        changes: tuple[Change, ...] = ()
        if producer_group is not None:
            changes += self._leave(connection, ("producer", producer_group))
        if consumer_group is not None:
            changes += self._leave(connection, ("consumer", consumer_group))
        return changes

    def forget(self, connection: Peer) -> tuple[Change, ...]:
        """Take a connection that ended out of all groups; return whom to notify."""
        changes: tuple[Change, ...] = ()
        for entry in sorted(self._groups_of.get(connection, ())):
            changes += self._leave(connection, entry)
        self._groups_of.pop(connection, None)
        self._heard_ms.pop(connection, None)
        return changes

    def groups_of(self, connection: Peer) -> tuple[str, ...]:
        """Return the consumer groups that the client at *connection* is in."""
        entries = self._groups_of.get(connection, ())
        return tuple(sorted(name for kind, name in entries if kind == "consumer"))

    def silent(self, now_ms: int) -> tuple[Peer, ...]:
        """Return the connections without a heartbeat for the time of the table; `forget` them."""
        oldest_ms = now_ms - self._timeout_ms
        return tuple(each for each, heard_ms in self._heard_ms.items() if heard_ms < oldest_ms)

    def _leave(self, connection: Peer, entry: tuple[str, str]) -> tuple[Change, ...]:
        groups = self._groups_of.get(connection, set())
        if entry not in groups:
            return ()
        groups.discard(entry)
        kind, name = entry
        if kind == "producer":
            producers = self._producers[name]
            client_id = producers.pop(connection).client_id
            is_last = all(kind != "producer" for kind, _ in groups)
            if is_last and self._producer_ids.get(client_id) is connection:
                del self._producer_ids[client_id]
            if not producers:
                del self._producers[name]
            return ()
        group = self._consumers[name]
        del group.members[connection]
        group.wanted.pop(connection, None)
        if not group.members:
            del self._consumers[name]
            return ()
        change = _change_of(group)
        return () if change is None else (change,)

    def consumer_groups(self) -> Iterator[ConsumerGroup]:
        """Iterate over the consumer groups that have members."""
        yield from self._consumers.values()

    @property
    def mixed_groups(self) -> tuple[str, ...]:
        """The groups whose members subscribe to different messages, sorted."""
        return tuple(sorted(name for name, each in self._consumers.items() if each.is_mixed))


def _subscribe(
    known: dict[str, SubscriptionData], subscriptions: tuple[SubscriptionData, ...]
) -> bool:
    """Replaces the subscriptions of a group; returns whether a topic came or went."""
    wanted: Mapping[str, SubscriptionData] = {each.topic: each for each in subscriptions}
    is_changed = known.keys() != wanted.keys()
    for topic in known.keys() - wanted.keys():
        del known[topic]
    for topic, each in wanted.items():
        if topic not in known or known[topic].version <= each.version:
            known[topic] = each
    return is_changed


def _change_of(group: ConsumerGroup) -> Change | None:
    if group.message_model == BROADCASTING:
        return None
    return Change(group.name, tuple(group.members))
