"""A replica in a process of its own that is put to and read without a pause; see replica_group.

    python replica_node.py DIRECTORY BROKER_ID VARIANT SEED

Takes commands as lines of JSON, [NUMBER, NAME, {ARGUMENTS}], and answers each with a line,
["answer", NUMBER, RESULT or null, ERROR or null]. Between the answers it tells, as it happens:

    ["acked", QUEUE, QUEUE_OFFSET, PHYSICAL_OFFSET, NUMBER]     a replicated put returned
    ["seen", QUEUE, FIRST_QUEUE_OFFSET, [NUMBER, ...]]          a reader was given these
    ["wrong", TEXT]                                             a reader was given what cannot be
    ["proposal", NUMBER, [MEMBER, ...], SET_EPOCH]

Ends when its standard input does. The number alone tells what a message is.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Collection
from typing import Any

import rmqstore
from rmqstore import Durability, Message
from rmqstore.errors import (
    InSyncReplicasNotEnough,
    NotWritable,
    PageCacheBusy,
    ReplicaTimeout,
    StoreError,
)
from rmqstore.replication import HaOptions, HaState, Quorum, ReplicatedStore
from rmqstore.replication.group.sync_state_set import Proposal
from tests.support.agreement import FILES

TOPIC = "ledger"
QUEUES = 2
NUMBERS_A_TERM = 1_000_000
"""Each role has numbers of its own, above all earlier ones."""

VARIANTS = {
    "quorum": Quorum(total=3, in_sync=2, timeout_ms=400),
    "set": Quorum(total=3, in_sync=2, timeout_ms=400, lag_ms_max=500),
    "all_ack": Quorum(total=3, all_ack=True, timeout_ms=400, lag_ms_max=500),
}
OPTIONS = HaOptions(heartbeat_ms=100, housekeeping_ms=1000, handshake_ms=1000, reconnect_ms=40)
_PAUSE_S = 0.001
_SEEN_MAX = 200


def body_of(number: int) -> bytes:
    """Return the body of message *number*."""
    rng = random.Random(number)
    return b"%d:" % number + rng.randbytes(rng.choice((0, 10, 200, 200, 900, 3000, 15_000)))


def number_of(body: bytes) -> int:
    """Return the number of a message, having checked that it is that message. Raises ValueError."""
    number = int(body.partition(b":")[0])
    if body != body_of(number):
        raise ValueError(f"the body of message {number} is another")
    return number


def report(*what: Any) -> None:
    """Write a line, whole, whichever thread does it."""
    data = json.dumps(what).encode() + b"\n"
    with _TELLING:
        while data:
            data = data[os.write(1, data) :]


_TELLING = threading.Lock()


class Node:
    """The store, its replication, and the threads at work on it."""

    def __init__(self, directory: str, broker_id: int, variant: str, seed: int) -> None:
        self.store = rmqstore.open(directory, **FILES)
        self.is_over = threading.Event()
        self.is_writing = threading.Event()
        self.putting = [threading.Lock() for _ in range(QUEUES)]

        self.base = 0
        self.replica: ReplicatedStore | None = None
        self.confirmed = -1

        self.threads = [threading.Thread(target=self.read, args=(each,)) for each in range(QUEUES)]
        # What was not confirmed before may not be seen before there is a role either.
        for each in self.threads:
            each.start()

        self.replica = ReplicatedStore(
            self.store,
            broker_id=broker_id,
            listen="127.0.0.1:0",
            quorum=VARIANTS[variant],
            options=OPTIONS,
            on_proposal=propose,
        )

        writers = [
            threading.Thread(target=self.write, args=(queue, random.Random(seed + queue)))
            for queue in range(QUEUES)
        ]
        for each in writers:
            each.start()

        self.threads += writers

    def close(self) -> None:
        self.is_over.set()
        self.is_writing.set()
        assert self.replica is not None
        self.replica.close()
        for each in self.threads:
            each.join()
        self.store.close()

    # ---- commands

    @property
    def held(self) -> ReplicatedStore:
        assert self.replica is not None
        return self.replica

    def do_status(self) -> dict[str, Any]:
        status = self.held.status()
        return {
            "role": status.role,
            "address": status.address,
            "end": status.end_offset,
            "confirmed": status.confirm_offset,
            "epoch": status.epochs[-1].epoch if status.epochs else -1,
            "epochs": [[each.epoch, each.start_offset] for each in status.epochs],
            "is_linked": status.master is not None and status.master.state is HaState.TRANSFER,
            "failure": status.failure,
            "master": status.master and [status.master.last_error, status.master.halted_reason],
            "proposals": [[each.number, each.set_epoch] for each in status.proposals],
            "set": sorted(status.sync_state_set or ()),
            "replicas": [[each.broker_id, each.ack_offset] for each in status.replicas],
        }

    def do_master(
        self,
        epoch: int,
        base: int,
        members: Collection[int],
        set_epoch: int,
        others_asked: bool,
    ) -> None:
        self.held.become_master(
            epoch, members=members, set_epoch=set_epoch, others_asked=others_asked
        )
        self.base = base
        self.is_writing.set()

    def do_slave(self, host: str, port: int) -> None:
        self.held.become_slave((host, port))

    def do_rest(self) -> None:
        """Let nothing be put any more; on return all puts have ended."""
        self.is_writing.clear()
        for each in self.putting:
            with each:
                pass

    def do_set(self, members: Collection[int], set_epoch: int) -> None:
        self.held.set_sync_state_set(members, set_epoch)

    def do_refuse(self, number: int) -> None:
        self.held.refuse_proposal(number)

    def do_lose(self, number: int) -> None:
        self.held.lose_proposal(number)

    def do_wait(self, copies: int) -> None:
        self.held.wait_in_sync(copies, timeout=15.0)

    def do_wait_confirmed(self, end: int) -> None:
        self.held.wait_confirmed(end, timeout=15.0)

    def do_log(self) -> list[tuple[int, int, int, int]]:
        """Return physical offset, queue, queue offset and number of every record of the log."""
        scan = self.store.scan_log(on_corrupt="stop")
        found = [
            (each.physical_offset, each.queue, each.queue_offset, number_of(each.body))
            for each in scan
        ]
        if scan.verdict != "limit":
            raise StoreError(f"the log cannot be walked: {scan.verdict} {scan.error}")
        return found

    # ---- threads

    def write(self, queue: int, rng: random.Random) -> None:
        base, numbers = 0, itertools.count()
        while not self.is_over.is_set():
            self.is_writing.wait()
            if base != self.base:
                base = self.base
                numbers = itertools.count(base)
            try:
                with self.putting[queue]:
                    if self.is_writing.is_set() and not self.is_over.is_set():
                        self.put(queue, rng, numbers)
            except (InSyncReplicasNotEnough, NotWritable, PageCacheBusy, ReplicaTimeout):
                # Busy is the log of a process that was stopped in the middle of a put.
                self.is_over.wait(5 * _PAUSE_S)
            except StoreError as error:
                if not self.is_over.is_set():
                    report("wrong", f"put: {error!r}")
                return
            self.is_over.wait(_PAUSE_S)

    def put(self, queue: int, rng: random.Random, numbers: itertools.count[int]) -> None:
        messages = []
        for _ in range(rng.choice((1, 1, 1, 1, 3, 20))):
            number = next(numbers)
            messages.append(Message(TOPIC, body_of(number), queue=queue, keys=(f"k{number}",)))
        is_waited = rng.random() < 0.9
        durability = Durability.REPLICATED if is_waited else Durability.MEMORY
        if len(messages) == 1:
            receipts = [self.store.put(messages[0], durability=durability)]
        else:
            receipts = self.store.put_many(messages, durability=durability)
        if is_waited:
            for receipt, message in zip(receipts, messages, strict=True):
                number = int(bytes(message.body).partition(b":")[0])
                report("acked", queue, receipt.queue_offset, receipt.physical_offset, number)

    def read(self, queue: int) -> None:
        try:
            self._read(queue)
        except (StoreError, ValueError) as error:
            if not self.is_over.is_set():
                report("wrong", f"read of queue {queue}: {error!r}")

    def _read(self, queue: int) -> None:
        following = self.store.queue(TOPIC, queue)
        at, last = -1, -1
        while not self.is_over.wait(3 * _PAUSE_S):
            start, end = following.start, following.end
            if at < 0:
                at = start
            if end < at:
                report("wrong", f"queue {queue} ended at {at}, and ends at {end}")
                return
            if last >= start and number_of(following.get(at - 1).body) != last:
                report("wrong", f"message {last} of queue {queue} at {at - 1} is another")
            if end > at:
                found = following.records(at, min(end, at + _SEEN_MAX))
                numbers = [number_of(each.body) for each in found]
                report("seen", queue, at, numbers)
                at, last = at + len(numbers), numbers[-1]
            self._watch_confirmed()

    def _watch_confirmed(self) -> None:
        if self.replica is None:
            return
        with _CONFIRMING:
            confirmed = self.replica.confirm_offset
            if confirmed < self.confirmed:
                report("wrong", f"the confirm offset went from {self.confirmed} to {confirmed}")
            self.confirmed = confirmed


_CONFIRMING = threading.Lock()
_WAITS = ("rest", "wait", "wait_confirmed")


def propose(proposal: Proposal) -> None:
    """Tell what a master wishes."""
    report("proposal", proposal.number, sorted(proposal.members), proposal.set_epoch)


def run(directory: str, broker_id: int, variant: str, seed: int) -> None:
    """Serve commands until the last one."""
    node = Node(directory, broker_id, variant, seed)
    report("open", node.held.address)

    def serve(number: int, name: str, arguments: dict[str, Any]) -> None:
        doing: Callable[..., Any] = getattr(node, f"do_{name}")
        try:
            report("answer", number, doing(**arguments), None)
        except StoreError as error:
            report("answer", number, None, f"{type(error).__name__}: {error}")

    try:
        for line in sys.stdin:
            command = json.loads(line)
            if command[1] in _WAITS:
                # What it waits for may be the answer to a proposal, which is a command itself.
                threading.Thread(target=serve, args=command, daemon=True).start()
            else:
                serve(*command)
    finally:
        node.close()


if __name__ == "__main__":
    run(sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
