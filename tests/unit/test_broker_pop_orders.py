"""The order of popped messages. RocketMQ's cases are in `ConsumerOrderInfoManagerTest`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rmqstore.broker.metadata.changes import ChangeLog
from rmqstore.broker.metadata.shared_orders import SharedOrders
from rmqstore.broker.metadata.shared_table import Versions
from rmqstore.broker.pop_orders import (
    acknowledged,
    count_texts,
    free_ms,
    hidden_until,
    is_blocked,
    next_offset,
    popped,
)
from rmqstore.remoting import fastjson
from rmqstore.store.metadata.orders import OrderState, OrderTable

POPPED_MS = 1_000_000
INVISIBLE_MS = 3000


def pop(
    former: OrderState | None, *offsets: int, attempt_id: str | None = None, at: int = POPPED_MS
) -> OrderState:
    return popped(
        former,
        offsets,
        popped_ms=at,
        invisible_ms=INVISIBLE_MS,
        attempt_id=attempt_id,
        now_ms=at,
    )


def blocks(state: OrderState | None, *, after_ms: int = 0, attempt_id: str | None = None) -> bool:
    now_ms = POPPED_MS + after_ms
    return is_blocked(state, attempt_id, invisible_ms=INVISIBLE_MS, now_ms=now_ms)


def ack(state: OrderState, *offsets: int) -> OrderState:
    for offset in offsets:
        found = acknowledged(state, offset)
        assert found is not None
        state = found
    return state


def test_queue_is_blocked_until_its_messages_are_acknowledged() -> None:
    state = pop(None, 1)
    assert blocks(state)
    done = ack(state, 1)
    assert next_offset(done) == 2
    assert not blocks(done)
    assert not blocks(None)


def test_queue_is_blocked_until_the_time_of_its_messages_is_over() -> None:
    state = pop(None, 1, 2)
    assert blocks(state, after_ms=INVISIBLE_MS - 1)
    assert not blocks(state, after_ms=INVISIBLE_MS)


def test_offset_moves_to_the_first_message_that_is_not_acknowledged() -> None:
    state = pop(None, 4, 6, 7)
    found = [next_offset(each) for each in (state, ack(state, 6), ack(state, 6, 4))]
    assert found == [4, 4, 7]
    assert next_offset(ack(state, 4, 6, 7)) == 8
    assert acknowledged(state, 5) is None


def test_messages_that_come_again_are_counted() -> None:
    state = pop(None, 1, 2, 3)
    assert count_texts(0, 0, state) == ["0 0 0"]
    state = pop(state, 1, 2, 3)
    assert count_texts(0, 0, state) == ["0 qo0%1 1", "0 qo0%2 1", "0 qo0%3 1", "0 0 1"]
    state = pop(state, 2, 3)
    assert count_texts(0, 0, state) == ["0 qo0%2 2", "0 qo0%3 2", "0 0 2"]
    state = pop(state, 3, 4)
    assert count_texts(0, 0, state) == ["0 qo0%3 3", "0 0 0"]
    state = pop(state, 5, 6)
    assert count_texts(0, 0, state) == ["0 0 0"]


def test_repeated_attempt_gets_the_same_messages_and_counts_nothing() -> None:
    state = pop(pop(None, 1, 2), 1, 2, attempt_id="a")
    assert blocks(state)
    assert blocks(state, attempt_id="b")
    assert not blocks(state, attempt_id="a")
    assert pop(state, 1, 2, attempt_id="a").counts == {1: 1, 2: 1}
    assert pop(state, 1, 2, attempt_id="b").counts == {1: 2, 2: 2}


def test_message_may_have_a_time_of_its_own() -> None:
    state = hidden_until(pop(None, 1, 2, 3), 2, POPPED_MS + 9000)
    state = ack(state, 1, 3)
    assert next_offset(state) == 2
    assert blocks(state, after_ms=8999)
    assert not blocks(state, after_ms=9000)
    assert pop(state, 2).visible_ms is None


def test_queue_is_free_when_the_first_message_is_visible() -> None:
    state = pop(None, 1, 2)
    assert free_ms(state, now_ms=POPPED_MS) == POPPED_MS + INVISIBLE_MS
    assert free_ms(ack(state, 1, 2), now_ms=POPPED_MS + 5) == POPPED_MS + 5
    later = hidden_until(ack(state, 1), 2, POPPED_MS + 9000)
    assert free_ms(later, now_ms=POPPED_MS) == POPPED_MS + 9000
    assert free_ms(replace(state, invisible_ms=None), now_ms=POPPED_MS) is None
    assert free_ms(replace(state, offsets=()), now_ms=POPPED_MS) is None


def test_state_of_an_early_release_has_the_time_of_the_pop_that_asks() -> None:
    text = '{"table":{"T@g":{0:{"cm":0,"l":5,"o":[2,1,2],"popTime":1000000}}}}'
    state = OrderTable.from_json(text).states["T@g"][0]
    assert state.offsets == (2, 3, 4)
    assert blocks(state)
    assert not blocks(state, after_ms=INVISIBLE_MS)
    assert count_texts(0, 0, pop(state, 3, 4, 5)) == ["0 qo0%3 1", "0 qo0%4 1", "0 0 0"]


# -- the table


class Master:
    """The table of a master, and its log of changes."""

    def __init__(self) -> None:
        self.wall_ms = POPPED_MS
        self.queues = {("T", "g"): 8}
        self.log = ChangeLog(frozenset())
        self.orders = SharedOrders(lambda topic, group: self.queues.get((topic, group), 0))
        self.orders.attach(self.log, Versions(lambda: self.wall_ms))


def test_only_what_is_used_is_kept() -> None:
    master = Master()
    for topic, group, queue in (("T", "g", 7), ("T", "g", 8), ("U", "g", 0), ("T", "h", 0)):
        master.orders.set(topic, group, queue, pop(None, 1))
    master.orders.clean()
    assert [each[:3] for each in master.orders.all()] == [("T", "g", 7)]
    master.wall_ms += 24 * 60 * 60 * 1000
    master.orders.clean()
    assert [each[:3] for each in master.orders.all()] == [("T", "g", 7)]
    master.wall_ms += 1
    master.orders.clean()
    assert list(master.orders.all()) == []


def test_slave_follows_by_entries() -> None:
    master, slave = Master(), Master()
    state = replace(hidden_until(pop(pop(None, 1), 1, 2), 1, 5), attempt_id="a")
    master.orders.set("T", "g", 0, state)
    master.orders.set("T", "g", 1, pop(None, 1))
    master.orders.set("U", "g", 0, pop(None, 1))
    master.orders.clean()
    master.orders.clear("T", "g", 1)

    def follow(since: int) -> None:
        changes = []
        for entry in master.log.after(since):
            sent = fastjson.loads(fastjson.dumps(master.orders.value_of(entry)))
            changes.append((entry, slave.orders.read(entry, sent)))
        slave.orders.take(changes)

    follow(0)
    assert list(slave.orders.all()) == [("T", "g", 0, state)]
    assert slave.orders.whole() == master.orders.whole()

    # A slave that joins gets every entry.
    since, slave = master.log.sequence, Master()
    master.orders.note_all()
    follow(since)
    assert slave.orders.whole() == master.orders.whole()


@pytest.mark.parametrize(
    "text",
    [
        '{"table":{"T@g":{"x":{}}}}',
        '{"table":{"T@g":{-1:{}}}}',
        '{"table":{"T@g":{0:{"o":["1"]}}}}',
        '{"table":{"T@g":{0:{"o":[1.5]}}}}',
        '{"table":{"T@g":{0:{"oc":{"x":1}}}}}',
        '{"table":{"T@g":{0:{"ot":[1]}}}}',
        '{"table":{"T@g":{0:{"popTime":"1"}}}}',
        '{"table":{"T@g":{0:{"o":[' + "1," * 64 + "1]}}}}",
        '{"table":{"T@g":[]}}',
        '{"table":{"T@g":{0:{"o":[1,',
    ],
)
def test_wrong_file_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        OrderTable.from_json(text)
