"""The service that hands out messages to consumers that pop, and holds pops until messages come."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping

from rmqstore.broker.context import Context
from rmqstore.broker.handlers.pop import PopRequests
from rmqstore.broker.handlers.pop_acks import PopAckRequests
from rmqstore.broker.handlers.pop_looks import PopLookRequests
from rmqstore.broker.held_pops import HeldPops
from rmqstore.broker.holds import Holds
from rmqstore.broker.membership.roles import Role, Standing
from rmqstore.broker.metadata.shared_orders import SharedOrders
from rmqstore.broker.operations.pop_orders import OrderlyPops
from rmqstore.broker.operations.waiting import WaitingPlaces
from rmqstore.broker.services.service import Service
from rmqstore.net.metrics import Family, gauge
from rmqstore.remoting.requests import Handler

__all__ = ["Pops"]


class Pops(Service):
    """Serves pops and acknowledgements. At the end of a run each held pop is answered."""

    name = "held pops"
    standings = frozenset({Standing.LEADING})

    def __init__(self, context: Context, waiting: WaitingPlaces, states: SharedOrders) -> None:
        self._context = context
        self._orders = OrderlyPops(context, states, on_free=self._free)
        self._pops = PopRequests(context, waiting, self._orders)
        self._acks = PopAckRequests(context, waiting, self._orders)
        config = context.config
        self.held = self._pops.held = HeldPops(
            context.runtime,
            attempt=self._pops.attempt,
            give_up=self._pops.give_up,
            stored=self._pops.stored,
            pairs_of=self._pops.pairs_of,
            holds=Holds(
                holds_max=config.waiting_pops_max,
                holds_max_of_queue=config.waiting_pops_max_each,
            ),
        )
        """The pops that wait for messages."""
        self._looks = PopLookRequests(context, self._pops, self._pops.operation)
        self.notices = self._looks.held = HeldPops(
            context.runtime,
            attempt=self._looks.attempt,
            give_up=self._looks.give_up,
            stored=self._looks.stored,
            pairs_of=self._pops.pairs_of,
            holds=Holds(
                holds_max=config.waiting_pops_max,
                holds_max_of_queue=config.waiting_pops_max_each,
            ),
        )
        """The notifications that wait for messages."""

    def term(self, role: Role) -> Hashable:
        return role.epoch

    async def start(self, role: Role) -> None:
        for held in (self.held, self.notices):
            held.start(self._context.store.store)
        self._orders.start()

    async def stop(self) -> None:
        self._orders.stop()
        for held in (self.held, self.notices):
            await held.close()

    def _free(self, topic: str, group: str, queue: int) -> None:
        for held in (self.held, self.notices):
            for number in (-1, queue):
                held.wake((f"{topic}@{group}", number))

    def handlers(self) -> Mapping[int, Handler]:
        return {**self._pops.handlers(), **self._acks.handlers(), **self._looks.handlers()}

    def metrics(self) -> Iterable[Family]:
        yield gauge("rmqstore_waiting_pops", "pops that wait for messages", [({}, len(self.held))])
        yield gauge(
            "rmqstore_waiting_notifications",
            "notifications that wait for messages",
            [({}, len(self.notices))],
        )
