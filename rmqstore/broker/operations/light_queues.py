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
    """The light queues of a store, whose number is limited."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._known: set[str] | None = None

    def admit(self, properties: Mapping[str, str]) -> None:
        """Check a message, whose light queues are made with it. Raises RequestRefused
        (MESSAGE_ILLEGAL, and SYSTEM_ERROR for too many queues)."""
        config = self._core.config
        if LIGHT_QUEUES not in properties or not config.store.enable_multi_dispatch:
            return
        names = light_queues_of(properties)
        known = self._present() if self._known is None else self._known
        if not names <= known and len(names | known) > config.light_queues_max:
            # Some may have been removed since.
            known = self._present()
            if not names <= known and len(names | known) > config.light_queues_max:
                raise RequestRefused(
                    f"[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]{len(known)} light queues exist, and "
                    f"maxLmqConsumeQueueNum is {config.light_queues_max}",
                    code=ResponseCode.SYSTEM_ERROR,
                )
        known |= names

    def _present(self) -> set[str]:
        queues = self._core.store.store.queues()
        self._known = {each.topic for each in queues if each.topic.startswith(LIGHT_PREFIX)}
        return self._known
