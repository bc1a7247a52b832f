"""A transactional producer of a simulated cluster.

It ends some transactions once their half message is acknowledged, and some twice. Others wait for
the question of the broker. It rolls back a transaction whose half message was not acknowledged.
"""

from __future__ import annotations

from rmqstore.message import encode_properties, parse_message_id
from rmqstore.remoting.bodies.clients import HeartbeatData
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.connection import RemotingConnection
from rmqstore.remoting.dispatch import FrameHandler
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rmqstore.remoting.headers.transactions import (
    CheckTransactionStateRequestHeader,
    EndTransactionRequestHeader,
)
from rmqstore.sim.clients import Answer, Client
from rmqstore.sim.registrar import TOPIC

__all__ = ["TransactionalProducer"]

_GROUP = "transactional writers"
_SEND_MS = 900
_BEAT_MS = 800
_AT_ONCE = 4
_COMMIT, _ROLLBACK = 8, 12
_ASKED, _TWICE = 0.4, 0.3
"""Shares of the transactions that wait for a question, and of the others that are ended twice."""


class TransactionalProducer(Client):
    """Sends half messages, and ends their transactions."""

    _count = 0
    _open = 0

    def start(self) -> None:
        """Begin to follow the route, and to be known to the master."""
        super().start()
        self._decisions: dict[str, int] = {}
        """By the keys of half messages."""
        self._beat()

    def _handlers(self) -> dict[int, FrameHandler]:
        return {RequestCode.CHECK_TRANSACTION_STATE: self._asked}

    def _beat(self) -> None:
        self._timeline.after(_BEAT_MS * 1000, self._beat)
        master = self._master()
        if master is not None:
            body = HeartbeatData(client_id=str(self.number), producers=(_GROUP,)).encode()
            self._call(master, Frame(RequestCode.HEART_BEAT, body=body), _SEND_MS, lambda _: None)

    def send(self) -> None:
        """Send a half message, unless too many are in progress."""
        master = self._master()
        if self._open >= _AT_ONCE or master is None:
            return
        self._open += 1
        self._count += 1
        key = f"{self.number}-{self._count}"
        properties = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": _GROUP}
        header = SendMessageRequestHeaderV2(
            producer_group=_GROUP,
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queues=2,
            queue_id=self._rng.randrange(2),
            sys_flag=4,
            born_timestamp_ms=0,
            flag=0,
            properties=encode_properties(properties),
        )
        request = Frame.request(RequestCode.SEND_MESSAGE_V2, header.to_fields(), b"half")
        warnings = self._record.warnings
        self._call(
            master, request, _SEND_MS, lambda answer: self._sent(key, master, answer, warnings)
        )

    def _sent(self, key: str, master: str, answer: Answer, warnings: int) -> None:
        self._open -= 1
        if not isinstance(answer, Frame) or answer.code != ResponseCode.SUCCESS:
            return
        found = SendMessageResponseHeader.from_fields(answer.ext_fields)
        # An operator may have given up, since the request, what a former master acknowledged.
        if warnings == self._record.warnings:
            self._record.half_sent(key, topic=TOPIC, queue_offset=found.queue_offset)
        chosen = self._rng.choice((_COMMIT, _ROLLBACK))
        # The broker may have asked before its answer came.
        decision = self._decisions.setdefault(key, chosen)
        if self._rng.random() < _ASKED:
            return
        physical_offset = parse_message_id(found.message_id).physical_offset
        end = self._end(key, found.queue_offset, physical_offset, decision)
        for _ in range(1 + (self._rng.random() < _TWICE)):
            self._call(master, end, _SEND_MS, lambda _: None)

    def _end(self, key: str, queue_offset: int, physical_offset: int, decision: int) -> Frame:
        self._record.decided(key, is_committed=decision == _COMMIT)
        header = EndTransactionRequestHeader(
            producer_group=_GROUP,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            decision=decision,
        )
        return Frame.request(RequestCode.END_TRANSACTION, header.to_fields())

    async def _asked(self, connection: RemotingConnection, request: Frame) -> None:
        header = CheckTransactionStateRequestHeader.from_fields(request.ext_fields)
        key = header.transaction_id or ""
        decision = self._decisions.setdefault(key, _ROLLBACK)
        end = self._end(key, header.queue_offset, header.physical_offset, decision)
        connection.send(end.with_opaque(0, is_one_way=True))
