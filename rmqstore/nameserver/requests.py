"""The answers of a nameserver: one method for each request code.

The handlers decode headers and bodies, call the route table and encode answers. The host provides
time, connections and files, and applies the effects.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from rmqstore.config import NameserverConfig, format_properties, parse_properties
from rmqstore.data_version import DataVersion
from rmqstore.errors import ConfigError, DiskError, RemotingFrameError, RequestRefused
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.request_table import ROWS
from rmqstore.nameserver.routes import Effect, Refused, Registration, RouteTable
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.tables import KvTable, TopicList
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.dispatch import FrameHandler, dispatched
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.kv import (
    ORDER_TOPICS,
    GetKvConfigResponseHeader,
    KvKeyRequestHeader,
    KvNamespaceRequestHeader,
    PutKvConfigRequestHeader,
)
from rmqstore.remoting.headers.registration import (
    BrokerHeartbeatRequestHeader,
    BrokerRequestHeader,
    GetBrokerMemberGroupRequestHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerRequestHeader,
    RegisterBrokerResponseHeader,
)
from rmqstore.remoting.headers.routes import (
    AddWritePermResponseHeader,
    DeleteTopicRequestHeader,
    GetRouteInfoRequestHeader,
    GetTopicsByClusterRequestHeader,
    RegisterTopicRequestHeader,
    WipeWritePermResponseHeader,
    WritePermRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler

__all__ = ["RUNNING_KEYS", "Host", "Requests"]

_STANDARD_JSON_FROM = 401
"""Clients from V4_9_4 on read standard JSON."""
_FIXED_KEYS = frozenset({"configBlackList", "configStorePath", "kvConfigPath"})
_START_KEYS = frozenset(
    {
        "bindAddress",
        "listenPort",
        "metricsExporterType",
        "metricsPromExporterHost",
        "metricsPromExporterPort",
        "serverChannelMaxIdleTimeSeconds",
    }
)
RUNNING_KEYS = (
    frozenset(about.key for about in NameserverConfig.options().values())
    - _START_KEYS
    - _FIXED_KEYS
)
"""Keys that may change while a nameserver runs."""

Log = logging.Logger | logging.LoggerAdapter[logging.Logger]


class Host(Protocol):
    """The part of the process that the handlers use."""

    config: NameserverConfig
    kv: KvConfig

    @property
    def log(self) -> Log:
        """The log, with the identity of the nameserver."""

    @property
    def age_ms(self) -> int:
        """The time since the start."""

    def now_ms(self) -> int:
        """Return the time of a monotonic clock."""

    def number_of(self, connection: Any) -> int:
        """Return the number of a connection, above the numbers of earlier connections."""

    def carry_out(self, effects: tuple[Effect, ...]) -> None:
        """Send notifications and close connections, after this call."""

    async def change_kv(self, change: Callable[[KvConfig], KvConfig]) -> None:
        """Change the key-value configuration; durable on return. Raises DiskError."""

    async def configure(self, changes: Mapping[str, str]) -> None:
        """Change settings, first in their file. Raises ConfigError, DiskError."""


class Requests:
    """The handlers of one nameserver."""

    def __init__(self, table: RouteTable, host: Host) -> None:
        self._table = table
        self._host = host

    def dispatched(self, **options: Any) -> dict[int, FrameHandler]:
        """Return the handlers of frames; see `rmqstore.remoting.dispatch.dispatched`."""
        fault = ResponseCode.SYSTEM_ERROR
        return dispatched(ROWS, self._handlers(), body_fault=fault, **options)

    def _handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._topics_of_cluster,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics(unit=True),
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_topics(unit_sub=True),
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_topics(
                unit=False, unit_sub=True
            ),
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_permission,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_permission,
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.GET_CLIENT_CONFIG: self._get_client_config,
        }

    # -- Brokers.

    def _register(self, call: Call[RegisterBrokerRequestHeader, bytes]) -> Frame:
        header = call.header
        _refuse_empty(
            brokerName=header.broker_name,
            brokerAddr=header.broker_address,
            clusterName=header.cluster_name,
        )
        if header.body_crc32 and header.body_crc32 != body_crc32(call.body):
            raise _refused("crc32 not match")
        try:
            body = RegisterBrokerBody.decode(
                call.body, compressed=header.compressed, version=call.request.version
            )
        except RemotingFrameError as error:
            raise _refused(f"the body of REGISTER_BROKER cannot be read: {error}") from error
        registration = Registration(
            header.cluster_name,
            header.broker_name,
            header.broker_id,
            header.broker_address,
            header.ha_address,
            header.zone_name,
            header.heartbeat_timeout_ms,
            header.enable_acting_master,
        )
        number = self._host.number_of(call.peer)
        is_known = self._table.version(header.broker_name, header.broker_address) is not None
        answer = self._table.register(
            registration, body, connection=number, now_ms=self._host.now_ms()
        )
        broker = f"{header.broker_name}:{header.broker_id} at {header.broker_address}"
        if isinstance(answer, Refused):
            self._host.log.warning("broker %s is refused: %s", broker, answer.reason)
            raise _refused(answer.reason)

        if not is_known:
            self._host.log.info(
                "broker %s registered with %d topics", broker, len(body.table.topics)
            )
        self._host.carry_out(answer.effects)
        fields = RegisterBrokerResponseHeader(
            ha_address=answer.ha_address, master_address=answer.master_address
        ).to_fields()
        order = self._host.kv.pairs(ORDER_TOPICS)
        is_returned = order is not None and self._host.config.return_order_topics
        order_body = KvTable(order).encode() if order is not None and is_returned else b""
        return call.respond(ResponseCode.SUCCESS, fields=fields, body=order_body)

    def _unregister(self, call: Call[BrokerRequestHeader, bytes]) -> Frame:
        header = call.header
        number = self._host.number_of(call.peer)
        known = self._table.version(header.broker_name, header.broker_address)
        self._host.carry_out(
            self._table.unregister(header.broker_name, header.broker_address, connection=number)
        )
        if known is not None:
            is_left = self._table.version(header.broker_name, header.broker_address) is None
            self._host.log.info(
                "broker %s at %s %s",
                header.broker_name,
                header.broker_address,
                "unregistered" if is_left else "stays registered: it has used a later connection",
            )
        return call.respond(ResponseCode.SUCCESS)

    def _query_data_version(self, call: Call[BrokerRequestHeader, DataVersion]) -> Frame:
        header = call.header
        self._seen(call.peer, header.broker_name, header.broker_address)
        known = self._table.version(header.broker_name, header.broker_address)
        fields = QueryDataVersionResponseHeader(changed=known != call.body).to_fields()
        body = b"" if known is None else fastjson.dumps(known.to_json())
        return call.respond(ResponseCode.SUCCESS, fields=fields, body=body)

    def _heartbeat(self, call: Call[BrokerHeartbeatRequestHeader, bytes]) -> Frame:
        header = call.header
        self._seen(call.peer, header.broker_name, header.broker_address)
        return call.respond(ResponseCode.SUCCESS)

    def _seen(self, connection: Any, name: str, address: str) -> None:
        number = self._host.number_of(connection)
        self._table.heartbeat(name, address, connection=number, now_ms=self._host.now_ms())

    def _member_group(self, call: Call[GetBrokerMemberGroupRequestHeader, bytes]) -> Frame:
        header = call.header
        group = self._table.member_group(header.cluster_name, header.broker_name)
        return call.respond(ResponseCode.SUCCESS, body=group.encode())

    def _cluster_info(self, call: Call[Any, bytes]) -> Frame:
        return call.respond(ResponseCode.SUCCESS, body=self._table.cluster_info().encode())

    # -- Topics.

    def _route(self, call: Call[GetRouteInfoRequestHeader, bytes]) -> Frame:
        config = self._host.config
        if config.wait_for_service and self._host.age_ms < config.wait_for_service_seconds * 1000:
            raise _refused("name server not ready")

        header = call.header
        zone = header.zone_name if header.zone_mode and header.zone_name else None
        route = self._table.route(header.topic, zone=zone)
        if route is None:
            raise RequestRefused(
                f"No topic route info in name server for the topic: {header.topic}\n"
                "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.",
                code=ResponseCode.TOPIC_NOT_EXIST,
            )
        if config.order_topics:
            route = replace(route, order_conf=self._host.kv.get(ORDER_TOPICS, header.topic))
        is_standard = (
            call.request.version >= _STANDARD_JSON_FROM or header.accept_standard_json_only
        )
        body = route.encode(standard=bool(is_standard))
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _register_topic(self, call: Call[RegisterTopicRequestHeader, TopicRoute]) -> Frame:
        header = call.header
        _refuse_empty(topic=header.topic)
        queues = call.body.queues
        if queues and not self._table.register_topic(header.topic, queues):
            self._host.log.warning(
                "topic %s is not registered: one of its brokers is unknown", header.topic
            )
        return call.respond(ResponseCode.SUCCESS)

    def _delete_topic(self, call: Call[DeleteTopicRequestHeader, bytes]) -> Frame:
        header = call.header
        self._table.delete_topic(header.topic, cluster=header.cluster_name)
        self._host.log.info(
            "topic %s deleted, cluster %s", header.topic, header.cluster_name or "any"
        )
        return call.respond(ResponseCode.SUCCESS)

    def _all_topics(self, call: Call[Any, bytes]) -> Frame:
        return self._topics(call, self._table.topics, self._host.config.all_topic_list)

    def _topics_of_cluster(self, call: Call[GetTopicsByClusterRequestHeader, bytes]) -> Frame:
        header = call.header
        return self._topics(
            call,
            lambda: self._table.topics_of_cluster(header.cluster),
            self._host.config.topic_list,
        )

    def _system_topics(self, call: Call[Any, bytes]) -> Frame:
        return self._topics(call, self._table.system_topics, True)

    def _unit_topics(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> Handler:
        def handle(call: Call[Any, bytes]) -> Frame:
            return self._topics(
                call,
                lambda: self._table.unit_topics(unit=unit, unit_sub=unit_sub),
                self._host.config.topic_list,
            )

        return handle

    def _topics(
        self, call: Call[Any, bytes], find: Callable[[], TopicList], is_enabled: bool
    ) -> Frame:
        if not is_enabled:
            raise _refused("disable")
        return call.respond(ResponseCode.SUCCESS, body=find().encode())

    def _wipe_write_permission(self, call: Call[WritePermRequestHeader, bytes]) -> Frame:
        header = call.header
        count = self._table.wipe_write_permission(header.broker_name)
        self._host.log.info("write permission of %s wiped on %d topics", header.broker_name, count)
        fields = WipeWritePermResponseHeader(topic_count=count).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    def _add_write_permission(self, call: Call[WritePermRequestHeader, bytes]) -> Frame:
        header = call.header
        count = self._table.add_write_permission(header.broker_name)
        self._host.log.info("write permission of %s added on %d topics", header.broker_name, count)
        fields = AddWritePermResponseHeader(topic_count=count).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    # -- Key-value configuration.

    async def _put_kv(self, call: Call[PutKvConfigRequestHeader, bytes]) -> Frame:
        header = call.header
        return await self._change_kv(
            call, lambda kv: kv.put(header.namespace, header.key, header.value)
        )

    async def _delete_kv(self, call: Call[KvKeyRequestHeader, bytes]) -> Frame:
        header = call.header
        return await self._change_kv(call, lambda kv: kv.delete(header.namespace, header.key))

    async def _change_kv(
        self, call: Call[Any, bytes], change: Callable[[KvConfig], KvConfig]
    ) -> Frame:
        try:
            await self._host.change_kv(change)
        except (DiskError, ConfigError) as error:
            raise _refused(f"the key-value configuration is unchanged: {error}") from error
        return call.respond(ResponseCode.SUCCESS)

    def _get_kv(self, call: Call[KvKeyRequestHeader, bytes]) -> Frame:
        header = call.header
        value = self._host.kv.get(header.namespace, header.key)
        if value is None:
            raise _not_found(f"Namespace: {header.namespace} Key: {header.key}")
        fields = GetKvConfigResponseHeader(value=value).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    def _kv_list(self, call: Call[KvNamespaceRequestHeader, bytes]) -> Frame:
        header = call.header
        pairs = self._host.kv.pairs(header.namespace)
        if pairs is None:
            raise _not_found(f"Namespace: {header.namespace}")
        return call.respond(ResponseCode.SUCCESS, body=KvTable(pairs).encode())

    # -- Configuration.

    async def _update_config(self, call: Call[Any, Mapping[str, str]]) -> Frame:
        config, changes = self._host.config, call.body
        if not _FIXED_KEYS.union(config.config_black_list).isdisjoint(changes):
            raise RequestRefused(
                "Can not update config in black list.", code=ResponseCode.NO_PERMISSION
            )
        at_start = sorted(_START_KEYS & changes.keys())
        if at_start:
            raise _refused(
                f"{', '.join(at_start)}: a new value takes effect only at a start; change it in "
                "the nameserver's file and start the nameserver again"
            )
        try:
            await self._host.configure(changes)
        except ConfigError as error:
            raise _refused("; ".join(error.violations)) from error
        except DiskError as error:
            raise _refused(f"the configuration is unchanged: {error}") from error
        return call.respond(ResponseCode.SUCCESS)

    def _get_config(self, call: Call[Any, bytes]) -> Frame:
        body = self._host.config.to_properties().encode()
        return call.respond(ResponseCode.SUCCESS, body=body)

    def _get_client_config(self, call: Call[Any, tuple[str, ...]]) -> Frame:
        pairs = parse_properties(self._host.config.to_properties())
        found = {key: pairs[key] for key in call.body if key in pairs}
        return call.respond(ResponseCode.SUCCESS, body=format_properties(found).encode())


def _refuse_empty(**fields: str) -> None:
    for key, value in fields.items():
        if not value:
            raise _refused(f"field {key} is empty: send a text")


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.SYSTEM_ERROR)


def _not_found(key: str) -> RequestRefused:
    return RequestRefused(f"No config item, {key}", code=ResponseCode.QUERY_NOT_FOUND)
