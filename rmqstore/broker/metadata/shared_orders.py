"""The messages that orderly consumers have popped, as the master of a group knows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.store.metadata.members import Members
from rmqstore.store.metadata.offsets import offsets_key
from rmqstore.store.metadata.orders import OrderState, OrderTable, states_of

__all__ = ["SharedOrders"]

_KEPT_MS = 24 * 60 * 60 * 1000
"""How long RocketMQ keeps the state of a queue that is not popped."""

QueueCount = Callable[[str, str], int]
"""Returns how many queues of a topic a group may read; 0 where either is not there."""


class SharedOrders(SharedTable):
    """consumerOrderInfo.json. RocketMQ's slaves do not copy it; those of this library do, entry by
    entry.

    A change costs by the queues that a group pops of one topic.
    """

    name = "order"
    kinds = ("order",)
    is_urgent = False
    file_type = OrderTable
    code = None

    def __init__(self, queue_count: QueueCount) -> None:
        self._queue_count = queue_count
        self._states: dict[str, dict[int, OrderState]] = {}

    def of(self, topic: str, group: str, queue: int) -> OrderState | None:
        """Return the last pop of a group from a queue; None where there was none."""
        return self._states.get(offsets_key(topic, group), {}).get(queue)

    def set(self, topic: str, group: str, queue: int, state: OrderState) -> None:
        """Have the *state* of a queue."""
        key = offsets_key(topic, group)
        self._states.setdefault(key, {})[queue] = state
        self._log.note(self.name, key)

    def clear(self, topic: str, group: str, queue: int) -> None:
        """Forget the last pop of a group from a queue, whose offset was reset."""
        key = offsets_key(topic, group)
        if self._states.get(key, {}).pop(queue, None) is not None:
            self._log.note(self.name, key)

    def all(self) -> Iterator[tuple[str, str, int, OrderState]]:
        """Yield topic, group, queue and state of each queue."""
        for key, queues in self._states.items():
            topic, _, group = key.partition("@")
            for queue, state in queues.items():
                yield topic, group, queue, state

    def clean(self) -> None:
        """Forget what is not used: the topic, group or queue is gone, or was not popped for a
        day."""
        oldest_ms = self._versions.now_ms() - _KEPT_MS
        for key, queues in list(self._states.items()):
            topic, _, group = key.partition("@")
            count = self._queue_count(topic, group)
            kept = {
                queue: state
                for queue, state in queues.items()
                if queue < count and state.used_ms >= oldest_ms
            }
            if not kept:
                del self._states[key]
                self._log.note(self.name, key, is_removed=True)
            elif len(kept) < len(queues):
                self._states[key] = kept
                self._log.note(self.name, key)

    # -- the table

    def whole(self) -> OrderTable:
        return OrderTable({key: dict(queues) for key, queues in self._states.items()})

    def take_whole(self, table: OrderTable) -> None:
        self._states = {key: dict(queues) for key, queues in table.states.items()}

    def lead(self) -> None:
        pass  # There is no version.

    def note_all(self) -> None:
        for key in self._states:
            self._log.note(self.name, key)

    def value_of(self, entry: Entry) -> Any:
        queues = self._states.get(entry.key)
        return queues and {queue: each.members() for queue, each in queues.items()}

    def read(self, entry: Entry, value: Any) -> Mapping[int, OrderState] | None:
        return None if value is None else states_of(Members(value, f"order {entry.key}"))

    def take(self, changes: Sequence[tuple[Entry, Mapping[int, OrderState] | None]]) -> None:
        for entry, queues in changes:
            if queues is None:
                self._states.pop(entry.key, None)
            else:
                self._states[entry.key] = dict(queues)
