"""Replicated stores over real sockets: changes of role and of the sync-state set."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from rmqstore import (
    ArgumentError,
    Durability,
    Fenced,
    NotWritable,
    PutError,
    ReplicaTimeout,
    StoreClosedError,
)
from rmqstore.errors import StoreError
from rmqstore.replication import Mode, Proposal, Quorum, Status
from tests.support.agreement import FILES
from tests.support.effort import rounds
from tests.support.service_group import (
    TWO,
    Group,
    assert_equal,
    bodies,
    follow,
    group,
    log_bytes,
    put,
)
from tests.support.waiting import wait_until

__all__ = ["group"]


# -- roles


def test_without_a_role_a_store_is_read_and_not_put_to(group: Group) -> None:
    replica = group.plain("a", 1)
    with pytest.raises(NotWritable, match="role"):
        put(replica, b"x")
    replica.become_master()
    put(replica, b"x")
    replica.close()
    replica.close()
    with pytest.raises(NotWritable, match="role"):
        put(replica, b"y")
    assert bodies(replica) == [b"x"]
    with pytest.raises(StoreClosedError):
        replica.become_master()


def test_a_slave_takes_no_puts_and_names_its_master(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    with pytest.raises(NotWritable) as caught:
        put(slave, b"x")
    assert master.address is not None
    assert caught.value.master_hint == f"127.0.0.1:{master.address[1]}"


def test_roles_go_back_and_forth(group: Group) -> None:
    replicas = [group.plain("a", 1, quorum=TWO), group.plain("b", 2, quorum=TWO)]
    put_in_all = []
    for epoch in range(1, 7):
        master, slave = replicas if epoch % 2 else replicas[::-1]
        slave.become_slave(master.address or "", epoch)
        master.become_master(epoch)
        for each in range(5):
            body = b"%d of epoch %d" % (each, epoch)
            put(master, body, copies=2)
            put_in_all.append(body)
        assert_equal(master, slave)
    assert [each.epoch for each in replicas[0].epochs] == [1, 2, 3, 4, 5, 6]
    assert bodies(replicas[1]) == put_in_all


def test_what_an_old_master_wrote_alone_is_cut(group: Group) -> None:
    old, new = group.plain("a", 1), group.plain("b", 2)
    old.become_master(1)
    follow(new, old, 1)
    put(old, b"both", copies=2)
    new.become_master(2)
    put(old, b"alone 1", b"alone 2", b"alone 3")
    put(new, b"new")
    follow(old, new, 2)
    assert_equal(old, new)
    assert bodies(new) == [b"both", b"new"]
    put(new, b"next", copies=2)
    assert_equal(old, new)


def test_equal_starts_of_two_epochs_do_not_hide_a_fork(group: Group) -> None:
    old, new = group.plain("a", 1), group.plain("b", 2)
    old.become_master(1)
    follow(new, old)
    put(old, b"both", copies=2)
    old.become_master(2)
    put(old, b"XXXX")
    new.become_master(3)
    put(new, b"YYYY")
    follow(old, new)
    assert_equal(old, new)
    assert bodies(old)[0] == b"both"


def test_a_master_elected_again_keeps_its_connections(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    put(master, b"1", copies=2)
    (before,) = master.replicas
    master.become_master(5)
    put(master, b"2", copies=2)
    (after,) = master.replicas
    assert after.connected_ms == before.connected_ms
    assert [each.epoch for each in slave.epochs] == [1, 5]
    assert slave.epoch == 5


def test_becoming_what_one_is_changes_nothing(group: Group) -> None:
    master = group.master()
    slave = group.slave(master)
    master.wait_in_sync(2, timeout=20)
    (before,) = master.replicas
    master.become_master(1)
    slave.become_slave(master.address or "")
    put(master, b"x", copies=2)
    assert master.replicas[0].connected_ms == before.connected_ms
    assert master.epoch == 1


def test_an_epoch_that_is_over_is_fenced(group: Group) -> None:
    master = group.master(epoch=4)
    slave = group.slave(master)
    put(master, b"x", copies=2)
    for epoch in (3, 4):
        with pytest.raises(Fenced) as caught:
            slave.become_master(epoch)
        assert caught.value.epoch == 4
    with pytest.raises(Fenced):
        slave.become_slave("127.0.0.1:1", 3)
    put(master, b"y", copies=2)
    assert slave.role == "slave"


def test_a_put_that_waits_when_the_role_ends_is_told(group: Group) -> None:
    master = group.master(quorum=Quorum(in_sync=2, timeout_ms=60_000))
    outcome: queue.SimpleQueue[ReplicaTimeout] = queue.SimpleQueue()

    def work() -> None:
        try:
            master.store.put("orders", b"x", durability=Durability.REPLICATED)
        except ReplicaTimeout as error:
            outcome.put(error)

    thread = threading.Thread(target=work)
    thread.start()
    other = group.plain("b", 2)
    other.become_master(2)
    # The put is in the log before the role ends, or refused.
    while master.end_offset == 0:
        pass
    master.become_slave(other.address or "")
    assert outcome.get(timeout=20).stored
    thread.join(20)


def test_a_failure_while_taking_office_leaves_a_second_try(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = group.plain("a", 1)

    def refuse(*_: object, **__: object) -> None:
        raise StoreError("the dispatcher failed")

    with monkeypatch.context() as patch:
        patch.setattr(replica.store, "wait_dispatched", refuse)
        with pytest.raises(StoreError, match="the dispatcher failed"):
            replica.become_master(7)
    assert replica.role is None
    with pytest.raises(NotWritable):
        put(replica, b"x")
    replica.become_master(7)
    put(replica, b"x")
    assert [each.epoch for each in replica.epochs] == [7]


def test_nothing_acknowledged_is_lost_while_roles_change_under_load(group: Group) -> None:
    a, b = group.plain("a", 1, quorum=TWO), group.plain("b", 2, quorum=TWO)
    a.become_master(1)
    follow(b, a)
    is_over = threading.Event()
    acknowledged: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def write(name: int) -> None:
        number = 0
        while not is_over.is_set():
            number += 1
            body = b"%d of %d" % (number, name)
            for replica in (a, b):
                try:
                    put(replica, body, copies=2)
                except PutError:
                    continue
                acknowledged.put(body)
                break

    threads = [threading.Thread(target=write, args=(each,)) for each in range(3)]
    for thread in threads:
        thread.start()
    master, slave = a, b
    for epoch in range(2, rounds(8, 60)):
        before = acknowledged.qsize()
        while acknowledged.qsize() < before + 20:
            master.wait_in_sync(2, timeout=20)
        # The old master still is one, alone, and takes puts that nobody acknowledges.
        slave.become_master(epoch)
        master.become_slave(slave.address or "")
        master, slave = slave, master
    is_over.set()
    for thread in threads:
        thread.join(60)
    slave.wait_caught_up(master.end_offset, timeout=20)
    assert_equal(master, slave)
    # What was acknowledged to the former master is read on this one once its own slave has said so.
    master.wait_confirmed(timeout=20)
    stored = set(bodies(master))
    reply = {acknowledged.get() for _ in range(acknowledged.qsize())}
    assert len(reply) > 100
    assert reply <= stored


# -- the sync-state set


def test_a_set_changes_only_when_it_is_confirmed(group: Group) -> None:
    proposals: queue.SimpleQueue[Proposal] = queue.SimpleQueue()
    master = group.master(members=[1], quorum=TWO, on_proposal=proposals.put)
    slave = group.slave(master)

    joining = proposals.get(timeout=20)
    assert joining.members == {1, 2}
    assert master.sync_state_set == {1}
    assert [each.number for each in master.proposals] == [joining.number]

    master.set_sync_state_set(joining.members, 1)
    put(master, b"x", copies=2)
    assert (master.sync_state_set, master.sync_state_set_epoch) == ({1, 2}, 1)
    assert master.proposals == ()

    slave.close()
    leaving = proposals.get(timeout=20)
    assert leaving.left == {2}

    end = master.end_offset
    put(master, b"nobody else has it")
    assert master.confirm_offset == end

    master.set_sync_state_set(leaving.members, 2)
    assert master.confirm_offset == master.end_offset


def test_a_callback_may_answer_at_once(group: Group) -> None:
    known = threading.Event()

    def answer(proposal: Proposal) -> None:
        known.wait(20)
        master.set_sync_state_set(proposal.members, proposal.set_epoch + 1)

    master = group.master(members=[1], quorum=TWO, on_proposal=answer)
    known.set()
    group.slave(master)
    master.wait_in_sync(2, timeout=20)
    put(master, b"x", copies=2)
    assert master.sync_state_set == {1, 2}


def test_a_set_without_this_master_ends_its_role(group: Group) -> None:
    reply: queue.SimpleQueue[Status] = queue.SimpleQueue()
    master = group.master(members=[1], set_epoch=3, on_change=reply.put)
    master.set_sync_state_set([2], 2)
    put(master, b"x")
    master.set_sync_state_set([2], 4)
    with pytest.raises(NotWritable):
        put(master, b"y")
    assert master.role is None
    assert "lacks this broker" in str(master.status().failure)
    while reply.get(timeout=20).role is not None:
        pass


@pytest.mark.parametrize("members", [[2], [-1, 1]])
def test_members_that_cannot_be_are_refused(group: Group, members: list[int]) -> None:
    replica = group.plain("a", 1)
    with pytest.raises(ArgumentError, match="members"):
        replica.become_master(members=members)
    replica.become_master()
    with pytest.raises(ArgumentError, match="no sync-state set"):
        replica.set_sync_state_set([1], 1)


def test_a_refused_proposal_comes_again(group: Group) -> None:
    proposals: queue.SimpleQueue[Proposal] = queue.SimpleQueue()
    master = group.master(mode=Mode.SYNC_STATE_SET, on_proposal=proposals.put)
    group.slave(master)
    first = proposals.get(timeout=20)
    master.refuse_proposal(first.number)
    second = proposals.get(timeout=20)
    master.lose_proposal(second.number)
    third = proposals.get(timeout=20)
    assert first.members == second.members == third.members


def test_a_new_version_of_the_set_ends_the_wait_for_a_joiner_that_left_unanswered(
    group: Group,
) -> None:
    proposals: queue.SimpleQueue[Proposal] = queue.SimpleQueue()
    master = group.master(members=[1], quorum=Quorum(all_ack=True), on_proposal=proposals.put)
    slave = group.slave(master)

    master.lose_proposal(proposals.get(timeout=20).number)
    end = master.end_offset
    slave.close()

    for _ in range(20):
        proposal = proposals.get(timeout=20)
        if not proposal.joined:
            break
        master.lose_proposal(proposal.number)

    assert proposal.members == {1}
    put(master, b"nobody else has it")
    assert master.confirm_offset == end
    master.set_sync_state_set(proposal.members, proposal.set_epoch + 1)
    assert (master.confirm_offset, master.proposals) == (master.end_offset, ())


# -- what is taken off


def test_classic_slave_that_is_longer_and_forked_halts_with_a_reason_and_a_lag(
    group: Group,
) -> None:
    one, two = (
        group.plain(name, number, protocol="classic", quorum=Quorum(in_sync=1))
        for number, name in enumerate("ab", 1)
    )

    one.become_master()
    put(one, *(b"%d" % number * 200 for number in range(20)))
    follow(two, one)

    two.become_master(2)
    put(two, *(b"fork %d" % number * 200 for number in range(60)))
    put(one, *(b"new %d" % number for number in range(20)))
    assert two.end_offset > one.end_offset + 4096

    before = log_bytes(two)
    two.become_slave(one.address or "")
    wait_until(two, lambda: two.master_status.halted_reason is not None, "a halt")

    status = two.master_status
    assert status is not None
    assert "are not those of the master" in str(status.halted_reason)
    assert status.lag_bytes > 0
    assert log_bytes(two) == before


def test_a_slave_away_for_longer_than_its_master_keeps_messages_begins_anew_by_permission(
    group: Group,
) -> None:
    master, slave = group.plain("a", 1), group.plain("b", 2)
    master.become_master(1)
    follow(slave, master)

    put(master, b"kept" * 100, copies=2)
    held = log_bytes(slave)

    slave.become_slave("127.0.0.1:1")
    body = b"x" * 1000
    put(master, *([body] * (3 * FILES["commit_log_file_size_bytes"] // len(body))))
    master.store.expire_files(2)

    slave.become_slave(master.address or "")
    wait_until(slave, lambda: slave.master_status.halted_reason is not None, "a halt")
    assert log_bytes(slave) == held

    slave.become_slave(master.address or "", begin_anew=True)
    slave.wait_caught_up(master.end_offset, timeout=20)
    assert_equal(master, slave)
    assert Path(slave.store.path, "cut", f"{0:020}").read_bytes() == held


def test_what_a_deposed_master_alone_had_is_kept_when_it_follows(group: Group) -> None:
    one, two = group.plain("a", 1), group.plain("b", 2)
    one.become_master(1)
    put(one, b"both")
    follow(two, one)
    parted = one.end_offset
    two.become_master(2)
    put(one, b"alone 1", b"alone 2")
    tail = log_bytes(one)[parted:]
    put(two, b"new")
    follow(one, two)
    assert_equal(one, two)
    assert Path(one.store.path, "cut", f"{parted:020}").read_bytes() == tail
