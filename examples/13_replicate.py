"""Replicate with a quorum: two copies before an acknowledgement, and another master afterwards."""

import tempfile

import rmqstore
from rmqstore import Durability, NotWritable, ReplicaTimeout
from rmqstore.replication import Master, Quorum, Slave

two_copies = Quorum(in_sync=2, timeout_ms=500)

with (
    tempfile.TemporaryDirectory() as folder,
    rmqstore.open(f"{folder}/a.store") as a,
    rmqstore.open(f"{folder}/b.store") as b,
):
    # Port 0 is any that is free; between machines name one, and the networks that may connect.
    with (
        Master(a, listen="127.0.0.1:0", quorum=two_copies) as master,
        Slave(b, master=master.address, listen="127.0.0.1:0", quorum=two_copies) as other,
    ):
        master.wait_in_sync(2, timeout=10.0)
        receipt = a.put("orders", b"paid", keys=["o-17"], durability=Durability.REPLICATED)
        print(f"{receipt.copies} copies, confirmed up to {master.confirm_offset}")
        print([(each.state.name, each.lag_bytes) for each in master.replicas])

        # A slave is read like any store, up to the confirm offset. Puts belong to its master.
        other.wait_confirmed(receipt.end_offset, timeout=10.0)
        assert b.find("orders", "o-17")[0].body == b"paid"
        try:
            b.put("orders", b"to the wrong one")
        except NotWritable as error:
            print(f"stored: {error.stored}; the master is at {error.master_hint}")

        # The slave takes over: nothing that had two copies is missing from it.
        other.become_master(epoch=2)
        try:
            a.put("orders", b"nobody else has this", durability=Durability.REPLICATED)
        except ReplicaTimeout as error:
            print(f"{error.status}, stored: {error.stored}, retriable: {error.retriable}")

        # The old master follows, and gives up what it never acknowledged.
        master.become_slave(other.address, epoch=2)
        other.wait_in_sync(2, timeout=10.0)
        b.put("orders", b"shipped", durability=Durability.REPLICATED)
        master.wait_confirmed(b.end_offset, timeout=10.0)
        bodies = [record.body for record in a.queue("orders").records()]
        print(f"epoch {master.epoch}: {bodies}")
        assert bodies == [b"paid", b"shipped"]
