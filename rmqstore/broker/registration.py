"""What a broker writes to nameservers, and what it reads in their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rmqstore.broker.membership.roles import Role
from rmqstore.data_version import DataVersion
from rmqstore.permissions import PERM_READ_WRITE
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.cluster import BrokerMemberGroup
from rmqstore.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.topic_config import TopicConfig, TopicTable
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.registration import (
    BrokerHeartbeatRequestHeader,
    BrokerRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
)
from rmqstore.remoting.headers.routes import GetRouteInfoRequestHeader
from rmqstore.store.metadata import TopicTable as KeptTopics

__all__ = [
    "MEMBER_TOPIC_PREFIX",
    "Announcement",
    "announced_id",
    "announced_until_ms",
    "bodies_of",
    "is_changed",
]

MEMBER_TOPIC_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
"""Before the name of a group: the topic whose route shows its members at any nameserver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a broker is at one moment, as nameservers are to know it."""

    cluster_name: str
    name: str
    broker_id: int
    """0 for a master."""
    address: str
    ha_address: str
    acting_master: bool
    """Whether a slave may stand in for the master: enableSlaveActingMaster."""
    timeout_ms: int | None
    """Time without a sign of life after which the broker is forgotten; None for the nameserver's
    default."""
    body: bytes
    """Of the registration: the topics."""
    version: bytes
    """The version of the topics, as JSON."""

    def registration(self) -> Frame:
        """Return REGISTER_BROKER."""
        header = RegisterBrokerRequestHeader(
            broker_name=self.name,
            broker_address=self.address,
            cluster_name=self.cluster_name,
            ha_address=self.ha_address,
            broker_id=self.broker_id,
            heartbeat_timeout_ms=self.timeout_ms,
            enable_acting_master=self.acting_master,
            body_crc32=body_crc32(self.body),
        )
        return Frame.request(RequestCode.REGISTER_BROKER, header.to_fields(), self.body)

    def unregistration(self) -> Frame:
        """Return UNREGISTER_BROKER."""
        return Frame.request(RequestCode.UNREGISTER_BROKER, self._broker().to_fields())

    def version_query(self) -> Frame:
        """Return QUERY_DATA_VERSION, which is a sign of life for old nameservers, too."""
        fields = self._broker().to_fields()
        return Frame.request(RequestCode.QUERY_DATA_VERSION, fields, self.version)

    def heartbeat(self, *, compatible: bool) -> Frame:
        """Return the sign of life, which is sent one-way; *compatible* with old nameservers."""
        if compatible:
            return self.version_query()
        header = BrokerHeartbeatRequestHeader(
            cluster_name=self.cluster_name,
            broker_address=self.address,
            broker_name=self.name,
        )
        return Frame.request(RequestCode.BROKER_HEARTBEAT, header.to_fields())

    def member_query(self, *, compatible: bool) -> Frame:
        """Return the question for the living members of the group; *compatible* with old
        nameservers."""
        if compatible:
            topic = GetRouteInfoRequestHeader(topic=MEMBER_TOPIC_PREFIX + self.name)
            return Frame.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic.to_fields())
        group = GetBrokerMemberGroupRequestHeader(
            cluster_name=self.cluster_name, broker_name=self.name
        )
        return Frame.request(RequestCode.GET_BROKER_MEMBER_GROUP, group.to_fields())

    def members(self, answer: Frame, *, compatible: bool) -> Mapping[int, str]:
        """Return the members that the answer to such a question names, addresses by id; none where
        the nameserver does not know the group. Raises RemotingError."""
        if not compatible:
            return BrokerMemberGroup.decode(answer.raise_for_code().body).addresses
        answer.raise_for_code(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            return {}
        for each in TopicRoute.decode(answer.body).brokers:
            if (each.cluster, each.broker_name) == (self.cluster_name, self.name):
                return each.addresses
        return {}

    def _broker(self) -> BrokerRequestHeader:
        return BrokerRequestHeader(
            broker_name=self.name,
            broker_address=self.address,
            cluster_name=self.cluster_name,
            broker_id=self.broker_id,
        )


def announced_until_ms(role: Role, *, leads: bool, lease_end_ms: int | None) -> int | None:
    """Return when a broker with *role* may no longer be announced as the master; None for a slave,
    and for a master without a lease.

    *leads*: whether its replica still is the master. The role of a replica ends some time before
    the role of its broker: the log is synced meanwhile.
    """
    if not role.is_master:
        return None
    return lease_end_ms if leads else 0


def announced_id(role: Role, *, lease_end_ms: int | None, now_ms: int) -> int | None:
    """Return the id by which nameservers are to know a broker, None while it has no role and does
    not search for its master.

    Another master may have been elected since *lease_end_ms*, None for a master without a lease.
    From then on a master is registered as a slave, by its own id: consumers may read from it, no
    producer sends to it, and it does not stand in the place of the other master.
    """
    if not role.is_known:
        return None if not role.is_searching else role.broker_id
    if role.is_master and lease_end_ms is not None and now_ms >= lease_end_ms:
        return role.broker_id
    return role.registered_id


def is_changed(answer: Frame) -> bool:
    """Return whether the answer to QUERY_DATA_VERSION requires a registration."""
    if answer.code != ResponseCode.SUCCESS:
        return True
    return QueryDataVersionResponseHeader.from_fields(answer.ext_fields).changed


def bodies_of(table: KeptTopics, *, permission: int) -> tuple[bytes, bytes]:
    """Return the body of a registration and the version of its topics, as JSON; no topic allows
    what *permission* of the broker does not."""
    is_whole = permission & PERM_READ_WRITE == PERM_READ_WRITE
    topics = {
        name: TopicConfig(
            name,
            topic.read_queue_count,
            topic.write_queue_count,
            topic.perm if is_whole else topic.perm & permission,
            topic.sys_flag,
            topic.filter_type,
            topic.order,
            topic.attributes,
        )
        for name, topic in table.topics.items()
    }
    kept = table.data_version
    # Nameservers look at topics again only under another version.
    time_ms = kept.timestamp_ms - (PERM_READ_WRITE - permission)
    version = DataVersion(
        counter=kept.counter, state_version=kept.state_version, timestamp_ms=time_ms
    )
    body = RegisterBrokerBody(TopicTable(version, topics), filter_servers=()).encode()
    return body, fastjson.dumps(version.to_json())
