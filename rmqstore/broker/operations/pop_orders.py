"""The order of messages for consumers that pop them in order.

The messages of a pop are those of its consumer until they are acknowledged, or their time is over;
until then the group gets no other message of the queue. The offset of the group is that of the
first message without an acknowledgement, so whatever is lost of the states, no message is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rmqstore.broker.metadata.shared_orders import SharedOrders
from rmqstore.broker.operations.core import Core
from rmqstore.broker.pop_orders import (
    acknowledged,
    count_texts,
    free_ms,
    hidden_until,
    is_blocked,
    next_offset,
    popped,
)
from rmqstore.errors import RequestRefused
from rmqstore.net.runtime import Timer
from rmqstore.remoting.bodies.receipts import PoppedQueue, ReceiptHandle
from rmqstore.remoting.codes import ResponseCode
from rmqstore.topic_names import retry_kind

__all__ = ["OrderlyPops"]

_Key = tuple[str, str, int]
"""Topic, group and number of a queue."""


class OrderlyPops:
    """Keeps the order of one broker in *states*. *on_free* is called with topic, group and number
    of a queue that may be popped again."""

    def __init__(
        self, core: Core, states: SharedOrders, *, on_free: Callable[[str, str, int], None]
    ) -> None:
        self._core = core
        self._states = states
        self._on_free = on_free
        self._alarms: dict[_Key, Timer] = {}
        self.notices = 0
        """Calls of *on_free*."""

    # -- Pops.

    def reset(self, topic: str, group: str, queue: int) -> None:
        """Forget the messages of a queue whose offset an operator has reset."""
        self._states.clear(topic, group, queue)
        self._set_alarm((topic, group, queue))

    def is_blocked(
        self, topic: str, group: str, queue: int, *, attempt_id: str | None, invisible_ms: int = 0
    ) -> bool:
        """Return whether another consumer of the group, or another attempt, has messages of a
        queue."""
        state = self._states.of(topic, group, queue)
        now_ms = self._core.runtime.wall_ms()
        return is_blocked(state, attempt_id, invisible_ms=invisible_ms, now_ms=now_ms)

    def new_time(self, topic: str, group: str, queues: Iterable[int], now_ms: int) -> int:
        """Return a time for a pop, *now_ms* or soon after: handles name a pop by its time, so none
        of the last pops of *queues* has the same."""
        states = (self._states.of(topic, group, queue) for queue in queues)
        taken = {state.popped_ms for state in states if state is not None}
        while now_ms in taken:
            now_ms += 1
        return now_ms

    def popped(
        self,
        group: str,
        queue: PoppedQueue,
        *,
        popped_ms: int,
        invisible_ms: int,
        attempt_id: str | None,
    ) -> Sequence[str]:
        """Record messages that are handed out; return how often they were popped before, as
        `count_texts`."""
        key = queue.topic, group, queue.queue
        state = popped(
            self._states.of(*key),
            queue.offsets,
            popped_ms=popped_ms,
            invisible_ms=invisible_ms,
            attempt_id=attempt_id,
            now_ms=self._core.runtime.wall_ms(),
        )
        self._states.set(*key, state)
        self._set_alarm(key)
        return count_texts(retry_kind(queue.topic), queue.queue, state)

    # -- Acknowledgements.

    def acknowledge(
        self, topic: str, group: str, queue: int, offset: int, handle: ReceiptHandle
    ) -> None:
        """Move the offset of the group past a message, and past acknowledged ones after it,
        once all before it are. A handle of another pop than the last one changes nothing. Raises
        RequestRefused for a message that the pop does not have."""
        key, offsets = (topic, group, queue), self._core.metadata.offsets
        committed = offsets.query(*key) or 0
        if offset < committed:
            return
        state = self._states.of(*key)
        if state is None:
            # What else the pop had is not known, so nothing may be passed.
            if offset == committed:
                offsets.commit(*key, offset + 1)
            return
        if state.popped_ms != handle.pop_time_ms:
            return

        done = acknowledged(state, offset)
        if done is None:
            raise RequestRefused(
                f"offset is illegal, key:{topic}@{group}@{queue}, old:{committed}, "
                f"commit:{offset}; the last pop of the queue has no such message",
                code=ResponseCode.MESSAGE_ILLEGAL,
            )
        self._states.set(*key, done)
        end = next_offset(done)
        assert end is not None, "the pop has the message"
        offsets.commit(*key, end)
        self._set_alarm(key)

    def change_time(
        self, topic: str, group: str, queue: int, offset: int, handle: ReceiptHandle, *, ms: int
    ) -> int:
        """Let a message come again *ms* from now on; return its invisible time, which counts from
        the pop on. A handle of another pop than the last one changes nothing."""
        visible_ms = self._core.runtime.wall_ms() + ms
        key = topic, group, queue
        state = self._states.of(*key)
        if state is not None and state.popped_ms == handle.pop_time_ms and offset in state.offsets:
            self._states.set(*key, hidden_until(state, offset, visible_ms))
            self._set_alarm(key)
        return visible_ms - handle.pop_time_ms

    # -- Notices of queues that are free again.

    def start(self) -> None:
        """Begin to give notice of queues that may be popped again."""
        for topic, group, queue, _ in self._states.all():
            self._set_alarm((topic, group, queue))

    def stop(self) -> None:
        """Give no more notice."""
        for alarm in self._alarms.values():
            alarm.cancel()
        self._alarms.clear()

    def _set_alarm(self, key: _Key) -> None:
        former = self._alarms.pop(key, None)
        if former is not None:
            former.cancel()
        state, now_ms = self._states.of(*key), self._core.runtime.wall_ms()
        free_at_ms = now_ms if state is None else free_ms(state, now_ms=now_ms)
        if free_at_ms is not None:
            delay_s = (free_at_ms - now_ms) / 1000
            self._alarms[key] = self._core.runtime.later(delay_s, self._look, key)

    def _look(self, key: _Key) -> None:
        del self._alarms[key]
        if self.is_blocked(*key, attempt_id=None):
            self._set_alarm(key)  # Another message has a later time, or the clock was set back.
        else:
            self.notices += 1
            self._on_free(*key)
