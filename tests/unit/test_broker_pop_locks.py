"""The locks of pops: one pop of a group has a queue, and others learn of its release."""

from __future__ import annotations

from rmqstore.broker.pop_locks import PopLocks


def test_one_pop_of_a_group_has_a_queue_at_a_time() -> None:
    locks = PopLocks()
    assert locks.take("T", "g", 0)
    assert not locks.take("T", "g", 0)
    for other in (("T", "g", 1), ("T", "h", 0), ("%RETRY%g_T", "g", 0)):
        assert locks.take(*other)
    locks.release("T", "g", 0)
    assert locks.take("T", "g", 0)


def test_release_says_whether_another_pop_was_turned_away() -> None:
    locks = PopLocks()
    locks.take("T", "g", 0)
    assert not locks.release("T", "g", 0)
    assert locks.releases == 0

    locks.take("T", "g", 0)
    locks.take("T", "g", 0)
    assert locks.release("T", "g", 0)
    assert (locks.releases, len(locks)) == (1, 0)
