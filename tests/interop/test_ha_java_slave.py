"""Live Java replicas that follow rmqstore: both protocols, both releases."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Durability
from rmqstore.replication import HaOptions, Master, Mode, Quorum, ReplicatedStore, Slave
from tests.interop.ha_case import (
    FILE_SIZE,
    IN_PIECES,
    LISTEN,
    MESSAGE_BYTES,
    QUICK,
    ROLE_PREFIX,
    Protocol,
    assert_same,
    chunks,
    epochs_of,
    has_all,
    message,
    open_store,
    put,
)
from tests.support.java_replica import Replica, Replicas
from tests.support.releases import NEW, OLD, with_release, with_releases
from tests.support.waiting import wait_until


def start_slave(
    replicas: Replicas, root: Path, master: ReplicatedStore, protocol: Protocol, **options: object
) -> Replica:
    """Start a Java slave of *master*; its broker id is 2."""
    assert master.address is not None
    if protocol == "autoswitch":
        options = {"epoch": master.epoch, "broker_id": 2} | options
    host, port = master.address
    return replicas.java(f"{ROLE_PREFIX[protocol]}-slave", root, master=f"{host}:{port}", **options)


def lead(
    store: rmqstore.Store,
    *,
    options: HaOptions = QUICK,
    protocol: Protocol = "autoswitch",
    **more: Any,
) -> Master:
    """Make *store* master, broker 1, at a free port."""
    return Master(store, listen=LISTEN, broker_id=1, protocol=protocol, options=options, **more)


@with_releases("protocol", {"autoswitch": OLD, "classic": NEW})
def test_java_slave_catches_up_follows_live_puts_and_acknowledges_quorum_writes(
    java_replica: Replicas, protocol: Protocol, tmp_path: Path
) -> None:
    quorum = Quorum(total=2, in_sync=2, timeout_ms=20_000)
    with (
        open_store(tmp_path / "ours") as store,
        lead(store, options=IN_PIECES, protocol=protocol, quorum=quorum) as master,
    ):
        java = start_slave(java_replica, tmp_path / "java", master, protocol)
        master.wait_in_sync(2, timeout=30)
        put(store, range(20), copies=2)
        java.kill()
        # Several files behind, and then while more is put.
        put(store, range(20, 220))
        assert store.end_offset > 4 * FILE_SIZE
        java = start_slave(java_replica, tmp_path / "java", master, protocol)
        put(store, range(220, 420))
        put(store, range(420, 450), copies=2)
        assert_same(java, store)
        assert java.state["minOffset"] == 0
        if protocol == "autoswitch":
            assert java.state["epochs"] == epochs_of(master)


@with_releases("protocol", {"autoswitch": NEW, "classic": OLD})
def test_nothing_acknowledged_is_missing_after_kills_on_either_side_under_load(
    java_replica: Replicas, protocol: Protocol, tmp_path: Path
) -> None:
    def start_ours(port: int, first: int, epoch: int) -> Replica:
        return java_replica.ours(
            "master",
            tmp_path / "ours",
            protocol=protocol,
            copies=2,
            batch_bytes=700,
            listen=port,
            first=first,
            epoch=epoch,
        )

    def start_java() -> Replica:
        return java_replica.java(
            f"{ROLE_PREFIX[protocol]}-slave",
            tmp_path / "java",
            master=ours.address,
            **({"broker_id": 2} if protocol == "autoswitch" else {}),
        )

    ours = start_ours(0, 0, 1)
    java = start_java()
    ours.wait_state(lambda state: has_replica(state, 0), "the slave's first word")
    load = ours.send(f"put 4000 {MESSAGE_BYTES} 2")
    ours.wait_events("acked", 301)
    java.kill()
    java = start_java()
    count = len(ours.events_of("acked"))
    ours.wait_events("acked", count + 301)
    ours.kill()
    acked = {each["number"]: each["offset"] for each in ours.events_of("acked")}
    assert len(acked) > 600
    assert load == 0
    port = ours.state["haPort"]
    java.kill()
    ours = start_ours(port, 10_000, 2)
    java = start_java()
    ours.wait_state(
        lambda state: has_replica(state, state["maxOffset"]), "a slave that holds everything"
    )
    ours.ask(f"put 50 {MESSAGE_BYTES} 2")
    acked |= {each["number"]: each["offset"] for each in ours.events_of("acked")}
    java.wait_state(has_all(ours.ask("status")["maxOffset"]), "all of the log, confirmed")
    ours.quit()
    with open_store(tmp_path / "ours") as store:
        for number, offset in acked.items():
            assert store.record_at(offset).keys == [f"ours-{number}"]
        assert_same(java, store, was_killed=True)


def has_replica(state: Any, offset: int) -> bool:
    return any(each["ackOffset"] >= offset for each in state["replicas"])


@with_release(NEW)
def test_java_slave_that_is_promoted_has_all_that_was_acknowledged_and_ours_follows_it(
    java_replica: Replicas, tmp_path: Path
) -> None:
    ours = java_replica.ours("master", tmp_path / "ours", copies=2, epoch=1)
    java = java_replica.java(
        "autoswitch-slave", tmp_path / "java", master=ours.address, broker_id=2, epoch=1
    )
    ours.wait_state(lambda state: has_replica(state, 0), "the slave's first word")

    # The log ends within the eighth file, of 39 records like all others: at the border of two files
    # Java's promotion ends with an IndexOutOfBoundsException.
    ours.send(f"put 310 {MESSAGE_BYTES} 2")
    ours.wait_events("acked", 280)

    java.ask("disconnect")
    ours.wait_state(lambda state: not state["replicas"], "the end of the connection")

    # A put that still waits for its copy is stored here alone.
    ours.kill()
    acked = {each["number"]: each["offset"] for each in ours.events_of("acked")}

    java.ask("promote 2 1,2")
    java.ask("skip 5000")
    java.ask("syncset 2")
    chunks(java, count=20)

    with open_store(tmp_path / "ours") as store:
        ended = store.end_offset
        with Slave(store, master=java.address, broker_id=1, options=QUICK) as slave:
            wait_until(slave, lambda: epochs_of(slave) == java.state["epochs"], "Java's epochs")
            end = chunks(java, count=20)
            slave.wait_caught_up(end, timeout=30)
            assert_same(java, store)

        for number, offset in acked.items():
            assert store.record_at(offset).keys == [f"ours-{number}"]
        assert max(acked.values()) < ended


def test_epochs_that_begin_while_connected_reach_a_java_slave_and_forks_are_cut(
    java_replica: Replicas, tmp_path: Path
) -> None:
    with (
        open_store(tmp_path / "ours") as store,
        lead(store, options=IN_PIECES, epoch=1) as master,
    ):
        java = start_slave(java_replica, tmp_path / "java", master, "autoswitch")
        for epoch in (2, 4, 5):
            put(store, range(epoch * 10, epoch * 10 + 7))
            master.become_master(epoch)
            java.wait_state(
                lambda state: state["maxOffset"] == store.end_offset, f"the log before {epoch}"
            )
        put(store, range(60, 80))
        assert_same(java, store)
        java.wait_state(lambda state: state["epochs"] == epochs_of(master), "our epochs")
        assert [entry[0] for entry in epochs_of(master)] == [1, 2, 4, 5]
        # It wrote in epochs of its own that nobody has seen.
        java.kill()
        java = java_replica.java(
            "autoswitch-master", tmp_path / "java", broker_id=2, epoch=6, seed=9
        )
        chunks(java, count=5)
        java.ask("promote 7 2")
        chunks(java, count=5)
        forked = java.ask("status")["epochs"]
        assert [entry[0] for entry in forked] == [1, 2, 4, 5, 6, 7]
        java.kill()
        master.become_master(9)
        put(store, range(80, 90))
        java = start_slave(java_replica, tmp_path / "java", master, "autoswitch")
        assert_same(java, store)
        common = epochs_of(master)[:4]
        if java_replica.release == "5.3.3":
            assert java.state["epochs"] == epochs_of(master)
        else:
            # It keeps what it should have cut, refuses what follows, and no list of its is trusted.
            assert java.state["epochs"][:4] == common
        # Whatever list it keeps, joining once more and a further epoch do it no harm.
        java.kill()
        master.become_master(10)
        put(store, range(90, 110))
        java = start_slave(java_replica, tmp_path / "java", master, "autoswitch")
        assert_same(java, store)


@with_release(NEW)
def test_h1_fork_of_a_java_slave_under_an_epoch_that_both_know_is_cut(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = java_replica.java("autoswitch-master", tmp_path / "java", broker_id=2, epoch=1)
    with open_store(tmp_path / "ours") as store:
        with ReplicatedStore(store, broker_id=1, listen=LISTEN, options=QUICK) as ours:
            ours.become_slave(java.address)
            end = chunks(java, count=5)
            ours.wait_caught_up(end, timeout=30)
            java.ask("promote 2 2")
            wait_until(ours, lambda: epochs_of(ours) == [[1, 0], [2, end]], "epoch 2, still empty")
            # Epoch 3 begins where epoch 2 does, and Java has written in epoch 2 meanwhile.
            ours.become_master(3)
            java.wait_state(lambda state: not state["connections"], "the end of the connection")
            assert chunks(java, count=5) > end
            java.kill()
            put(store, range(9))
            java = start_slave(java_replica, tmp_path / "java", ours, "autoswitch")
            assert_same(java, store)
            assert epochs_of(ours)[-1] == [3, end]


@with_release(OLD)
def test_java_learner_never_counts_and_a_member_counts_once_the_set_says_so(
    java_replica: Replicas, tmp_path: Path
) -> None:
    with (
        open_store(tmp_path / "ours") as store,
        lead(
            store,
            members=(1,),
            mode=Mode.SYNC_STATE_SET,
            quorum=Quorum(total=2, all_ack=True, timeout_ms=5000),
        ) as master,
    ):
        learner = start_slave(
            java_replica,
            tmp_path / "learner",
            master,
            "autoswitch",
            async_learner=True,
            broker_id=9,
        )
        end = put(store, range(20), copies=1)
        learner.wait_state(has_all(end), "all of the log")
        assert not master.proposals
        assert [each.is_learner for each in master.replicas] == [True]
        assert not any(each.is_counted for each in master.replicas)
        with pytest.raises(rmqstore.PutError):
            store.put(message(20), copies=2)

        java = start_slave(java_replica, tmp_path / "java", master, "autoswitch", all_ack=True)
        wait_until(master, lambda: bool(master.proposals), "a proposal")
        assert set(master.proposals[-1].members) == {1, 2}
        master.set_sync_state_set((1, 2), set_epoch=1)
        end = put(store, range(21, 40), copies=2)
        wait_until(master, lambda: store.confirm_offset == end, "a confirm offset that follows")
        assert_same(java, store)
        # A member that is gone is waited for: nothing is acknowledged or confirmed without it.
        java.kill()
        with pytest.raises(rmqstore.ReplicaTimeout):
            store.put(message(40), durability=Durability.REPLICATED)
        assert store.confirm_offset == end
        java = start_slave(java_replica, tmp_path / "java", master, "autoswitch", all_ack=True)
        wait_until(
            master, lambda: store.confirm_offset == store.end_offset, "the confirm offset moves"
        )
        # It was proposed out, and counts again once a newer set keeps it.
        assert set(master.proposals[-1].members) == {1}
        master.set_sync_state_set((1, 2), set_epoch=2)
        put(store, range(41, 45), copies=2)
        assert_same(java, store)
        assert_same(learner, store)


@with_release(NEW)
def test_java_slaves_begin_where_they_ask_to_and_one_before_our_first_byte_never_counts(
    java_replica: Replicas, tmp_path: Path
) -> None:
    with (
        open_store(tmp_path / "ours") as store,
        lead(store, quorum=Quorum(total=3, timeout_ms=300)) as master,
    ):
        old = start_slave(java_replica, tmp_path / "old", master, "autoswitch", broker_id=3)
        old.wait_state(has_all(put(store, range(5))), "all of the log")
        old.kill()
        put(store, range(5, 100))
        master.become_master(master.epoch + 1)
        put(store, range(100, 200))
        store.wait_flushed()
        store.expire_files(1)
        assert store.start_offset == FILE_SIZE
        trimmed = start_slave(java_replica, tmp_path / "trimmed", master, "autoswitch", broker_id=4)
        last = start_slave(
            java_replica,
            tmp_path / "last",
            master,
            "autoswitch",
            broker_id=5,
            sync_from_last_file=True,
        )
        assert_same(trimmed, store)
        assert trimmed.state["minOffset"] == FILE_SIZE
        assert_same(last, store)
        assert last.state["minOffset"] == store.end_offset // FILE_SIZE * FILE_SIZE
        old = start_slave(java_replica, tmp_path / "old", master, "autoswitch", broker_id=3)
        wait_until(
            master,
            lambda: any(each.broker_id == 3 for each in master.replicas),
            "the one that is behind",
        )
        for each in master.replicas:
            assert each.broker_id != 3 or not each.is_counted or each.ack_offset < FILE_SIZE
        with pytest.raises(rmqstore.PutError):
            store.put(message(200), copies=4)
        assert old.ask("status")["maxOffset"] < FILE_SIZE


@with_release(OLD)
def test_classic_java_slave_that_forked_or_is_ahead_is_never_counted(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = java_replica.java("default-master", tmp_path / "java", seed=9)
    ahead = chunks(java, count=40)
    java.kill()

    quorum = Quorum(total=2, in_sync=2, timeout_ms=300)
    with (
        open_store(tmp_path / "ours") as store,
        lead(store, protocol="classic", quorum=quorum) as master,
    ):
        for number in range(3):
            with pytest.raises(rmqstore.ReplicaTimeout):
                store.put(message(number), copies=2)
        assert store.end_offset < ahead

        java = start_slave(java_replica, tmp_path / "java", master, "classic")
        with pytest.raises(rmqstore.ReplicaTimeout):
            store.put(message(3), copies=2)
        assert java.ask("status")["maxOffset"] == ahead
        assert store.confirm_offset == 0
