"""Clients: HEART_BEAT (34), UNREGISTER_CLIENT (35), GET_CONSUMER_LIST_BY_GROUP (38) and
CHECK_CLIENT_CONFIG (46).

The members of a group are notified of each change (40), some milliseconds later: one notice stands
for all changes of that time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from rmqstore.broker.clients import Change, Client, ClientTable, ConsumerGroup
from rmqstore.broker.context import Context
from rmqstore.broker.operations.filters import filter_of
from rmqstore.errors import RequestRefused
from rmqstore.net.runtime import Timer
from rmqstore.remoting.bodies.clients import (
    CheckClientBody,
    ConsumerData,
    ConsumerList,
    HeartbeatData,
)
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import (
    ConsumerGroupRequestHeader,
    HeartbeatResponseHeader,
    UnregisterClientRequestHeader,
)
from rmqstore.remoting.requests import Call, Handler, Peer
from rmqstore.topic_names import RETRY_PREFIX

__all__ = ["ClientRequests"]

_SCAN_S = 10.0
_NOTICE_S = 0.005


class ClientRequests:
    """The handlers of requests about clients. From `start` to `stop`, silent clients expire and
    groups are notified."""

    def __init__(self, context: Context, clients: ClientTable) -> None:
        self._context = context
        self._clients = clients
        self._known: set[Peer] = set()
        self._mixed: set[str] = set()
        """The groups that are reported as mixed."""
        self._changes: dict[str, Change] = {}
        self._notice: Timer | None = None
        self._scan: Timer | None = None
        self._is_stopped = True

    def handlers(self) -> dict[int, Handler]:
        """Return every handler by request code."""
        return {
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.CHECK_CLIENT_CONFIG: self._check_client,
        }

    def start(self) -> None:
        """Look for silent clients from time to time."""
        self._is_stopped = False
        self._scan = self._context.runtime.later(_SCAN_S, self._scan_silent)

    def stop(self) -> None:
        """End the timers. A second call does nothing."""
        self._is_stopped = True
        for timer in (self._scan, self._notice):
            if timer is not None:
                timer.cancel()
        self._scan = self._notice = None

    # -- Heartbeats.

    async def _heartbeat(self, call: Call[Any, HeartbeatData]) -> Frame:
        data, connection = call.body, call.peer
        if not data.client_id:
            raise RequestRefused(
                "clientID is empty; send the id of the client", code=ResponseCode.INVALID_PARAMETER
            )
        client = Client(
            connection, data.client_id, call.request.language.name, call.request.version
        )
        is_changed = data.fingerprint == 0
        for consumer in data.consumers:
            is_changed |= await self._consumer_heard(consumer, client, data)
        if not connection.is_open:
            self._forget(connection)
            return call.respond(ResponseCode.SUCCESS)
        for group in data.producers:
            self._clients.register_producer(group, client)
        self._heard(connection)
        fields = HeartbeatResponseHeader(supports_v2=True, is_changed=is_changed).to_fields()
        return call.respond(ResponseCode.SUCCESS, fields=fields)

    async def _consumer_heard(
        self, consumer: ConsumerData, client: Client, data: HeartbeatData
    ) -> bool:
        """Registers a consumer; returns whether its client has to send its subscriptions."""
        metadata = self._context.metadata
        group = metadata.group(consumer.group) or await metadata.group_for(consumer.group)
        if group is None:
            return False  # As RocketMQ: its pulls are refused with the reason.
        if metadata.topic(RETRY_PREFIX + group.name) is None:
            with contextlib.suppress(RequestRefused):
                await metadata.retry_topic(group.name)
        known = self._clients.consumer_group(consumer.group)
        is_changed = known is None or known.fingerprint != data.fingerprint
        change = self._clients.register_consumer(
            consumer,
            client,
            fingerprint=data.fingerprint,
            keeps_subscriptions=data.is_without_subscriptions,
        )
        if not data.is_without_subscriptions:
            now_ms = self._context.wall_ms()
            metadata.filters.register(group.name, consumer.subscriptions, now_ms=now_ms)
        if change is not None and group.notices_enabled:
            self._notify((change,))
        self._report_mixed(consumer.group)
        return is_changed

    def _report_mixed(self, name: str) -> None:
        """Report once that the members of a group subscribe to different messages."""
        group = self._clients.consumer_group(name)
        if group is None or not group.is_mixed:
            self._mixed.discard(name)
        elif name not in self._mixed:
            self._mixed.add(name)
            self._context.log.warning(
                "consumers of the group %s subscribe to different messages, and miss some of them; "
                "give all members the same subscriptions: %s",
                name,
                "; ".join(sorted({_named(group, each) for each in group.members}))[:1000],
            )

    def _heard(self, connection: Peer) -> None:
        self._clients.heard(connection, now_ms=self._context.now_ms())
        if connection not in self._known:
            self._known.add(connection)
            connection.on_close(self._forget)

    def _forget(self, connection: Peer) -> None:
        self._known.discard(connection)
        groups = self._clients.groups_of(connection)
        self._notify(self._clients.forget(connection))
        self._without_members(*groups)

    def _without_members(self, *groups: str) -> None:
        """Have the expressions of those groups that have no members any more outdated."""
        for group in groups:
            if self._clients.consumer_group(group) is None:
                self._context.metadata.filters.unregister(group, now_ms=self._context.wall_ms())

    def _scan_silent(self) -> None:
        self.start()
        now_ms = self._context.now_ms()
        for connection in self._clients.silent(now_ms):
            self._forget(connection)
            connection.close("no heartbeat for the time of a client")

    def _unregister(self, call: Call[UnregisterClientRequestHeader, bytes]) -> Frame:
        header = call.header
        changes = self._clients.unregister(
            call.peer,
            producer_group=header.producer_group,
            consumer_group=header.consumer_group,
        )
        self._notify(changes)
        if header.consumer_group is not None:
            self._without_members(header.consumer_group)
        return call.respond(ResponseCode.SUCCESS, fields={})

    # -- Notices.

    def _notify(self, changes: Iterable[Change]) -> None:
        for change in changes:
            self._changes[change.group] = change
        if self._changes and self._notice is None and not self._is_stopped:
            self._notice = self._context.runtime.later(_NOTICE_S, self._send_notices)

    def _send_notices(self) -> None:
        self._notice = None
        changes, self._changes = self._changes, {}
        for group in changes:
            known = self._clients.consumer_group(group)
            config = self._context.metadata.group(group)
            if known is None or (config is not None and not config.notices_enabled):
                continue
            fields = ConsumerGroupRequestHeader(consumer_group=group).to_fields()
            notice = Frame.request(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, fields)
            for connection in tuple(known.members):
                # One that does not read rebalances from time to time by its own clock.
                if connection.is_writable:
                    connection.send(notice.with_opaque(0, is_one_way=True))

    # -- Questions.

    def _consumer_list(self, call: Call[ConsumerGroupRequestHeader, bytes]) -> Frame:
        header = call.header
        group = self._clients.consumer_group(header.consumer_group)
        if group is None:
            raise RequestRefused(
                f"no consumer for this group, {header.consumer_group}",
                code=ResponseCode.SYSTEM_ERROR,
            )
        ids = tuple(dict.fromkeys(each.client_id for each in group.members.values()))
        return call.respond(ResponseCode.SUCCESS, fields={}, body=ConsumerList(ids).encode())

    def _check_client(self, call: Call[Any, CheckClientBody]) -> Frame:
        subscription = call.body.subscription
        allows_sql = self._context.config.sql_filters
        filter_of(subscription.expression_type, subscription.expression, allows_sql=allows_sql)
        return call.respond(ResponseCode.SUCCESS)


def _named(group: ConsumerGroup, member: Peer) -> str:
    """Returns a member of a group with its subscriptions."""
    wanted = sorted(group.wanted.get(member, ()))
    topics = ", ".join(f"{topic} {expression or '*'}" for topic, expression in wanted)
    return f"{group.members[member].client_id}: {topics or 'nothing'}"
