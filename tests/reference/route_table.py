"""A slow route table: a list of brokers and a dictionary of queues, searched for each answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rmqstore.data_version import DataVersion
from rmqstore.nameserver.routes import Registration, RouteOptions
from rmqstore.remoting.bodies.topic_config import TopicTable

WRITE, READ = 2, 4


@dataclass
class Broker:
    """A row of the list of live brokers."""

    header: Registration
    version: DataVersion
    seen_ms: int
    connection: int
    taken: tuple[DataVersion, bool] | None

    @property
    def key(self) -> tuple[str, int]:
        return self.header.name, self.header.broker_id


@dataclass
class ReferenceRoutes:
    """The state of a nameserver. Every change returns its effects as plain tuples."""

    options: RouteOptions
    brokers: list[Broker] = field(default_factory=list)
    queues: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """Read queues, write queues and permission by topic and broker name."""
    registered: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """The same as the brokers registered them last, before changes by an operator."""
    named_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    """When a registration last named them."""
    taken_ms: dict[str, int] = field(default_factory=dict)
    """When topics of a broker name were last taken."""
    last_scan_ms: int | None = None
    not_counted_ms: int = 0

    def group(self, name: str) -> list[Broker]:
        """Return the brokers of a name by id."""
        found = [broker for broker in self.brokers if broker.header.name == name]
        return sorted(found, key=lambda broker: broker.header.broker_id)

    def ids(self, name: str) -> list[int]:
        return [broker.header.broker_id for broker in self.group(name)]

    def at(self, name: str, address: str) -> Broker | None:
        found = [broker for broker in self.group(name) if broker.header.address == address]
        assert len(found) <= 1
        return found[0] if found else None

    def is_acting(self, name: str) -> bool:
        return bool(self.group(name)[0].header.acting_master)

    # -- Requests.

    def is_refused(self, header: Registration, table: TopicTable, connection: int) -> bool:
        held = [broker for broker in self.brokers if broker.key == (header.name, header.broker_id)]
        others = [each for each in self.group(header.name) if each.header.address != header.address]
        if any(each.header.cluster != header.cluster for each in others):
            return True
        if not held and len(table.topics) == 1:
            return True
        for broker in held:
            is_other = broker.header.address != header.address
            if is_other and broker.version.state_version > table.version.state_version:
                return True
        present = self.at(header.name, header.address)
        return (
            present is not None
            and connection < present.connection
            and table.version.order <= present.version.order
        )

    def register(
        self, header: Registration, table: TopicTable, connection: int, now_ms: int
    ) -> list[tuple[Any, ...]]:
        ids_before = self.ids(header.name)
        own = [
            broker
            for broker in self.group(header.name)
            if broker.key[1] == header.broker_id and broker.header.address == header.address
        ]
        self.brokers = [
            broker
            for broker in self.brokers
            if broker.header.name != header.name
            or (
                broker.header.broker_id != header.broker_id
                and broker.header.address != header.address
            )
        ]
        row = Broker(
            header,
            table.version,
            now_ms - self.not_counted_ms,
            connection,
            own[0].taken if own else None,
        )
        self.brokers.append(row)
        self._take(row, table)

        group = self.group(header.name)
        came = bool(ids_before) and header.broker_id < min(ids_before)
        if not (came and self.options.notify_min_broker_id):
            return []
        addresses = [broker.header.address for broker in group]
        return [
            (
                "notify",
                tuple(addresses[1:] or addresses),
                header.broker_id,
                header.address,
                None,
                header.ha_address,
            )
        ]

    def _take(self, row: Broker, table: TopicTable) -> None:
        header, name = row.header, row.header.name
        is_master = header.broker_id == 0
        is_first_slave = header.acting_master is not None and header.broker_id == self.ids(name)[0]
        if not (is_master or is_first_slave):
            return

        is_read_only = not is_master and bool(header.acting_master)
        mark = (table.version, is_read_only)

        own = [key for key in self.queues if key[1] == name]
        if row.taken is None:
            self.registered.update({key: self.queues[key] for key in own})
        if row.seen_ms - self.taken_ms.get(name, 0) > 120_000:
            self.named_ms.update(dict.fromkeys(own, row.seen_ms))
        self.taken_ms[name] = row.seen_ms

        for topic, config in table.topics.items():
            key = topic, name
            perm = config.perm & ~WRITE if is_read_only else config.perm
            value = (config.read_queues, config.write_queues, perm)
            if row.taken != mark or key not in self.queues or self.registered[key] != value:
                self.queues[key] = self.registered[key] = value
            self.named_ms[key] = row.seen_ms

        for key in own:
            if self.options.delete_topics and row.seen_ms - self.named_ms[key] > 120_000:
                del self.queues[key]
        row.taken = mark

    def unregister(self, name: str, address: str, connection: int) -> list[tuple[Any, ...]]:
        row = self.at(name, address)
        return [] if row is None or connection < row.connection else self._remove([row])

    def close(self, connection: int) -> list[tuple[Any, ...]]:
        return self._remove([row for row in self.brokers if row.connection == connection])

    def expire(self, now_ms: int) -> list[tuple[Any, ...]]:
        if self.last_scan_ms is not None:
            late_ms = now_ms - self.last_scan_ms - 2 * self.options.scan_interval_ms
            self.not_counted_ms += max(0, late_ms)
        self.last_scan_ms = now_ms
        time_ms = now_ms - self.not_counted_ms
        gone = [
            row
            for row in self.brokers
            if row.seen_ms + (row.header.timeout_ms or 120_000) < time_ms
        ]
        effects = self._remove(gone)
        for connection in sorted({row.connection for row in gone}):
            if not any(row.connection == connection for row in self.brokers):
                effects.append(("close", connection))
        return effects

    def heartbeat(self, name: str, address: str, connection: int, now_ms: int) -> bool:
        row = self.at(name, address)
        if row is None:
            return False
        row.seen_ms = max(row.seen_ms, now_ms - self.not_counted_ms)
        row.connection = max(row.connection, connection)
        return True

    def _remove(self, gone: list[Broker]) -> list[tuple[Any, ...]]:
        smallest = {row.header.name: self.group(row.header.name)[0] for row in gone}
        self.brokers = [row for row in self.brokers if row not in gone]
        effects: list[tuple[Any, ...]] = []

        for name, first in smallest.items():
            group = self.group(name)
            if not group:
                self.queues = {key: value for key, value in self.queues.items() if key[1] != name}
                self.taken_ms.pop(name, None)
            elif self.is_acting(name):
                if group[0].header.broker_id != 0:
                    self.set_write(name, False)
                    self.registered.update(
                        {key: queue for key, queue in self.queues.items() if key[1] == name}
                    )
                if first in gone and self.options.notify_min_broker_id:
                    header = group[0].header
                    addresses = tuple(row.header.address for row in group)
                    offline = first.header.address
                    effects.append(
                        ("notify", addresses, header.broker_id, header.address, offline, None)
                    )

        return effects

    def set_write(self, name: str, is_writable: bool) -> int:
        """Clear the write bit of a name's topics, or set exactly read and write."""
        topics = [topic for topic, owner in self.queues if owner == name]
        for topic in topics:
            read_queues, write_queues, perm = self.queues[topic, name]
            perm = READ | WRITE if is_writable else perm & ~WRITE
            self.queues[topic, name] = (read_queues, write_queues, perm)
        return len(topics)

    def register_topic(self, topic: str, names: list[str]) -> None:
        """Add queues that no registration named."""
        for name in names:
            if (topic, name) not in self.queues:
                self.registered[topic, name] = (1, 1, 6)
                self.named_ms[topic, name] = self.group(name)[0].seen_ms
            self.queues[topic, name] = (1, 1, 6)

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        for each, name in list(self.queues):
            if each == topic and (not cluster or self.group(name)[0].header.cluster == cluster):
                del self.queues[each, name]

    # -- Answers.

    def route(self, topic: str) -> dict[str, tuple[tuple[int, int, int], dict[int, str]]]:
        """Return queues and addresses by broker name."""
        found = {}
        for (each, name), queue in self.queues.items():
            if each != topic:
                continue
            addresses = {row.header.broker_id: row.header.address for row in self.group(name)}
            if self.options.acting_master and self.is_acting(name) and not queue[2] & WRITE:
                if 0 not in addresses:
                    addresses[0] = addresses.pop(min(addresses))
            found[name] = (queue, addresses)
        return found
