"""RocketMQ's counters of a broker by their names, as VIEW_BROKER_STATS_DATA shows them.

    TOPIC_PUT_NUMS           orders
    GROUP_GET_SIZE           orders@billing
    BROKER_PUT_NUMS          DefaultCluster

Counters of light queues are one for all, as in RocketMQ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rmqstore.broker.counters import Counters, Sums
from rmqstore.broker.metadata.topics import is_system
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["Statistics"]

_PUT, _GET = "BROKER_PUT_NUMS", "BROKER_GET_NUMS"
_USERS_PUT = "BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC"
_USERS_GET = "BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC"

Pair = tuple[str, str]
"""A topic and a group."""


def _shared(name: str) -> str:
    """Returns the name that a topic or a group is counted under."""
    return LIGHT_PREFIX if name.startswith(LIGHT_PREFIX) else name


class Statistics:
    """The counters of one broker since its start."""

    def __init__(self, now_s: float) -> None:
        self.puts = Counters[str](now_s)
        """By topic."""
        self.gets = Counters[Pair](now_s)
        """By topic and group."""
        self.sent_back = Counters[Pair](now_s)
        """Messages that consumers sent back, by the topic of their producer and the group."""
        self.dead = Counters[Pair](now_s)
        """Those of them that became dead letters."""
        self.timers_entered = Counters[str](now_s)
        """Timer messages that entered the wheel, by their topic."""
        self.timers_delivered = Counters[str](now_s)
        """Timer messages that were delivered, by their topic."""
        self._broker = Counters[str](now_s)
        """By the name of the counter."""
        self._gone = Counter[str]()
        """The recent counts of the broker that are of deleted topics and groups."""

    @property
    def _of_topics(self) -> tuple[Counters[str], ...]:
        return self.puts, self.timers_entered, self.timers_delivered

    @property
    def _of_pairs(self) -> tuple[Counters[Pair], ...]:
        return self.gets, self.sent_back, self.dead

    # -- Counting.

    def stored(self, topic: str, count: int, size_bytes: int) -> None:
        """Count messages of a topic that were stored."""
        self.puts.add(topic, count, size_bytes)

    def pulled(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Count messages of a topic that were sent to a group."""
        self.gets.add((_shared(topic), _shared(group)), count, size_bytes)

    def put_back(self, topic: str, group: str, *, is_dead: bool) -> None:
        """Count a message of a topic that a group sent back."""
        key = (_shared(topic), _shared(group))
        self.sent_back.add(key, 1)
        if is_dead:
            self.dead.add(key, 1)

    def sample(self, now_s: float) -> None:
        """Keep the present counts; call it every `SAMPLE_S`."""
        self._sum_up()
        self._gone.clear()
        for by_topic in (*self._of_topics, self._broker):
            by_topic.sample(now_s)
        for by_pair in self._of_pairs:
            by_pair.sample(now_s)

    def _sum_up(self) -> None:
        """Set the recent counts of the broker to the sums of those of topics and groups: a message
        is counted once."""
        counts = self._recent_of_all()
        counts.update(self._gone)
        self._broker.recent = {name: [count, 0, 1] for name, count in counts.items() if count}

    def _recent_of_all(self) -> Counter[str]:
        found = Counter[str]()
        for topic, counts in self.puts.recent.items():
            found[_PUT] += counts[0]
            found[_USERS_PUT] += 0 if is_system(topic) else counts[0]
        for (topic, _), counts in self.gets.recent.items():
            found[_GET] += counts[0]
            found[_USERS_GET] += 0 if is_system(topic) else counts[0]
        return found

    def forget_topic(self, topic: str) -> None:
        """Forget the counts of a topic that is deleted; the broker keeps its own."""
        self._gone.update(self._recent_of_all())
        for each in self._of_topics:
            each.forget(lambda key: key == topic)
        self._forget_pairs(lambda key: key[0] == topic)
        self._gone.subtract(self._recent_of_all())

    def forget_group(self, group: str) -> None:
        """Forget the counts of a group that is deleted; the broker keeps its own."""
        self._gone.update(self._recent_of_all())
        self._forget_pairs(lambda key: key[1] == group)
        self._gone.subtract(self._recent_of_all())

    def _forget_pairs(self, is_gone: Callable[[Pair], bool]) -> None:
        for each in self._of_pairs:
            each.forget(is_gone)

    # -- Reports.

    @property
    def users_messages(self) -> tuple[int, int]:
        """Messages that were stored, and sent to consumers, without topics of the system."""
        self._sum_up()
        return self._broker.total(_USERS_PUT)[0], self._broker.total(_USERS_GET)[0]

    def topic_put_rate(self, topic: str, now_s: float) -> float:
        """Return the messages a second stored in a topic in the last minute."""
        return self.puts.rate(topic, now_s)

    def group_get_rate(self, topic: str, group: str, now_s: float) -> float:
        """Return the messages a second of a topic sent to a group in the last minute."""
        return self.gets.rate((_shared(topic), _shared(group)), now_s)

    def sums(self, name: str, key: str, *, cluster: str, now_s: float) -> Sums | None:
        """Return a counter by RocketMQ's name and key, None where nothing was counted."""
        topic, _, group = key.partition("@")
        match name:
            case "TOPIC_PUT_NUMS":
                return self.puts.messages(key, now_s)
            case "TOPIC_PUT_SIZE":
                return self.puts.sizes(key, now_s)
            case "GROUP_GET_NUMS":
                return self.gets.messages((topic, group), now_s)
            case "GROUP_GET_SIZE":
                return self.gets.sizes((topic, group), now_s)
            case "SNDBCK_PUT_NUMS":
                return self.sent_back.messages((topic, group), now_s)
            case _:
                self._sum_up()
                return self._broker.messages(name, now_s) if key == cluster else None
