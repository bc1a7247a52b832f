"""The requests of an operator to brokers, under the names of mqadmin.

    async with BrokerAdmin("10.0.0.1:9876") as admin:
        await admin.update_topic(TopicConfig("orders", 4, 4), await admin.masters("DefaultCluster"))

Brokers are named by their addresses, or found by their cluster at the nameservers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rmqstore.admin.clients import ClientAdmin
from rmqstore.admin.files import FileAdmin
from rmqstore.admin.progress import ProgressAdmin
from rmqstore.admin.servers import Change
from rmqstore.config import format_properties, parse_properties
from rmqstore.errors import ArgumentError, NotFoundError, RemotingFrameError
from rmqstore.message import MessageId, parse_message_id
from rmqstore.net.addresses import format_address
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.messages import StoredMessage, decode_messages
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.statistics import (
    ConsumeStats,
    QueueProgress,
    QueueStats,
    TopicStats,
)
from rmqstore.remoting.bodies.values import object_of
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.headers.administration import (
    ConsumeStatsRequestHeader,
    CreateTopicRequestHeader,
    DeleteGroupRequestHeader,
    OneTopicRequestHeader,
)
from rmqstore.remoting.headers.queries import QueryMessageRequestHeader, ViewMessageRequestHeader
from rmqstore.remoting.headers.routes import DeleteTopicRequestHeader
from rmqstore.store.metadata import GroupConfig, TopicConfig
from rmqstore.topic_names import RETRY_PREFIX
from rmqstore.typed_calls import typed

__all__ = ["BrokerAdmin"]

_TEMPLATE = "TBW102"
_ALWAYS_MS = (1 << 63) - 1


@typed()
class BrokerAdmin(ClientAdmin, ProgressAdmin, FileAdmin):
    """Sends requests to brokers that the nameservers at *addresses* know.

    The calls raise RemotingError where a server does not answer or refuses, NotFoundError for
    names that no nameserver knows.
    """

    # -- topics

    async def update_topic(
        self, topic: TopicConfig, brokers: Sequence[str], *, attributes: str = ""
    ) -> Sequence[Change]:
        """Create or change a topic at *brokers*; *attributes* as in +message.type=FIFO,-x."""
        header = CreateTopicRequestHeader(
            topic=topic.name,
            default_topic=_TEMPLATE,
            read_queues=topic.read_queue_count,
            write_queues=topic.write_queue_count,
            perm=topic.perm,
            filter_type=topic.filter_type,
            sys_flag=topic.sys_flag,
            order=topic.order,
            attributes=attributes or None,
        )
        return await self._change_at(
            brokers, RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_fields()
        )

    async def delete_topic(self, topic: str, cluster: str) -> Sequence[Change]:
        """Delete a topic at the masters of a cluster, then at the nameservers."""
        header = OneTopicRequestHeader(topic=topic)
        changes = await self._change_at(
            await self.masters(cluster), RequestCode.DELETE_TOPIC_IN_BROKER, header.to_fields()
        )
        of_route = DeleteTopicRequestHeader(topic=topic, cluster_name=cluster)
        return [
            *changes,
            *await self._change(RequestCode.DELETE_TOPIC_IN_NAMESRV, of_route.to_fields()),
        ]

    async def topic_status(self, topic: str) -> Mapping[QueueName, QueueStats]:
        """Return the bounds of every queue of a topic. Raises NotFoundError for an unknown one."""
        fields = OneTopicRequestHeader(topic=topic).to_fields()
        found: dict[QueueName, QueueStats] = {}
        for address in await self._route_masters(topic):
            answer = await self._call(address, RequestCode.GET_TOPIC_STATS_INFO, fields)
            found |= TopicStats.decode(answer.raise_for_code().body).queues
        return found

    # -- groups

    async def update_group(self, group: GroupConfig, brokers: Sequence[str]) -> Sequence[Change]:
        """Create or change a consumer group at *brokers*."""
        body = fastjson.dumps(group.members())
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        return await self._change_at(brokers, code, None, body)

    async def delete_group(
        self, group: str, brokers: Sequence[str], *, with_offsets: bool
    ) -> Sequence[Change]:
        """Delete a consumer group at *brokers*."""
        header = DeleteGroupRequestHeader(group=group, with_offsets=with_offsets)
        return await self._change_at(
            brokers, RequestCode.DELETE_SUBSCRIPTIONGROUP, header.to_fields()
        )

    async def consumer_progress(
        self, group: str, topic: str | None = None
    ) -> Mapping[QueueName, QueueProgress]:
        """Return the progress of a group in each queue, of one topic or of all.

        The brokers are those of the group's retry topic. Raises NotFoundError before the group's
        first consumer has started, because the retry topic does not exist yet.
        """
        header = ConsumeStatsRequestHeader(group=group, topic=topic)
        found: dict[QueueName, QueueProgress] = {}
        for address in await self._route_masters(RETRY_PREFIX + group):
            answer = await self._call(address, RequestCode.GET_CONSUME_STATS, header.to_fields())
            found |= ConsumeStats.decode(answer.raise_for_code().body).queues
        return found

    # -- messages

    async def message_by_id(self, topic: str, message_id: str) -> StoredMessage:
        """Return a message by its offset id, or by its unique key. Raises NotFoundError.

        Both have 32 digits in IPv4 networks. If an id names a broker of the topic's route, that
        broker looks it up; otherwise brokers search for the unique key.
        """
        place = _place_of(message_id)
        route = await self.topic_route(topic)
        brokers = {address for each in route.brokers for address in each.addresses.values()}
        if place is not None and format_address(place[:2]) in brokers:
            return await self._view(topic, place)
        found = await self._search(topic, message_id, messages_max=1, is_unique_key=True)
        if found:
            return found[0]
        if place is not None:
            return await self._view(topic, place)
        raise NotFoundError(f"topic {topic!r} has no message {message_id!r}")

    async def messages_by_key(
        self,
        topic: str,
        key: str,
        *,
        messages_max: int = 64,
        begin_ms: int = 0,
        end_ms: int = _ALWAYS_MS,
    ) -> Sequence[StoredMessage]:
        """Return the messages with a key, oldest first; at most *messages_max* of each broker."""
        return await self._search(
            topic, key, messages_max=messages_max, begin_ms=begin_ms, end_ms=end_ms
        )

    async def _view(self, topic: str, place: MessageId) -> StoredMessage:
        header = ViewMessageRequestHeader(topic=topic, physical_offset=place.physical_offset)
        address = format_address(place[:2])
        answer = await self._call(address, RequestCode.VIEW_MESSAGE_BY_ID, header.to_fields())
        messages = decode_messages(answer.body) if answer.code == ResponseCode.SUCCESS else []
        if not messages or messages[0].topic != topic:
            remark = answer.remark or "the message has another topic"
            raise NotFoundError(f"{address} has no such message of {topic!r}: {remark}")
        return messages[0]

    async def _search(
        self,
        topic: str,
        key: str,
        *,
        messages_max: int,
        begin_ms: int = 0,
        end_ms: int = _ALWAYS_MS,
        is_unique_key: bool = False,
    ) -> Sequence[StoredMessage]:
        """Returns the messages that the topic's brokers find, without other keys of equal hash."""
        header = QueryMessageRequestHeader(
            topic=topic,
            key=key,
            messages_max=messages_max,
            begin_ms=begin_ms,
            end_ms=end_ms,
            is_unique_key=is_unique_key,
        )
        found = []
        for address in await self._route_masters(topic):
            answer = await self._call(address, RequestCode.QUERY_MESSAGE, header.to_fields())
            if answer.code == ResponseCode.QUERY_NOT_FOUND:
                continue
            found += decode_messages(answer.raise_for_code().body)
        wanted = [
            each
            for each in found
            if each.topic == topic
            and (each.unique_key == key if is_unique_key else key in each.keys)
        ]
        return sorted(wanted, key=lambda each: each.store_timestamp_ms)

    # -- brokers

    async def broker_config(self, broker: str) -> Mapping[str, str]:
        """Return the configuration of a broker."""
        answer = (await self._call(broker, RequestCode.GET_BROKER_CONFIG)).raise_for_code()
        try:
            return parse_properties(answer.body.decode())
        except ValueError as error:
            raise RemotingFrameError(
                f"the configuration of {broker} cannot be read: {error}"
            ) from error

    async def update_broker_config(
        self, key: str, value: str, brokers: Sequence[str]
    ) -> Sequence[Change]:
        """Change one key of the configuration of *brokers*."""
        body = format_properties({key: value}).encode()
        return await self._change_at(brokers, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def ha_status(self, broker: str) -> Mapping[str, object]:
        """Return the replication state that a broker reports (HARuntimeInfo)."""
        answer = await self._call(broker, RequestCode.GET_BROKER_HA_STATUS)
        return object_of(fastjson.loads(answer.raise_for_code().body), "HARuntimeInfo")


def _place_of(message_id: str) -> MessageId | None:
    """Returns the broker and the offset in an offset id, None for any other text."""
    try:
        place = parse_message_id(message_id)
    except ArgumentError:
        return None
    return place if 0 < place.port < 65536 and place.physical_offset >= 0 else None
