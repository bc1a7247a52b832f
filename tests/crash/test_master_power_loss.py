"""A master that loses power and comes back as master: what its slaves hold stays.

The loss is that of one machine: its directory is put back to what was on the disk before the puts,
which nothing had flushed; the slaves' processes and machines live on.
"""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import rmqstore
from rmqstore.replication import HaOptions, Quorum, ReplicatedStore
from tests.support.agreement import FILES
from tests.support.waiting import wait_until

LAZY = {"flush_commit_log_interval_ms": 600_000, "flush_commit_log_thorough_interval_ms": 600_000}
COUNT = 50


def bodies(replica: ReplicatedStore) -> list[bytes]:
    replica.store.wait_dispatched()
    return [each.body for each in replica.store.queue("t").records()]


def test_acknowledged_messages_survive_a_master_that_lost_power_and_is_master_again(
    tmp_path: Path,
) -> None:
    with ExitStack() as stack:

        def replica(name: str, number: int, listen: Any = "127.0.0.1:0") -> ReplicatedStore:
            store = stack.enter_context(rmqstore.open(tmp_path / name, **FILES, **LAZY))
            return ReplicatedStore(
                store,
                broker_id=number,
                listen=listen,
                quorum=Quorum(total=3, in_sync=2, timeout_ms=20_000),
                options=HaOptions(heartbeat_ms=200, reconnect_ms=20),
            )

        master, *slaves = [replica(name, number) for number, name in enumerate("abc", 1)]
        address = master.address
        assert address is not None
        master.become_master(1)
        for slave in slaves:
            slave.become_slave(address)
        master.wait_in_sync(3, timeout=30)
        master.store.put("t", b"flushed", copies=3)
        master.store.flush()
        shutil.copytree(tmp_path / "a", tmp_path / "on-disk")
        for number in range(COUNT):
            master.store.put("t", b"%d" % number, copies=3)
        for slave in slaves:
            slave.wait_confirmed(master.end_offset, timeout=30)
        kept = bodies(slaves[0])
        master.store.close()
        shutil.rmtree(tmp_path / "a")
        (tmp_path / "on-disk").rename(tmp_path / "a")

        master = replica("a", 1, listen=address)
        master.become_master(2, others_asked=True)  # They were not.
        assert len(bodies(master)) < len(kept) == COUNT + 1
        for slave in slaves:
            wait_until(slave, lambda at=slave: at.master_status.halted_reason, "a halt")
            assert "confirmed messages" in str(slave.master_status.halted_reason)
            assert bodies(slave) == kept

        best, other = slaves
        best.become_master(3)
        for each in (master, other):
            each.become_slave(best.address or "")
        best.wait_in_sync(3, timeout=30)
        best.store.put("t", b"new", copies=3)
        for each in (master, other):
            each.wait_confirmed(best.end_offset, timeout=30)
            assert bodies(each) == [*kept, b"new"]
