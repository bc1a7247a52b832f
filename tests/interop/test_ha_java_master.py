"""rmqstore follows live Java masters: both protocols, both releases."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore.config import FlushDiskType
from rmqstore.replication import ReplicatedStore, Slave
from tests.interop.ha_case import (
    FILE_SIZE,
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


def start_master(replicas: Replicas, root: Path, protocol: Protocol, **options: object) -> Replica:
    """Start a Java master, broker 1, of epoch 1 unless *options* say otherwise."""
    if protocol == "autoswitch":
        options = {"epoch": 1, "broker_id": 1, "auto_sync_set": True} | options
    return replicas.java(f"{ROLE_PREFIX[protocol]}-master", root, **options)


@contextmanager
def following(
    root: Path, java: Replica, protocol: Protocol = "autoswitch", **more: Any
) -> Iterator[tuple[rmqstore.Store, Slave]]:
    """Open the store at *root* as broker 2, a slave of *java*."""
    more = {"broker_id": 2, "options": QUICK} | more
    with (
        open_store(root) as store,
        Slave(store, master=java.address, protocol=protocol, **more) as slave,
    ):
        yield store, slave


NEEDS_TWO = {"total_replicas": 2, "in_sync_replicas": 2}
"""With these a Java put waits for us."""


@with_releases("protocol", {"autoswitch": OLD, "classic": NEW})
def test_we_catch_up_follow_live_puts_and_acknowledge_quorum_writes(
    java_replica: Replicas, protocol: Protocol, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", protocol)
    with following(tmp_path / "ours", java, protocol) as (_, slave):
        slave.wait_caught_up(chunks(java, count=20), timeout=30)

    assert chunks(java, count=150, each=50) > 3 * FILE_SIZE

    java.kill()
    more = NEEDS_TWO | ({"epoch": 2} if protocol == "autoswitch" else {})
    java = start_master(
        java_replica, tmp_path / "java", protocol, batch_size=700, first_message=1000, **more
    )

    load = java.send(f"put 100 {MESSAGE_BYTES}")
    with following(tmp_path / "ours", java, protocol) as (store, slave):
        java.answer(load)
        end = chunks(java, count=30)
        # Each of them was acknowledged, so all of it is here.
        assert store.end_offset == end
        assert_same(java, store)
        if protocol == "autoswitch":
            assert epochs_of(slave) == java.state["epochs"]
            java.wait_state(lambda state: state["syncStateSet"] == [1, 2], "us in the set")


@with_releases("protocol", {"autoswitch": OLD, "classic": NEW})
def test_with_sync_flush_java_gets_acknowledgements_of_our_disk(
    java_replica: Replicas, protocol: Protocol, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", protocol, **NEEDS_TWO)
    with (
        open_store(
            tmp_path / "ours",
            flush_disk_type=FlushDiskType.SYNC_FLUSH,
            flush_commit_log_thorough_interval_ms=600_000,
        ) as store,
        Slave(store, master=java.address, protocol=protocol, broker_id=2, options=QUICK) as slave,
    ):
        assert slave.acknowledges_flushed
        slave.wait_caught_up(chunks(java, count=5), timeout=30)
        end = chunks(java, count=100)
        # Each of them was acknowledged, so all of it is on this disk.
        assert store.flushed_offset >= end
        assert_same(java, store)


@with_releases("protocol", {"autoswitch": NEW, "classic": OLD})
def test_nothing_that_java_acknowledged_is_missing_after_kills_on_either_side_under_load(
    java_replica: Replicas, protocol: Protocol, tmp_path: Path
) -> None:
    def start_java(port: int, epoch: int) -> Replica:
        more: dict[str, object] = {"epoch": epoch} if protocol == "autoswitch" else {}
        return start_master(
            java_replica,
            tmp_path / "java",
            protocol,
            ha_port=port,
            batch_size=700,
            slave_timeout_ms=30_000,
            first_message=epoch * 100_000,
            **NEEDS_TWO,
            **more,
        )

    def start_ours() -> Replica:
        return java_replica.ours(
            "slave", tmp_path / "ours", protocol=protocol, master=java.address, broker_id=2
        )

    java = start_java(0, 1)
    ours = start_ours()
    end = chunks(java, count=50)
    load = java.send(f"put 200 {MESSAGE_BYTES}")
    ours.wait_state(lambda state: state["maxOffset"] > end + 20_000, "the load")
    ours.kill()
    ours = start_ours()
    reply = java.answer(load)
    assert reply["statuses"] == {"PUT_OK": 200}
    java.send(f"put 5000 {MESSAGE_BYTES}")
    end = reply["maxOffset"]
    ours.wait_state(lambda state: state["maxOffset"] > end + 20_000, "more load")
    acked = max(each["ackedBySlaves"] for each in java.events_of("state"))
    port = java.state["haPort"]
    java.kill()
    java = start_java(port, 2)
    # We come back by ourselves.
    end = chunks(java, count=20)
    assert end > acked
    ours.wait_state(lambda state: state["maxOffset"] == end, "all of the log")
    ours.quit()
    with open_store(tmp_path / "ours") as store:
        assert store.end_offset == end
        assert_same(java, store, was_killed=True)


def test_we_take_over_javas_epochs_and_lose_a_fork_that_we_wrote_over_epochs(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", "autoswitch", batch_size=700)
    with (
        open_store(tmp_path / "ours") as store,
        ReplicatedStore(store, broker_id=2, listen=LISTEN, options=QUICK) as ours,
    ):
        ours.become_slave(java.address)
        for epoch in (2, 4):
            end = chunks(java, count=5)
            ours.wait_caught_up(end, timeout=30)
            java.ask(f"promote {epoch} 1")
        end = chunks(java, count=5)
        ours.wait_caught_up(end, timeout=30)
        wait_until(ours, lambda: epochs_of(ours) == java.state["epochs"], "Java's epochs")
        java.ask("bump 5")
        ours.wait_caught_up(chunks(java, count=5), timeout=30)
        if java_replica.release == "5.5.0":
            # 5.3.3 tells an epoch that begins without an election only to slaves that connect.
            wait_until(ours, lambda: ours.epochs[-1].epoch == 5, "epoch 5")
            assert epochs_of(ours) == java.ask("status")["epochs"]
        assert_same(java, store)

        ours.become_master(6)
        put(store, range(7))
        ours.become_master(7)
        put(store, range(7, 14))
        forked = store.end_offset
        java.ask("promote 8 1")
        chunks(java, count=10)
        ours.become_slave(java.address)
        wait_until(ours, lambda: ours.epochs[-1].epoch == 8, "our epochs cut")
        assert epochs_of(ours) == java.ask("status")["epochs"]
        end = chunks(java, count=10)
        ours.wait_caught_up(end, timeout=30)
        assert end != forked
        assert_same(java, store)
        assert [entry[0] for entry in epochs_of(ours)] == [1, 2, 4, 5, 8]
        files = [tmp_path / name / "epochFileCheckpoint" for name in ("ours", "java")]
        assert files[0].read_bytes() == files[1].read_bytes()


@with_release(NEW)
def test_h1_fork_that_javas_refused_epoch_hides_is_found_and_cut(
    java_replica: Replicas, tmp_path: Path
) -> None:
    with (
        open_store(tmp_path / "ours") as store,
        ReplicatedStore(store, broker_id=1, listen=LISTEN, options=QUICK) as ours,
    ):
        ours.become_master(1)
        end = put(store, range(5))
        assert ours.address is not None
        java = java_replica.java(
            "autoswitch-slave",
            tmp_path / "java",
            broker_id=2,
            epoch=1,
            master=f"{ours.address[0]}:{ours.address[1]}",
        )
        # With something left to dispatch it would drop the entry when it is promoted.
        java.wait_state(has_all(end), "all of the log")
        ours.become_master(2)
        java.wait_state(lambda state: state["epochs"] == [[1, 0], [2, end]], "an empty epoch 2")
        java.ask("disconnect")
        wait_until(ours, lambda: not ours.replicas, "the end of the connection")
        lost = put(store, range(5, 8))
        java.ask("promote 3 2")
        chunks(java, count=5)
        # RocketMQ refuses an entry that begins where the last one does.
        assert java.ask("status")["epochs"] == [[1, 0], [2, end]]
        ours.become_slave(java.address)
        wait_until(ours, lambda: store.end_offset != lost, "the cut")
        ours.wait_caught_up(chunks(java, count=5), timeout=30)
        assert_same(java, store)


@with_release(NEW)
def test_release_5_5_0_stale_epochs_of_a_java_master_do_not_hide_a_fork(
    java_replica: Replicas, tmp_path: Path
) -> None:
    # A writes epochs 5 and 6, which we copy and B never sees.
    a = start_master(java_replica, tmp_path / "a", "autoswitch")
    common = chunks(a, count=10)
    b = java_replica.java(
        "autoswitch-slave", tmp_path / "b", broker_id=3, epoch=1, master=a.address
    )

    b.wait_state(lambda state: state["maxOffset"] == common, "all of the log")
    b.kill()

    for epoch in (5, 6):
        a.ask(f"promote {epoch} 1")
        end = chunks(a, count=5)

    with following(tmp_path / "ours", a) as (_, slave):
        slave.wait_caught_up(end, timeout=30)
    a.kill()

    # B writes epoch 7 from where epoch 5 began; A joins, and becomes master again.
    b = start_master(java_replica, tmp_path / "b", "autoswitch", broker_id=3, epoch=7, seed=7)

    newer = chunks(b, count=30, size=450)
    a = java_replica.java(
        "autoswitch-slave", tmp_path / "a", broker_id=1, epoch=7, master=b.address
    )
    a.wait_state(lambda state: state["maxOffset"] == newer, "all of B's log")
    b.kill()

    epochs = [entry[0] for entry in a.ask("promote 8 1")["epochs"]]
    assert epochs == ([1, 7, 8] if java_replica.release == "5.3.3" else [1, 5, 6, 8])
    a.ask("skip 5000")
    chunks(a, count=5)

    with following(tmp_path / "ours", a) as (store, slave):
        slave.wait_caught_up(chunks(a, count=5), timeout=30)
        assert_same(a, store)


@with_release(OLD)
def test_learner_last_file_and_a_java_master_that_begins_behind_our_end(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", "autoswitch")
    with following(tmp_path / "old", java, broker_id=3, is_learner=True) as (_, slave):
        slave.wait_caught_up(chunks(java, count=10), timeout=30)
        java.wait_state(lambda state: bool(state["connections"]), "the learner")
        assert java.state["connections"][0]["asyncLearner"]
        assert java.events_of("syncStateSetWanted") == []

    chunks(java, count=50)
    java.ask("promote 2 1")
    chunks(java, count=60)
    java.ask("delete-first")
    assert java.ask("status")["minOffset"] == FILE_SIZE

    with (
        following(tmp_path / "last", java, broker_id=4, sync_from_last_file=True) as (
            last,
            at_last,
        ),
        following(tmp_path / "fresh", java, broker_id=5) as (fresh, from_first),
        following(tmp_path / "old", java, broker_id=3, begin_anew=True) as (old, rebegun),
    ):
        end = chunks(java, count=10)
        for slave in (at_last, from_first, rebegun):
            slave.wait_caught_up(end, timeout=30)
        assert fresh.start_offset == old.start_offset == FILE_SIZE
        assert last.start_offset > FILE_SIZE

        for store in (last, fresh, old):
            assert_same(java, store)
        partial = [each.status().is_partial for each in (at_last, from_first, rebegun)]
        assert partial == [True, False, False]
        assert epochs_of(from_first) == epochs_of(rebegun) == java.ask("status")["epochs"]


def test_java_that_waits_for_all_its_members_waits_for_us(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", "autoswitch", all_ack=True)
    with following(tmp_path / "ours", java) as (store, slave):
        slave.wait_caught_up(timeout=30)
        java.wait_state(lambda state: state["syncStateSet"] == [1, 2], "us in the set")
        end = chunks(java, count=20)
        java.wait_state(lambda state: state["confirmOffset"] == end, "confirmed by us")
        assert_same(java, store)
        # What Java confirmed is what we hold, and our readers see as much.
        wait_until(slave, lambda: store.confirm_offset == end, "the confirm offset that Java told")


@with_release(NEW)
def test_classic_log_that_forked_or_is_ahead_of_javas_halts_and_touches_nothing(
    java_replica: Replicas, tmp_path: Path
) -> None:
    java = start_master(java_replica, tmp_path / "java", "classic")
    behind = chunks(java, count=5)
    for name, count in (("forked", 3), ("ahead", 50)):
        with open_store(tmp_path / name) as store:
            end = put(store, range(count))
        assert (end > behind) == (name == "ahead")
        with following(tmp_path / name, java, "classic") as (store, slave):
            chunks(java, count=5)
            wait_until(
                slave, lambda: slave.master_status.halted_reason is not None, f"{name}: a halt"
            )
            assert store.end_offset == end
            assert store.get("HaTopic", queue=0, offset=0).body == message(0).body
