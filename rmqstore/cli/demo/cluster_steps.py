"""The cluster step of `demo`: three controllers, a nameserver and a group of three brokers, each in
a separate process. The group loses its master under load, then the next master together with the
leading controller. Meanwhile a consumer of RocketMQ fails at its messages, where Java is found."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import rmqstore
from rmqstore.admin.controller import ControllerAdmin
from rmqstore.cli.demo.cluster_processes import BROKER_NAME, Cluster, Server, cluster
from rmqstore.cli.demo.cluster_writer import TOPIC, ClusterClient, numbers_in
from rmqstore.cli.demo.java_consumer import MESSAGES, java_command, java_consumer
from rmqstore.cli.demo.steps import Done
from rmqstore.controller.engines import raft
from rmqstore.errors import RemotingError, StoreTimeout

__all__ = ["show"]

_BEFORE = 500
"""Messages that are acknowledged before a master is killed, and again after the takeover."""
_WAIT_S = 180.0
_LOOK_S = 0.02


def show(folder: Path, done: Done) -> None:
    """Do the step in *folder*."""
    count = 3 if raft.is_built() else 1
    nodes = "three controllers" if count == 3 else "one controller (built without libraft)"
    print(
        f"8. {nodes}, a nameserver and three brokers in processes; masters are killed", flush=True
    )
    asyncio.run(_run(folder / "cluster", count, done))


async def _run(folder: Path, count: int, done: Done) -> None:
    java = await java_command()
    began = time.monotonic()
    async with (
        cluster(folder, count) as servers,
        ControllerAdmin(servers.controller_addresses) as admin,
        contextlib.AsyncExitStack() as stack,
    ):
        client = ClusterClient(servers.nameserver.address)
        try:
            await _until(lambda: _is_full(servers, admin), "a set of three")
            consumer = None
            if isinstance(java, list):
                running = java_consumer(java, folder, servers.nameserver.address)
                consumer = await stack.enter_async_context(running)
                await consumer.failed_at_all()
            client.start()
            said = [await _lose_master(servers, admin, client, with_leader=False)]
            if count > 1:
                said.append(await _lose_master(servers, admin, client, with_leader=True))
            await client.stop()
            read = await _read_all(client)
        finally:
            await client.close()
        retried = await consumer.proof() if consumer is not None else None
        await servers.end(signal.SIGTERM)

        copies = await asyncio.to_thread(_copies, servers.stores())
        sent = client.acknowledged
        lost = sum(number not in read for number in sent)
        single = sum(copies[number] < 2 for number in sent)
        proof = (
            f"{'; '.join(said)}; of {len(sent)} acknowledged messages {len(sent) - lost} are read "
            f"from the last master and {len(sent) - single} are in two stores or three"
        )
        is_proven = not lost and not single and len(sent) >= _BEFORE
        done("survive killed masters", len(sent), time.monotonic() - began, proof, is_proven)
        if retried is None:
            print(f"no consumer of RocketMQ: {java}", flush=True)
        else:
            done("fail, retry, give up in Java", MESSAGES, time.monotonic() - began, *retried)


async def _lose_master(
    servers: Cluster, admin: ControllerAdmin, client: ClusterClient, *, with_leader: bool
) -> str:
    """Kills the master and restarts it as a slave. Returns a description."""
    await _until(lambda: _is_full(servers, admin), "a set of three")
    await _until_sent(client, _BEFORE)
    master = await _master(servers, admin)
    lost = [master, await _leader(servers, admin)] if with_leader else [master]

    answers = len(client.answered)
    began = time.monotonic()
    await asyncio.gather(*(each.end(signal.SIGKILL) for each in lost))
    await _until(lambda: _holds(len(client.answered) > answers), "another master that takes sends")
    at, address = client.answered[answers]
    await _until_sent(client, _BEFORE)

    for each in lost:
        await each.start()
    await _until(lambda: _is_full(servers, admin), "the old master back in the set")
    new = next(each.name for each in servers.brokers if each.address == address)
    who = f"{master.name} and the leading controller were" if with_leader else f"{master.name} was"
    return f"{new} took sends {at - began:.1f} s after {who} killed"


async def _is_full(servers: Cluster, admin: ControllerAdmin) -> bool:
    with contextlib.suppress(RemotingError):
        found = await admin.sync_state_sets([BROKER_NAME])
        return bool(found) and len(found[0].in_sync) == len(servers.brokers)
    return False


async def _master(servers: Cluster, admin: ControllerAdmin) -> Server:
    [group] = await admin.sync_state_sets([BROKER_NAME])
    return next(each for each in servers.brokers if each.address == group.master_address)


async def _leader(servers: Cluster, admin: ControllerAdmin) -> Server:
    leader = (await admin.metadata()).leader_id
    return servers.controllers[int((leader or "n0").removeprefix("n"))]


async def _until_sent(client: ClusterClient, count: int) -> None:
    goal = len(client.acknowledged) + count
    await _until(lambda: _holds(len(client.acknowledged) >= goal), f"{count} messages more")


async def _read_all(client: ClusterClient) -> set[int]:
    """Returns the readable numbers, once all acknowledged messages are confirmed or time is up."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        read = await client.read_all()
        if client.acknowledged <= read or time.monotonic() > deadline:
            return read
        await asyncio.sleep(_LOOK_S)


def _copies(paths: list[Path]) -> Counter[int]:
    """Returns the number of stores that hold each number."""
    copies: Counter[int] = Counter()
    for path in paths:
        with rmqstore.open(path, read_only=True) as store:
            held: set[int] = set()
            for queue in store.queues(TOPIC):
                for record in queue.records():
                    held |= numbers_in(record.body)
            copies.update(held)
    return copies


async def _holds(value: bool) -> bool:
    return value


async def _until(is_so: Callable[[], Awaitable[bool]], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not await is_so():
        if time.monotonic() > deadline:
            raise StoreTimeout(f"waited {_WAIT_S:.0f} s for {what}")
        await asyncio.sleep(_LOOK_S)
