"""The answers of a nameserver: one method for each request code.

The handlers decode headers and bodies, call the route table and encode answers. The host provides
time, connections and files, and applies the effects.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from rmqstore.config import NameserverConfig, format_properties, parse_properties, with_changes
from rmqstore.errors import ConfigError, DiskError, RemotingFrameError, RequestRefused
from rmqstore.nameserver.kv import KvConfig
from rmqstore.nameserver.routes import Effect, Refused, Registration, RouteTable
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.data_version import DataVersion
from rmqstore.remoting.bodies.registration import RegisterBrokerBody, body_crc32
from rmqstore.remoting.bodies.route import TopicRoute
from rmqstore.remoting.bodies.tables import KvTable, TopicList
from rmqstore.remoting.bodies.values import object_of, texts_of
from rmqstore.remoting.codes import RequestCode, ResponseCode
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
Handler = Callable[[Any, Frame], Awaitable[Frame] | Frame]
T = TypeVar("T")


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

    async def configure(self, config: NameserverConfig, changes: Mapping[str, str]) -> None:
        """Replace the configuration, and write *changes* to its file. Raises DiskError."""


class Requests:
    """The handlers of one nameserver."""

    def __init__(self, table: RouteTable, host: Host) -> None:
        self._table = table
        self._host = host

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
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

    def _register(self, connection: Any, request: Frame) -> Frame:
        header = RegisterBrokerRequestHeader.from_fields(request.ext_fields)
        _refuse_empty(
            brokerName=header.broker_name,
            brokerAddr=header.broker_address,
            clusterName=header.cluster_name,
        )
        if header.body_crc32 and header.body_crc32 != body_crc32(request.body):
            raise _refused("crc32 not match")
        body = _read(
            "REGISTER_BROKER",
            lambda: RegisterBrokerBody.decode(
                request.body, compressed=header.compressed, version=request.version
            ),
        )
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
        number = self._host.number_of(connection)
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
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=order_body)

    def _unregister(self, connection: Any, request: Frame) -> Frame:
        header = BrokerRequestHeader.from_fields(request.ext_fields)
        number = self._host.number_of(connection)
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
        return request.respond(ResponseCode.SUCCESS)

    def _query_data_version(self, connection: Any, request: Frame) -> Frame:
        header = BrokerRequestHeader.from_fields(request.ext_fields)
        version = _read(
            "QUERY_DATA_VERSION", lambda: DataVersion.of(fastjson.loads(request.body or b"null"))
        )
        self._seen(connection, header.broker_name, header.broker_address)
        known = self._table.version(header.broker_name, header.broker_address)
        fields = QueryDataVersionResponseHeader(changed=known != version).to_fields()
        body = b"" if known is None else fastjson.dumps(known.to_json())
        return request.respond(ResponseCode.SUCCESS, fields=fields, body=body)

    def _heartbeat(self, connection: Any, request: Frame) -> Frame:
        header = BrokerHeartbeatRequestHeader.from_fields(request.ext_fields)
        self._seen(connection, header.broker_name, header.broker_address)
        return request.respond(ResponseCode.SUCCESS)

    def _seen(self, connection: Any, name: str, address: str) -> None:
        number = self._host.number_of(connection)
        self._table.heartbeat(name, address, connection=number, now_ms=self._host.now_ms())

    def _member_group(self, connection: Any, request: Frame) -> Frame:
        header = GetBrokerMemberGroupRequestHeader.from_fields(request.ext_fields)
        group = self._table.member_group(header.cluster_name, header.broker_name)
        return request.respond(ResponseCode.SUCCESS, body=group.encode())

    def _cluster_info(self, connection: Any, request: Frame) -> Frame:
        return request.respond(ResponseCode.SUCCESS, body=self._table.cluster_info().encode())

    # -- Topics.

    def _route(self, connection: Any, request: Frame) -> Frame:
        config = self._host.config
        if config.wait_for_service and self._host.age_ms < config.wait_for_service_seconds * 1000:
            raise _refused("name server not ready")

        header = GetRouteInfoRequestHeader.from_fields(request.ext_fields)
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
        is_standard = request.version >= _STANDARD_JSON_FROM or header.accept_standard_json_only
        body = route.encode(standard=bool(is_standard))
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _register_topic(self, connection: Any, request: Frame) -> Frame:
        header = RegisterTopicRequestHeader.from_fields(request.ext_fields)
        _refuse_empty(topic=header.topic)
        route = _read(
            "REGISTER_TOPIC_IN_NAMESRV", lambda: TopicRoute.decode(request.body or b"null")
        )
        if route.queues and not self._table.register_topic(header.topic, route.queues):
            self._host.log.warning(
                "topic %s is not registered: one of its brokers is unknown", header.topic
            )
        return request.respond(ResponseCode.SUCCESS)

    def _delete_topic(self, connection: Any, request: Frame) -> Frame:
        header = DeleteTopicRequestHeader.from_fields(request.ext_fields)
        self._table.delete_topic(header.topic, cluster=header.cluster_name)
        self._host.log.info(
            "topic %s deleted, cluster %s", header.topic, header.cluster_name or "any"
        )
        return request.respond(ResponseCode.SUCCESS)

    def _all_topics(self, connection: Any, request: Frame) -> Frame:
        return self._topics(request, self._table.topics, self._host.config.all_topic_list)

    def _topics_of_cluster(self, connection: Any, request: Frame) -> Frame:
        header = GetTopicsByClusterRequestHeader.from_fields(request.ext_fields)
        return self._topics(
            request,
            lambda: self._table.topics_of_cluster(header.cluster),
            self._host.config.topic_list,
        )

    def _system_topics(self, connection: Any, request: Frame) -> Frame:
        return self._topics(request, self._table.system_topics, True)

    def _unit_topics(self, *, unit: bool | None = None, unit_sub: bool | None = None) -> Handler:
        def handle(connection: Any, request: Frame) -> Frame:
            return self._topics(
                request,
                lambda: self._table.unit_topics(unit=unit, unit_sub=unit_sub),
                self._host.config.topic_list,
            )

        return handle

    def _topics(self, request: Frame, find: Callable[[], TopicList], is_enabled: bool) -> Frame:
        if not is_enabled:
            raise _refused("disable")
        return request.respond(ResponseCode.SUCCESS, body=find().encode())

    def _wipe_write_permission(self, connection: Any, request: Frame) -> Frame:
        header = WritePermRequestHeader.from_fields(request.ext_fields)
        count = self._table.wipe_write_permission(header.broker_name)
        self._host.log.info("write permission of %s wiped on %d topics", header.broker_name, count)
        fields = WipeWritePermResponseHeader(topic_count=count).to_fields()
        return request.respond(ResponseCode.SUCCESS, fields=fields)

    def _add_write_permission(self, connection: Any, request: Frame) -> Frame:
        header = WritePermRequestHeader.from_fields(request.ext_fields)
        count = self._table.add_write_permission(header.broker_name)
        self._host.log.info("write permission of %s added on %d topics", header.broker_name, count)
        fields = AddWritePermResponseHeader(topic_count=count).to_fields()
        return request.respond(ResponseCode.SUCCESS, fields=fields)

    # -- Key-value configuration.

    async def _put_kv(self, connection: Any, request: Frame) -> Frame:
        header = PutKvConfigRequestHeader.from_fields(request.ext_fields)
        return await self._change_kv(
            request, lambda kv: kv.put(header.namespace, header.key, header.value)
        )

    async def _delete_kv(self, connection: Any, request: Frame) -> Frame:
        header = KvKeyRequestHeader.from_fields(request.ext_fields)
        return await self._change_kv(request, lambda kv: kv.delete(header.namespace, header.key))

    async def _change_kv(self, request: Frame, change: Callable[[KvConfig], KvConfig]) -> Frame:
        try:
            await self._host.change_kv(change)
        except (DiskError, ConfigError) as error:
            raise _refused(f"the key-value configuration is unchanged: {error}") from error
        return request.respond(ResponseCode.SUCCESS)

    def _get_kv(self, connection: Any, request: Frame) -> Frame:
        header = KvKeyRequestHeader.from_fields(request.ext_fields)
        value = self._host.kv.get(header.namespace, header.key)
        if value is None:
            raise _not_found(f"Namespace: {header.namespace} Key: {header.key}")
        fields = GetKvConfigResponseHeader(value=value).to_fields()
        return request.respond(ResponseCode.SUCCESS, fields=fields)

    def _kv_list(self, connection: Any, request: Frame) -> Frame:
        header = KvNamespaceRequestHeader.from_fields(request.ext_fields)
        pairs = self._host.kv.pairs(header.namespace)
        if pairs is None:
            raise _not_found(f"Namespace: {header.namespace}")
        return request.respond(ResponseCode.SUCCESS, body=KvTable(pairs).encode())

    # -- Configuration.

    async def _update_config(self, connection: Any, request: Frame) -> Frame:
        text = _read("UPDATE_NAMESRV_CONFIG", lambda: _properties_text(request.body))
        config = self._host.config
        changes = _read("UPDATE_NAMESRV_CONFIG", lambda: _parsed(text))
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
            await self._host.configure(with_changes(config, changes), changes)
        except ConfigError as error:
            raise _refused("; ".join(error.violations)) from error
        except DiskError as error:
            raise _refused(f"the configuration is unchanged: {error}") from error
        return request.respond(ResponseCode.SUCCESS)

    def _get_config(self, connection: Any, request: Frame) -> Frame:
        body = self._host.config.to_properties().encode()
        return request.respond(ResponseCode.SUCCESS, body=body)

    def _get_client_config(self, connection: Any, request: Frame) -> Frame:
        keys = _read(
            "GET_CLIENT_CONFIG",
            lambda: texts_of(
                object_of(fastjson.loads(request.body or b"null"), "keys").get("keys"), "keys"
            ),
        )
        pairs = parse_properties(self._host.config.to_properties())
        found = {key: pairs[key] for key in keys if key in pairs}
        return request.respond(ResponseCode.SUCCESS, body=format_properties(found).encode())


def _refuse_empty(**fields: str) -> None:
    for key, value in fields.items():
        if not value:
            raise _refused(f"field {key} is empty: send a text")


def _read(request: str, read: Callable[[], T]) -> T:
    """Returns the result of *read*. Raises RequestRefused for a body that cannot be read."""
    try:
        return read()
    except RemotingFrameError as error:
        raise _refused(f"the body of {request} cannot be read: {error}") from error


def _properties_text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise RemotingFrameError(f"it is not UTF-8: {error}") from error


def _parsed(text: str) -> dict[str, str]:
    try:
        return parse_properties(text)
    except ValueError as error:
        raise RemotingFrameError(str(error)) from error


def _refused(remark: str) -> RequestRefused:
    return RequestRefused(remark, code=ResponseCode.SYSTEM_ERROR)


def _not_found(key: str) -> RequestRefused:
    return RequestRefused(f"No config item, {key}", code=ResponseCode.QUERY_NOT_FOUND)
