"""Headers of the requests that register, refresh and unregister brokers at a nameserver."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string

__all__ = [
    "BrokerHeartbeatRequestHeader",
    "BrokerRequestHeader",
    "GetBrokerMemberGroupRequestHeader",
    "NotifyMinBrokerIdChangeRequestHeader",
    "QueryDataVersionResponseHeader",
    "RegisterBrokerRequestHeader",
    "RegisterBrokerResponseHeader",
]


@header
class RegisterBrokerRequestHeader(Header):
    """REGISTER_BROKER (103)."""

    broker_name: str = string("brokerName")
    broker_address: str = string("brokerAddr")
    cluster_name: str = string("clusterName")
    ha_address: str = string("haServerAddr", default="")
    broker_id: int = int64("brokerId")
    heartbeat_timeout_ms: int | None = int64("heartbeatTimeoutMillis", default=None)
    enable_acting_master: bool | None = boolean("enableActingMaster", default=None)
    """None from a broker before 5.0."""
    compressed: bool = boolean("compressed", default=False)
    body_crc32: int = int32("bodyCrc32", default=0)
    """CRC-32 of the body as sent, without the sign bit; 0 is not compared."""
    zone_name: str | None = string("__ZONE_NAME", default=None)


@header
class RegisterBrokerResponseHeader(Header):
    """The live master of a slave. Both fields are absent for a master, and without a live
    master."""

    ha_address: str | None = string("haServerAddr", default=None)
    master_address: str | None = string("masterAddr", default=None)


@header
class BrokerRequestHeader(Header):
    """Names one broker: UNREGISTER_BROKER (104) and QUERY_DATA_VERSION (322)."""

    broker_name: str = string("brokerName")
    broker_address: str = string("brokerAddr")
    cluster_name: str = string("clusterName")
    broker_id: int = int64("brokerId")


@header
class QueryDataVersionResponseHeader(Header):
    """Whether the broker's version differs from the version that it registered."""

    changed: bool = boolean("changed")


@header
class GetBrokerMemberGroupRequestHeader(Header):
    """GET_BROKER_MEMBER_GROUP (901)."""

    cluster_name: str = string("clusterName")
    broker_name: str = string("brokerName")


@header
class BrokerHeartbeatRequestHeader(Header):
    """BROKER_HEARTBEAT (904). A nameserver gets the first three fields, a controller all."""

    cluster_name: str = string("clusterName")
    broker_address: str = string("brokerAddr")
    broker_name: str = string("brokerName")
    broker_id: int | None = int64("brokerId", default=None)
    epoch: int | None = int32("epoch", default=None)
    max_offset: int | None = int64("maxOffset", default=None)
    confirm_offset: int | None = int64("confirmOffset", default=None)
    heartbeat_timeout_ms: int | None = int64("heartbeatTimeoutMills", default=None)
    """Spelled as Java spells it: Mills here, Millis in a registration."""
    election_priority: int | None = int32("electionPriority", default=None)


@header
class NotifyMinBrokerIdChangeRequestHeader(Header):
    """NOTIFY_MIN_BROKER_ID_CHANGE (905), from the nameserver to brokers, one-way."""

    min_broker_id: int | None = int64("minBrokerId", default=None)
    broker_name: str | None = string("brokerName", default=None)
    """Java's nameserver does not send it."""
    min_broker_address: str | None = string("minBrokerAddr", default=None)
    offline_broker_address: str | None = string("offlineBrokerAddr", default=None)
    ha_broker_address: str | None = string("haBrokerAddr", default=None)
