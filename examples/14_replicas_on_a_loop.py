"""Replicas of several stores on one event loop; their verbs do not block it."""

import asyncio
import tempfile
from contextlib import AsyncExitStack, ExitStack

import rmqstore
from rmqstore.replication import Quorum, Replica

GROUPS = 5
two_copies = Quorum(in_sync=2, timeout_ms=500)


async def fail_over(master: Replica, slave: Replica, epoch: int) -> None:
    await slave.wait_caught_up(master.store.end_offset)
    await slave.become_master(epoch)
    await master.become_slave(slave.address, epoch)
    await slave.wait_in_sync(2)


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stores:
        async with AsyncExitStack() as replicas:

            async def replica(name: str) -> Replica:
                store = stores.enter_context(rmqstore.open(f"{folder}/{name}.store"))
                # Entered after its store, and so closed before it.
                return await replicas.enter_async_context(
                    Replica(store, listen="127.0.0.1:0", quorum=two_copies)
                )

            groups = [(await replica(f"{n}a"), await replica(f"{n}b")) for n in range(GROUPS)]
            for master, slave in groups:
                await master.become_master(epoch=1)
                master.store.put("orders", b"paid")
                await slave.become_slave(master.address, epoch=1)

            # All groups change their masters at the same time.
            await asyncio.gather(*(fail_over(*group, epoch=2) for group in groups))
            print([f"{slave.role} of epoch {slave.epoch}" for _, slave in groups])
            for master, slave in groups:
                slave.store.put("orders", b"shipped")
                await master.wait_confirmed(slave.store.end_offset)
                bodies = [record.body for record in master.store.queue("orders").records()]
                assert bodies == [b"paid", b"shipped"]
            print(f"{2 * GROUPS} replicas, one loop: {bodies}")


asyncio.run(main())
