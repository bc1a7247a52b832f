"""The same verbs for asyncio: the append is immediate, the await is the acknowledgement."""

import asyncio
import tempfile

import rmqstore.aio
from rmqstore import Durability

ORDERS = 20


async def consume(store: rmqstore.aio.AsyncStore) -> list[bytes]:
    bodies: list[bytes] = []
    async for record in store.queue("orders", 0).follow(start="start"):
        bodies.append(record.body)
        if len(bodies) == ORDERS:
            break
    return bodies


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with rmqstore.aio.open(f"{folder}/orders.store") as store:
            consumer = asyncio.create_task(consume(store))
            # Puts that wait at the same time share syncs: twenty orders, far fewer than twenty.
            bodies = [b"order %d" % number for number in range(ORDERS)]
            await asyncio.gather(
                *(store.put("orders", body, durability=Durability.DISK) for body in bodies)
            )
            assert await consumer == bodies
            print(f"{ORDERS} orders put and consumed; flushed to {store.store.flushed_offset}")


asyncio.run(main())
