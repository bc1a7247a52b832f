"""A producer of timer messages in a simulated cluster.

Each message names a time of its own, and is sent once. Some messages are recalled before their
time, or about then.
"""

from __future__ import annotations

from rmqstore.message import encode_properties
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.send import (
    RecallMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from rmqstore.sim.clients import Answer, Client
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.registrar import TOPIC

__all__ = ["TimedProducer"]

_SEND_MS = 900
_AT_ONCE = 4
_DELAY_MS = (100, 6000)
_RECALLED, _NAMED = 0.3, 0.5
"""Shares of the messages that are recalled, and of those that name a time instead of a delay."""


class TimedProducer(Client):
    """Sends timer messages, and recalls some."""

    recalls = 0
    """Messages that were recalled with success."""
    _count = 0
    _open = 0

    def start(self) -> None:
        """Begin to follow the route."""
        super().start()
        self._clock = MachineClock(self._timeline)

    def send(self) -> None:
        """Send a timer message, unless too many are in progress."""
        master = self._master()
        if self._open >= _AT_ONCE or master is None:
            return
        self._open += 1
        self._count += 1
        key, delay_ms = f"{self.number}-{self._count}", self._rng.randint(*_DELAY_MS)
        properties = {"UNIQ_KEY": key, "TIMER_DELAY_MS": str(delay_ms)}
        if self._rng.random() < _NAMED:
            # A clock of a broker that was set forward is past this time.
            due_ms = self._clock.wall_ms() + delay_ms
            properties = {"UNIQ_KEY": key, "TIMER_DELIVER_MS": str(due_ms)}
        header = SendMessageRequestHeaderV2(
            producer_group="timed writers",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queues=2,
            queue_id=self._rng.randrange(2),
            sys_flag=0,
            born_timestamp_ms=0,
            flag=0,
            properties=encode_properties(properties),
        )
        request = Frame.request(RequestCode.SEND_MESSAGE_V2, header.to_fields(), b"timed")
        warnings = self._record.warnings
        self._call(
            master, request, _SEND_MS, lambda answer: self._sent(key, delay_ms, answer, warnings)
        )

    def _sent(self, key: str, delay_ms: int, answer: Answer, warnings: int) -> None:
        self._open -= 1
        if not isinstance(answer, Frame) or answer.code != ResponseCode.SUCCESS:
            return
        # An operator may have given up, since the request, what a former master acknowledged.
        if warnings != self._record.warnings:
            return
        found = SendMessageResponseHeader.from_fields(answer.ext_fields)
        handle = found.recall_handle
        place = {"queue": found.queue_id, "queue_offset": found.queue_offset}
        self._record.timer_sent(key, topic=TOPIC, **place, waits=handle is not None)
        if handle is not None and self._rng.random() < _RECALLED:
            after_ms = self._rng.randint(0, delay_ms)
            self._timeline.after(after_ms * 1000, self._recall, key, handle)

    def _recall(self, key: str, handle: str) -> None:
        master = self._master()
        if master is None:
            return
        self._record.recalling(key)
        fields = RecallMessageRequestHeader(topic=TOPIC, handle=handle).to_fields()
        warnings = self._record.warnings

        def recalled(answer: Answer) -> None:
            is_success = isinstance(answer, Frame) and answer.code == ResponseCode.SUCCESS
            if is_success and warnings == self._record.warnings:
                self.recalls += 1
                self._record.recalled(key)

        request = Frame.request(RequestCode.RECALL_MESSAGE, fields)
        self._call(master, request, _SEND_MS, recalled)
