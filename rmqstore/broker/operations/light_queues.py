"""Messages for light queues: each is in the queue of its topic, and in light queues that it names.

The store gives such a message its numbers in the light queues, and enters it there.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.broker.operations.core import Core
from rmqstore.broker.operations.message_rules import LIGHT_QUEUES, light_queues_of
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["LightQueues"]


class LightQueues:
    """The light queues of a store, whose number is limited.

    They are listed once, and then counted: a list of all queues for each message beyond the limit
    would be at the will of clients. They are listed again where queues may be gone, or come from
    another master.
    """

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: set[str] = set()
        self._listed: tuple[int, ...] | None = None
        """Of which state of the store the list is; None without a list."""

    def admit(self, properties: Mapping[str, str]) -> frozenset[str]:
        """Check a message; return its light queues, which are made with it. Raises RequestRefused
        (MESSAGE_ILLEGAL, and SYSTEM_ERROR for too many queues)."""
        config = self._core.config
        if LIGHT_QUEUES not in properties or not config.store.enable_multi_dispatch:
            return frozenset()
        names = light_queues_of(properties)
        known = self._present()
        if not names <= known and len(names | known) > config.light_queues_max:
            raise RequestRefused(
                f"[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]{len(known)} light queues exist, and "
                f"maxLmqConsumeQueueNum is {config.light_queues_max}",
                code=ResponseCode.SYSTEM_ERROR,
            )
        return names

    def made(self, names: frozenset[str]) -> None:
        """Count the light queues of a message that is in the log."""
        self._known |= names

    def _present(self) -> set[str]:
        store, metadata = self._core.store.store, self._core.metadata
        state = (
            metadata.removals,
            metadata.log_cuts,
            max(store.start_offset, 0),
            self._core.role.epoch,
        )
        if state != self._listed:
            names = {each.topic for each in store.queues()}
            self._known = {each for each in names if each.startswith(LIGHT_PREFIX)}
            self._listed = state
        return self._known
