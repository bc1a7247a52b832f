"""Headers of requests between the brokers of a group about replication."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, header, int64, string

__all__ = ["ExchangeHaInfoHeader"]


@header
class ExchangeHaInfoHeader(Header):
    """EXCHANGE_BROKER_HA_INFO (906), request and answer; a request without fields is a query."""

    master_ha_address: str | None = string("masterHaAddress", default=None)
    """Address at which the master serves slaves."""
    master_flush_offset: int | None = int64("masterFlushOffset", default=None)
    master_address: str | None = string("masterAddress", default=None)
