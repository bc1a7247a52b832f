"""The number of living replicas, as a nameserver or a controller reports it to a master."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore import Durability, PutStatus
from rmqstore.errors import ArgumentError, PutError
from rmqstore.replication import Mode, Quorum, ReplicatedStore
from tests.support.agreement import FILES
from tests.support.service_group import HERE, QUICK
from tests.support.waiting import spin_until


def test_no_more_replicas_are_in_sync_than_are_alive(tmp_path: Path) -> None:
    quorum = Quorum(in_sync=2)
    with (
        rmqstore.open(tmp_path / "master", **FILES) as store,
        rmqstore.open(tmp_path / "slave", **FILES) as copy,
        ReplicatedStore(
            store, broker_id=1, listen=HERE, mode=Mode.ACTING_MASTER, quorum=quorum, options=QUICK
        ) as master,
        ReplicatedStore(copy, broker_id=2, options=QUICK) as slave,
    ):
        # The number of an earlier role holds for this one.
        master.set_alive_replicas(1)
        master.become_master(1)
        assert master.address is not None
        slave.become_slave(master.address, 1)
        spin_until(lambda: [each.ack_offset for each in master.replicas] == [0], "a report")
        with pytest.raises(PutError) as caught:
            store.put("orders", b"one", durability=Durability.REPLICATED)
        assert caught.value.status is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        assert caught.value.stored is False

        master.set_alive_replicas(2)
        store.put("orders", b"one", durability=Durability.REPLICATED)
        with pytest.raises(ArgumentError, match="count"):
            master.set_alive_replicas(0)
