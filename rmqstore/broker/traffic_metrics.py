"""The counters of a broker as metrics, with RocketMQ's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rmqstore.broker.counters import Counters
from rmqstore.broker.metadata.topics import is_system
from rmqstore.broker.statistics import Pair, Statistics
from rmqstore.net.metrics import Family, counter
from rmqstore.topic_names import RETRY_PREFIX

__all__ = ["labels_of", "traffic_families"]


def labels_of(topic: str, group: str | None = None) -> dict[str, str]:
    """Return the labels of a topic, and of a group that reads it."""
    labels = {"topic": topic, "is_system": _text(is_system(topic))}
    if group is None:
        return labels
    return {**labels, "consumer_group": group, "is_retry": _text(topic.startswith(RETRY_PREFIX))}


def _text(value: bool) -> str:
    return "true" if value else "false"


def traffic_families(statistics: Statistics, node: Mapping[str, str]) -> Iterator[Family]:
    """Yield the metrics of messages, with the labels *node* of the broker."""

    def of_topics(name: str, text: str, counts: Counters[str], *, sizes: bool = False) -> Family:
        samples = (
            ({**node, **labels_of(topic)}, counts.total(topic)[1 if sizes else 0])
            for topic in counts
        )
        return counter(name, text, samples)

    def of_groups(name: str, text: str, counts: Counters[Pair], *, sizes: bool = False) -> Family:
        samples = (
            ({**node, **labels_of(*pair)}, counts.total(pair)[1 if sizes else 0]) for pair in counts
        )
        return counter(name, text, samples)

    puts, gets = statistics.puts, statistics.gets
    yield of_topics("rocketmq_messages_in_total", "Messages stored.", puts)
    yield of_topics(
        "rocketmq_throughput_in_total", "Bytes of messages in the log.", puts, sizes=True
    )
    yield of_groups("rocketmq_messages_out_total", "Messages sent to consumers.", gets)
    yield of_groups(
        "rocketmq_throughput_out_total", "Bytes of messages sent to consumers.", gets, sizes=True
    )
    yield of_groups(
        "rocketmq_send_to_dlq_messages_total",
        "Messages that consumers sent back, and that became dead letters.",
        statistics.dead,
    )
    yield of_topics(
        "rocketmq_timer_enqueue_total",
        "Timer messages that entered the wheel.",
        statistics.timers_entered,
    )
    yield of_topics(
        "rocketmq_timer_dequeue_total",
        "Timer messages that were delivered.",
        statistics.timers_delivered,
    )
