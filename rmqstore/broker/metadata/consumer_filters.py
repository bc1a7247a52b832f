"""The expressions that consumer groups registered with their heartbeats, by RocketMQ's rules.

The expression of the newest subscription of a group counts. It is kept for a time after the last
consumer has left, with the time from which messages have been evaluated for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from rmqstore.filters import SQL92, Bloom, SqlError, selector_of
from rmqstore.remoting.bodies.clients import SubscriptionData
from rmqstore.store.metadata import FilterData, FilterTable

__all__ = ["ConsumerFilters"]

_LOADED_DEAD_MS = 30_000
"""How long before the start the consumers of a file are taken to have left."""


class ConsumerFilters:
    """The expressions of one broker. Times come in as *now_ms*, by the wall clock."""

    def __init__(self, table: FilterTable, bloom: Bloom, *, now_ms: int) -> None:
        self._others = table.others
        self._bloom = bloom
        self._filters: dict[str, dict[str, FilterData]] = {}
        known = [each for groups in table.filters.values() for each in groups.values()]
        if all(map(self._has_own_bits, known)):
            for each in known:
                self._load(each, now_ms)

    def __len__(self) -> int:
        return sum(map(len, self._filters.values()))

    def _has_own_bits(self, data: FilterData) -> bool:
        counts = data.bit_count, len(data.bit_positions)
        return counts == (self._bloom.bit_count, self._bloom.hash_count)

    def _load(self, data: FilterData, now_ms: int) -> None:
        if not _is_whole(data.expression_type, data.expression):
            return
        if data.dead_ms == 0:
            data = replace(data, dead_ms=max(now_ms - _LOADED_DEAD_MS, data.born_ms))
        self._put(data)

    def get(self, topic: str, group: str) -> FilterData | None:
        """Return the expression of *group* for *topic*, None where there is none."""
        return self._filters.get(topic, {}).get(group)

    def of_group(self, group: str) -> list[FilterData]:
        """Return the expressions of *group*."""
        return [groups[group] for groups in self._filters.values() if group in groups]

    # -- heartbeats

    def register(
        self, group: str, subscriptions: Iterable[SubscriptionData], *, now_ms: int
    ) -> None:
        """Take all subscriptions of a consumer of *group*. Those of tags are not kept here, nor is
        a wrong expression: its pulls are refused with the reason."""
        topics = set()
        for each in subscriptions:
            topics.add(each.topic)
            if each.expression_type == SQL92 and each.expression:
                self._register(group, each, now_ms)
        for data in self.of_group(group):
            if data.topic not in topics and not data.is_dead:
                self._put(replace(data, dead_ms=now_ms))

    def _register(self, group: str, subscription: SubscriptionData, now_ms: int) -> None:
        topic, expression, version = (
            subscription.topic,
            subscription.expression,
            subscription.version,
        )
        known = self.get(topic, group)
        if known is not None and version <= known.version:
            if version == known.version and known.is_dead:
                self._put(replace(known, dead_ms=0))
        elif known is not None and known.expression == expression and self._has_own_bits(known):
            self._put(replace(known, version=version, dead_ms=0))
        elif _is_whole(subscription.expression_type, expression):
            bits, positions = self._bloom.bit_count, self._bloom.positions(group, topic)
            data = FilterData(topic, group, expression, SQL92, version, now_ms, 0, bits, positions)
            self._put(data)
        elif known is not None:
            self._remove(known)

    def unregister(self, group: str, *, now_ms: int) -> None:
        """Take that the last consumer of *group* has left."""
        for data in self.of_group(group):
            if not data.is_dead:
                self._put(replace(data, dead_ms=now_ms))

    # -- the file

    def table(self, *, now_ms: int, kept_ms: int) -> FilterTable:
        """Return the file, after removing the groups without a consumer for *kept_ms*."""
        for groups in tuple(self._filters.values()):
            for data in tuple(groups.values()):
                if data.is_dead and now_ms - data.dead_ms >= kept_ms:
                    self._remove(data)
        filters = {topic: dict(groups) for topic, groups in self._filters.items()}
        return FilterTable(filters, self._others)

    def _put(self, data: FilterData) -> None:
        self._filters.setdefault(data.topic, {})[data.group] = data

    def _remove(self, data: FilterData) -> None:
        del self._filters[data.topic][data.group]
        if not self._filters[data.topic]:
            del self._filters[data.topic]


def _is_whole(expression_type: str, expression: str) -> bool:
    """Returns whether an expression selects messages."""
    if expression_type != SQL92:
        return False
    try:
        selector_of(expression)
    except SqlError:
        return False
    return True
