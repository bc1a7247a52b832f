"""Headers of requests about the counters of a broker (315)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, header, string

__all__ = ["BrokerStatsRequestHeader"]


@header
class BrokerStatsRequestHeader(Header):
    """VIEW_BROKER_STATS_DATA (315)."""

    name: str = string("statsName")
    """Of the counter: TOPIC_PUT_NUMS."""
    key: str = string("statsKey")
    """A topic, topic@group, or the cluster."""
