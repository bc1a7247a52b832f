"""The store and the replica of simulated brokers."""

from __future__ import annotations

import pytest

from rmqstore.errors import ArgumentError, DiskError, Fenced, PutError, StoreClosedError
from rmqstore.message import Durability, GetStatus
from rmqstore.replication.protocol.events import HaState
from rmqstore.sim.contents import Content
from rmqstore.sim.model_store import records_in
from rmqstore.store.broker_view import BrokerView
from tests.support.members import MemberGroup

# ---- roles


def test_a_put_is_acknowledged_once_all_members_hold_it() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1, 2, 3))
    receipt = group.put(1, "orders", b"paid")
    assert (receipt.topic, receipt.queue, receipt.queue_offset) == ("orders", 0, 0)
    ends = {each.log.whole_end for each in group.members.values()}
    assert ends == {group.members[1].log.whole_end}
    assert [each.status().role for each in group.replicas.values()] == ["master", "slave", "slave"]
    assert group.replicas[2].status().master is not None
    assert {each.broker_id for each in group.replicas[1].status().replicas} == {2, 3}


def test_a_message_is_in_the_log_when_the_call_returns() -> None:
    """A caller that is cancelled before it awaits the rest has stored the message."""
    group = MemberGroup()
    group.lead(1, 1, members=(1,))
    log, ends = group.members[1].log, []

    def append() -> None:
        ends.append(log.whole_end)
        content = Content("orders", 0, b"paid", {})
        group.stores[1].append(lambda: content, Durability.MEMORY).close()
        ends.append(log.whole_end)

    group.members[1].process.run(append)
    assert ends[0] < ends[1]


def test_a_master_proposes_a_slave_that_keeps_up_and_takes_the_answer() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1,))
    group.members[1].process.run(lambda: group.replicas[1].admit((2,)))
    group.put(1, "orders")
    group.pass_ms(2000)
    assert group.proposals[-1].members == {1, 2}
    assert group.replicas[1].possible_members == {1, 2}
    group.run(1, group.replicas[1].set_sync_state_set((1, 2), 2))
    group.pass_ms(1)
    status = group.statuses[1][-1]
    assert (status.sync_state_set, status.sync_state_set_epoch) == ({1, 2}, 2)


def test_a_set_without_the_master_ends_its_role() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1, 2, 3))
    group.run(1, group.replicas[1].set_sync_state_set((2, 3), 2))
    assert group.replicas[1].role is None
    assert "another master was elected" in str(group.replicas[1].status().failure)
    with pytest.raises(ArgumentError, match="not a master"):
        group.replicas[1].renew_lease(0)
    with pytest.raises(PutError):
        group.put(1, "orders")


def test_a_master_without_a_lease_acknowledges_nothing() -> None:
    group = MemberGroup()
    group.run(1, group.replicas[1].become_master(1, members=(1,), set_epoch=1))
    assert group.replicas[1].lease_end_ms == 0
    with pytest.raises(PutError):
        group.put(1, "orders")


def test_a_disk_that_refuses_a_step_leaves_no_role_and_the_same_order_works_later() -> None:
    group = MemberGroup()
    member, replica = group.members[1], group.replicas[1]
    member.log.is_full = True
    with pytest.raises(DiskError):
        group.run(1, replica.become_master(1, members=(1,), set_epoch=1))
    assert replica.role is None
    member.log.is_full = False
    group.run(1, replica.become_master(1, members=(1,), set_epoch=1))
    assert replica.role == "master"


def test_changes_come_one_after_another_and_a_cancelled_one_leaves_no_role() -> None:
    group = MemberGroup()
    replica = group.replicas[1]
    first = group.begin(1, replica.become_master(1, members=(1,), set_epoch=1))
    second = group.begin(1, replica.become_slave("10.0.0.2:10912", 2))
    third = group.begin(1, replica.become_slave("10.0.0.2:10912", 1))
    group.pass_ms(1)
    group.members[1].process.run(first.cancel)
    group.pass_ms(200)
    assert first.cancelled()
    assert second.result() is None
    with pytest.raises(Fenced):
        third.result()
    assert (replica.role, replica.epoch) == ("slave", 2)


def test_a_slave_whose_master_dies_connects_to_the_next_life() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1, 2, 3))
    group.put(1, "orders")
    group.members[1].kill(loses_power=False)
    group.pass_ms(500)
    group.members[1].start()
    group.lead(1, 2, members=(1, 2, 3), set_epoch=2)
    assert group.put(1, "orders").queue_offset == 1
    master = group.replicas[2].status().master
    assert master is not None
    assert master.state is HaState.TRANSFER


def test_a_death_ends_the_calls_of_its_process_alone() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1, 2, 3))
    group.network.block(1, 2)
    ended: list[str] = []

    async def waits() -> None:
        try:
            await group.stores[1].append(lambda: Content("orders", 0, b"", {"UNIQ_KEY": "k"}))
        finally:
            ended.append("finally")
            await group.replicas[1].close()

    group.begin(1, waits())
    group.pass_ms(50)
    group.members[1].kill(loses_power=True)
    state = group.members[1].log.epoch_state
    group.pass_ms(2000)
    assert ended == ["finally"]
    assert group.members[1].log.epoch_state == state


def test_a_closed_replica_has_saved_that_its_role_ended() -> None:
    group = MemberGroup()
    group.lead(1, 1, members=(1, 2, 3))
    group.put(1, "orders")
    group.run(1, group.replicas[1].close())
    assert group.members[1].log.epoch_state.master_end == group.members[1].log.end_offset
    with pytest.raises(StoreClosedError):
        group.run(1, group.replicas[1].become_slave("10.0.0.2:10912", 2))


# ---- the store


def _filled() -> tuple[MemberGroup, BrokerView]:
    group = MemberGroup(1)
    group.run(1, group.replicas[1].become_master(1, members=(1,), set_epoch=1))
    group.renew(1)
    for tag in ("a", "b", "a"):
        group.put(1, "orders", b"body", TAGS=tag, KEYS=f"key-{tag}")
        group.pass_ms(1000)
    group.put(1, "refunds", b"other")
    store: object = group.stores[1].store
    return group, BrokerView(store)  # type: ignore[arg-type]


def test_queues_of_topics_have_offsets_of_their_own() -> None:
    _, view = _filled()
    assert view.bounds("orders", 0) == (0, 3)
    assert view.bounds("refunds", 0) == (0, 1)
    assert view.bounds("orders", 1) is None
    assert view.next_offset("orders", 0) == 3


def test_a_read_returns_records_by_offset_and_tag() -> None:
    _, view = _filled()
    status, offset, low, high, count, body = view.get("orders", 0, 1, 10, 1000, None, True)
    assert (status, offset, low, high, count) == (GetStatus.FOUND, 3, 0, 3, 2)
    assert [offset for offset, *_ in records_in(body)] == [1, 2]
    assert view.get("orders", 0, 0, 10, 1000, ("b",), True)[4] == 1
    assert view.get("orders", 0, 0, 1, 1000, ("b",), True)[:2] == (GetStatus.NO_MATCHED_MESSAGE, 1)
    assert view.get("orders", 0, 3, 1, 1000, None, True)[0] is GetStatus.OFFSET_OVERFLOW_ONE
    assert view.get("orders", 0, 9, 1, 1000, None, True)[0] is GetStatus.OFFSET_OVERFLOW_BADLY
    assert view.get("none", 0, 0, 1, 1000, None, True)[0] is GetStatus.NO_MATCHED_LOGIC_QUEUE


def test_a_read_returns_records_that_a_function_selects() -> None:
    _, view = _filled()

    def selects(values: tuple[str | None, ...]) -> bool:
        return values == ("b", None)

    found = view.select("orders", 0, 0, 10, 1000, 10, ("TAGS", "none"), selects, True)
    assert found[:2] == (GetStatus.FOUND, 3)
    assert [offset for offset, *_ in records_in(found[5])] == [1]
    found = view.select("orders", 0, 0, 10, 1000, 1, ("TAGS", "none"), selects, True)
    assert found[:2] == (GetStatus.NO_MATCHED_MESSAGE, 1)


def test_records_are_found_by_time_key_and_place() -> None:
    group, view = _filled()
    second = view.record_in("orders", 0, 1)
    assert second is not None
    time_ms = second.store_timestamp
    assert view.offset_by_time("orders", 0, time_ms, False) == 1
    assert view.offset_by_time("orders", 0, time_ms + 1, False) == 2
    assert view.offset_by_time("orders", 0, time_ms + 1, True) == 1
    assert view.offset_by_time("orders", 0, time_ms + 10**6, False) == 3
    found = view.query("orders", "key-a", False, 0, time_ms + 10**6, 10)
    assert [each.queue_offset for each in found] == [0, 2]
    assert view.record_at(second.physical_offset, True) == second
    assert group.stores[1].store.queue("orders", 0).get(1) == second


def test_a_deleted_topic_and_expired_files_are_read_no_more() -> None:
    group, view = _filled()
    store = group.stores[1].store
    store._remove_queues("refunds", store.end_offset)
    assert view.bounds("refunds", 0) is None
    group.put(1, "refunds")
    assert view.bounds("refunds", 0) == (1, 2)

    member = group.members[1]
    while member.log.start_offset == 0:
        group.put(1, "orders", bytes(500))
        group.pass_ms(10)
        member.disturb(member.expire)
    bounds = view.bounds("orders", 0)
    assert bounds is not None
    assert bounds[0] > 0
    assert view.get("orders", 0, 0, 1, 1000, None, True)[0] is GetStatus.OFFSET_TOO_SMALL


def test_a_watch_notifies_of_records_that_become_visible() -> None:
    group, _ = _filled()
    member, store = group.members[1], group.stores[1].store
    seen: list[int] = []

    def begin() -> None:
        watch = store.watchers.subscribe("dispatched")
        member.loop.add_reader(watch.fileno(), seen.append, 1)
        assert not watch.arm(store.dispatched_offset)

    member.process.run(begin)
    group.pass_ms(10)
    assert seen == []
    group.put(1, "orders")
    group.pass_ms(10)
    assert seen == [1]
