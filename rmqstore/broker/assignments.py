"""The queues of a topic that the broker assigns to the members of a consumer group.

Every member asks for its own share, at any broker. So a share depends on the queues and on the
members alone, both in an order that all brokers agree on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from rmqstore.remoting.bodies.queue_name import QueueName

__all__ = [
    "ALL_QUEUES",
    "STRATEGIES",
    "Strategy",
    "averagely",
    "by_circle",
    "popped_share",
    "share",
]

ALL_QUEUES = -1
"""In place of the id of a queue: all queues of the topic on one broker, for a member that pops."""

Strategy = Callable[[int, int, int], range]
"""Returns which of *queues* the member *index* of *members* gets: their indexes in order."""


def averagely(index: int, members: int, queues: int) -> range:
    """Give each member consecutive queues; the first members have one more than the others."""
    size, rest = divmod(queues, members)
    start = index * size + min(index, rest)
    return range(start, start + size + (index < rest))


def by_circle(index: int, members: int, queues: int) -> range:
    """Deal the queues out to the members one by one."""
    return range(index, queues, members)


STRATEGIES: Mapping[str, Strategy] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}
"""By the names that clients send."""


def share(
    strategy: Strategy, client_id: str, members: Collection[str], queues: Collection[QueueName]
) -> list[QueueName]:
    """Return the queues of a member that pulls; none for a client that is not a member."""
    names, ordered = _sorted(members), sorted(queues, key=_place)
    if client_id not in names:
        return []
    return [ordered[each] for each in strategy(names.index(client_id), len(names), len(ordered))]


def popped_share(
    strategy: Strategy,
    client_id: str,
    members: Collection[str],
    queues: Collection[QueueName],
    *,
    shared_with: int,
) -> list[QueueName]:
    """Return the queues that a member pops: its own share, and those of the *shared_with* members
    after it. Where that is everyone, or *shared_with* is not positive, each member pops all."""
    names, ordered = _sorted(members), sorted(queues, key=_place)
    if shared_with <= 0 or shared_with >= len(names) - 1:
        brokers = dict.fromkeys((each.topic, each.broker_name) for each in ordered)
        return [QueueName(*each, ALL_QUEUES) for each in brokers]
    if client_id not in names or not ordered:
        return []

    index, count = names.index(client_id), len(names)
    if count > len(ordered):
        return [ordered[index % len(ordered)]]
    found = (
        strategy((index + each) % count, count, len(ordered)) for each in range(shared_with + 1)
    )
    return [ordered[each] for part in found for each in part]


def _sorted(names: Collection[str]) -> Sequence[str]:
    """Returns each name once, in the order that Java sorts strings in."""
    return sorted(set(names), key=_java_order)


def _place(queue: QueueName) -> tuple[bytes, bytes, int]:
    return _java_order(queue.topic), _java_order(queue.broker_name), queue.queue_id


def _java_order(text: str) -> bytes:
    """Returns the UTF-16 code units of a text, which Java compares."""
    return text.encode("utf-16-be", "surrogatepass")
