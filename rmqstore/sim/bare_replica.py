"""A replica without a broker: it exchanges messages with controllers or an operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from rmqstore.broker.membership.controller_calls import Outcome, SetAnswer
from rmqstore.broker.membership.orders import Decision, Orders, RoleOrder
from rmqstore.errors import ArgumentError, Fenced
from rmqstore.remoting.headers.controller import ControllerHeartbeatRequestHeader
from rmqstore.replication.group.group import Effect as GroupEffect
from rmqstore.replication.group.group import MasterGroup
from rmqstore.replication.group.node import (
    MasterNode,
    SlaveNode,
)
from rmqstore.replication.group.roles import Change
from rmqstore.replication.group.sync_state_set import Proposal
from rmqstore.sim import messages
from rmqstore.sim.controller_client import ControllerClient, place_of
from rmqstore.sim.messages import Answer, Ask, Heartbeat, Message, Order
from rmqstore.sim.operator import OPERATOR
from rmqstore.sim.replica import Replica
from rmqstore.sim.view import View

__all__ = ["BareReplica"]


class BareReplica(Replica):
    """The replica *number* of a group, which obeys controllers or an operator."""

    def _begin(self) -> None:
        if self._shape.has_set:
            send = partial(self._network.send, self.number)
            self._now.client = ControllerClient(
                self.number, self.life, send, is_learner=self.is_learner
            )
            self._now.orders = Orders(self.number, self.life)
        self._heartbeat(self.life)
        self._timeline.after(self._shape.flush_ms * 1000, self._enter, self.life, self._flush, True)

    # ---- controllers and operators

    def _heartbeat(self, life: int) -> None:
        if life != self.life or not self.is_up:
            return
        if self._timeline.now_us >= self.paused_until_us:
            now_ms = self.clock.monotonic_ms()
            client = self._now.client
            if client is not None:
                client.beat(now_ms, self._beat)
            else:
                self._send(Heartbeat(self.number, life, self.epoch, now_ms))
        self._timeline.after(self._shape.heartbeat_ms * 1000, self._heartbeat, life)

    def _beat(self, **others: Any) -> ControllerHeartbeatRequestHeader:
        """Return a heartbeat to a controller."""
        log, node, quorum = self.log, self.master_node, self._shape.quorum
        assert self._now.orders is not None, "a client has orders"
        # The confirm offset is what all members hold, unless masters confirm their own end.
        is_all = node is not None and self._shape.is_confirming
        return ControllerHeartbeatRequestHeader(
            epoch=log.epochs[-1].epoch if log.epochs else -1,
            max_offset=log.whole_end,
            confirm_offset=log.confirm_offset if is_all else -1,
            heartbeat_timeout_ms=self._shape.patience_ms,
            role_epoch=-1 if node is None else self.epoch,
            refused_epoch=self._now.orders.refused_epoch,
            sync_state_set_epoch=-1 if node is None else node.group.sync_state_set.set_epoch,
            is_learner=self.is_learner,
            in_sync=quorum.in_sync,
            min_in_sync=quorum.min_in_sync,
            all_ack=quorum.all_ack,
            lease_ms=self._shape.lease_ms,
            **self._worth(),
            **others,
        )

    def _worth(self) -> dict[str, Any]:
        """Return the fields of a heartbeat that show what a report is worth."""
        log, process, is_flushed = self.log, self._now, self._shape.options.ack_flushed
        orders = process.orders
        assert orders is not None, "a client has orders"
        flushed_end = min(log.whole_end, log.flushed_offset)
        return {
            "boot": f"{self.number}.{self.boots}",
            "former_lives": ";".join(map(str, self.lives[:-1])) or None,
            "was_closed": log.was_closed,
            "acks_flushed": is_flushed,
            "synced_epoch": process.roles.synced_epoch,
            "start_offset": log.start_offset,
            "vouched_offset": flushed_end if is_flushed else log.whole_end,
            "is_partial": log.is_partial,
            "cannot_lead": orders.cannot_lead(self.clock.monotonic_ms()),
            "trouble": orders.trouble or None,
        }

    def _send(self, message: Message) -> None:
        self._network.send(self.number, OPERATOR, messages.encode(message))

    def on_message(self, source: int, data: bytes) -> None:
        """Take a message of a controller or the operator."""
        if self._shape.has_set:
            self._enter(self.life, self._hear, source, data)
            return
        match messages.decode(data):
            case Order(life, epoch, master, asked_ms, order):
                view = View(epoch, master, frozenset(), 0, asked_ms, order)
                self._enter(self.life if life < 0 else life, self._follow_view, view)
            case Ask(life, ballot, ends_masters):
                self._enter(life, self._compare, ballot, ends_masters)
            case message:
                raise AssertionError(f"a replica cannot take {message}")

    def _hear(self, source: int, data: bytes) -> None:
        client = self._now.client
        assert client is not None, "each life begins with one"
        heard = client.receive(data)
        if isinstance(heard, Decision):
            self._heed(heard)
        elif heard is not None:
            self._take_set(heard)

    def _heed(self, decision: Decision) -> None:
        """Receive a decision of the controllers, and start the due order."""
        process = self._now
        orders, node = process.orders, process.node
        assert orders is not None, "each life begins with them"
        orders.take(decision, known_epoch=process.roles.known_epoch)
        role_epoch = self.epoch if isinstance(node, MasterNode) else -1

        if process.change is None:
            order = orders.next(self.clock.monotonic_ms())
            if order is not None:
                self._obey_order(orders, order)
            elif isinstance(node, MasterNode) and orders.takes_set(
                decision, role_epoch=role_epoch, set_epoch=node.group.sync_state_set.set_epoch
            ):
                self._confirm_set(decision.members, decision.set_epoch)
        node = process.node
        if isinstance(node, MasterNode) and orders.renews_lease(decision, role_epoch=self.epoch):
            lease = node.group.policy.lease
            was_held = lease.is_held(self.clock.monotonic_ms())
            self._change_group(_renewal(decision.lease_asked_ms))
            if not was_held:
                self._witness.on_lease(self)

    def _obey_order(self, orders: Orders, order: RoleOrder) -> None:
        try:
            if orders.is_own(order):
                change = self._now.roles.become_master(
                    order.epoch, members=order.members, set_epoch=order.set_epoch
                )
            else:
                change = self._way_to_slave(place_of(order.master_address), order.epoch)
        except Fenced as error:
            self._witness.say(f"replica {self.number} is fenced: {error}")
            orders.refused(order)
            return

        def done() -> None:
            orders.done(order)
            self._witness.on_obeyed(self, order.epoch)

        def failed() -> None:
            orders.failed(order, self.clock.monotonic_ms(), "the disk refused a step")

        self._change(change, done, failed=failed)

    def _follow_view(self, view: View) -> None:
        """Receive a decision of the operator."""
        process = self._now
        if view.master == 0 or view.epoch < max(process.roles.known_epoch, self.asked_for):
            return
        if process.change is None:
            # Otherwise it waits until the operator repeats the order.
            self.asked_for = -1
            is_other = (view.epoch, view.master) != (process.epoch, process.master)
            if view.order > process.order and is_other:
                self._obey(view)
        node = process.node
        if isinstance(node, MasterNode) and view.asked_ms >= 0 and view.epoch == self.epoch:
            self._change_group(_renewal(view.asked_ms))

    def _compare(self, ballot: int, ends_masters: bool) -> None:
        process = self._now
        if ballot < self.asked_for or ballot <= process.roles.known_epoch:
            # The ballot has ended; a copy of its request arrived late.
            return
        if process.change is not None:
            process.ballots.append((ballot, ends_masters))
            return
        self.asked_for = ballot
        if self.master_node is None or ends_masters:
            answer = partial(self._answer_ballot, ballot)
            self._change(process.roles.end(is_clean=True), answer, failed=answer)
        else:
            self._answer_ballot(ballot)

    def _answer_ballot(self, ballot: int) -> None:
        log = self.log
        last_epoch = log.epochs[-1].epoch if log.epochs else -1
        is_master = self.master_node is not None
        self._send(
            Answer(self.number, self.life, ballot, last_epoch, log.whole_end, is_master=is_master)
        )

    def stop(self, done: Callable[[], None]) -> None:
        if self._now.change is not None:
            done()
            return

        def ended() -> None:
            self.log.close()
            done()

        self._change(self._now.roles.end(is_clean=True), ended, failed=done)

    # ---- the sync-state set

    def _propose(self, proposal: Proposal) -> None:
        client = self._now.client
        assert client is not None, "a group with a set has controllers"
        answer = client.propose(proposal, self.epoch, self.clock.monotonic_ms())
        if answer is not None:
            self._timeline.after(0, self._enter, self.life, self._take_set, answer)

    def _take_set(self, answer: SetAnswer) -> None:
        """Receive the answer to a proposal of the present role."""
        node = self._now.node
        if not isinstance(node, MasterNode) or answer.epoch != self.epoch:
            return
        number, now = answer.number, answer.now
        if now is not None:
            self._confirm_set(now.members, now.epoch)
        if answer.outcome is Outcome.REFUSED:
            self._change_group(lambda group, now_ms: group.refuse_proposal(number, now_ms))
        elif answer.outcome is Outcome.LOST:
            self._change_group(lambda group, now_ms: group.lose_proposal(number, now_ms))

    def _confirm_set(self, members: frozenset[int], set_epoch: int) -> None:
        """Use the set that the controllers have decided."""
        self._change_group(
            lambda group, now_ms: group.confirm_set(members, set_epoch=set_epoch, now_ms=now_ms)
        )

    # ---- roles

    def may_lead_again(self) -> bool:
        """Return whether the program, started again without an epoch, becomes master."""
        try:
            self._now.roles.become_master(None)
        except ArgumentError as error:
            self._witness.say(f"replica {self.number} does not lead again: {error}")
            return False
        return True

    def _obey(self, view: View) -> None:
        try:
            if view.master == self.number:
                change = self._now.roles.become_master(view.epoch, others_asked=True)
            else:
                change = self._way_to_slave(view.master, view.epoch)
        except Fenced as error:
            self._witness.say(f"replica {self.number} is fenced: {error}")
            return

        def done() -> None:
            self._now.order = view.order
            self._witness.on_obeyed(self, view.epoch)

        self._change(change, done)

    def _way_to_slave(self, master: int, epoch: int) -> Change[int]:
        node = self._now.node
        is_halted = isinstance(node, SlaveNode) and node.halt_reason is not None
        return self._now.roles.become_slave(master, epoch, may_begin_anew=True, is_halted=is_halted)

    def _changed(self) -> None:
        ballots, self._now.ballots = self._now.ballots, []
        for ballot, ends_masters in ballots:
            self._compare(ballot, ends_masters)


def _renewal(asked_ms: int) -> Callable[[MasterGroup, int], list[GroupEffect]]:
    def renew(group: MasterGroup, now_ms: int) -> list[GroupEffect]:
        group.renew_lease(asked_ms)
        return []

    return renew
