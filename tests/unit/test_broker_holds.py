"""Held pulls: by queue, by connection, by deadline, and bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.holds import Hold, Holds


def hold(number: int = 0, *, offset: int = 0, deadline_ms: int = 10, connection: str = "c") -> Hold:
    return Hold(("T", number), offset, deadline_ms, connection, None)


def test_holds_of_a_grown_queue_are_returned_in_their_order() -> None:
    holds = Holds()
    first, second, third, other = hold(), hold(offset=1), hold(), hold(1)
    for each in (first, second, third, other):
        assert holds.add(each)
    ends = {("T", 0): 1, ("T", 1): 0}
    assert list(holds.grown(ends.__getitem__)) == [first, third]


def test_hold_that_is_removed_while_others_are_looked_at_is_passed_over() -> None:
    holds = Holds()
    both = [hold(), hold()]
    for each in both:
        holds.add(each)
    found = []
    for each in holds.grown(lambda queue: 1):
        found.append(each)
        for other in both:
            holds.remove(other)
    assert found == both[:1]
    assert len(holds) == holds.queue_count == 0


def test_holds_are_due_in_the_order_of_their_deadlines() -> None:
    holds = Holds()
    late, early, answered = hold(deadline_ms=30), hold(deadline_ms=20), hold(deadline_ms=5)
    for each in (late, early, answered):
        holds.add(each)
    holds.remove(answered)
    assert holds.next_deadline_ms() == 20
    assert list(holds.due(19)) == []
    assert list(holds.due(20)) == [early]
    assert holds.next_deadline_ms() == 30
    assert list(holds.due(100)) == [late]
    assert holds.next_deadline_ms() is None
    assert len(holds) == 0


def test_both_limits_refuse_a_hold_until_another_ends() -> None:
    holds = Holds(holds_max=3, holds_max_each=2)
    mine = [hold(connection="a"), hold(connection="a")]
    assert all(holds.add(each) for each in mine)
    assert not holds.add(hold(connection="a"))
    assert holds.add(hold(connection="b"))
    assert not holds.add(hold(connection="d"))
    assert holds.release("a") == 2
    assert all(each.is_over for each in mine)
    assert holds.add(hold(connection="a"))
    assert len(holds) == 2


@given(
    st.lists(st.tuples(st.sampled_from("add end due drop".split()), st.integers(0, 4)), max_size=80)
)
def test_counts_and_deadlines_agree_with_a_plain_list(steps: list[tuple[str, int]]) -> None:
    holds, now = Holds(holds_max=20, holds_max_each=8), 0
    model: list[Hold] = []
    for act, number in steps:
        if act == "add":
            each = hold(number, deadline_ms=now + number, connection=str(number % 3))
            count = sum(known.connection == each.connection for known in model)
            assert holds.add(each) is (len(model) < 20 and count < 8)
            if len(model) < 20 and count < 8:
                model.append(each)
        elif act == "end" and model:
            holds.remove(model.pop(number % len(model)))
        elif act == "due":
            now += number
            due = [each for each in model if each.deadline_ms <= now]
            assert set(map(id, holds.due(now))) == set(map(id, due))
            model = [each for each in model if each.deadline_ms > now]
        elif act == "drop":
            model = [each for each in model if each.connection != str(number % 3)]
            holds.release(str(number % 3))
        assert len(holds) == len(model)
        assert holds.queue_count == len({each.queue for each in model})
        earliest = min((each.deadline_ms for each in model), default=None)
        assert holds.next_deadline_ms() == earliest
