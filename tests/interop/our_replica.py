"""rmqstore as a replica in a process of its own, so that a test can kill it.

    python -m tests.interop.our_replica master|slave --root DIR [--listen PORT] [--master H:P] ...

It obeys and tells what the Java replicas of `tests/interop/peer` do, as far as
`tests.support.java_replica` needs: `put N SIZE [COPIES]`, which tells `acked` for each message at
once, `status`, `quit`.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rmqstore import PutError
from rmqstore.replication import HaOptions, Quorum, ReplicatedStore
from tests.interop.ha_case import epochs_of, message, open_store
from tests.support.java_replica import HOST

_WATCH_S = 0.02


class Told:
    """Events as lines on the standard output, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def report(self, event: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            sys.stdout.write(json.dumps({"event": event, **fields}) + "\n")
            sys.stdout.flush()


def state_of(replica: ReplicatedStore) -> dict[str, Any]:
    address = replica.address
    return {
        "role": replica.role,
        "haPort": address[1] if address else None,
        "minOffset": replica.store.start_offset,
        "maxOffset": replica.end_offset,
        "confirmOffset": replica.confirm_offset,
        "epochs": epochs_of(replica),
        "replicas": [
            {"id": each.broker_id, "ackOffset": each.ack_offset} for each in replica.replicas
        ],
    }


def watch(replica: ReplicatedStore, reply: Told, end: threading.Event) -> None:
    last: dict[str, Any] = {}
    while not end.wait(_WATCH_S):
        state = state_of(replica)
        if state != last:
            reply.report("state", state)
            last = state


def obey(replica: ReplicatedStore, reply: Told, words: list[str], *, first: int) -> dict[str, Any]:
    match words:
        case ["status"]:
            return state_of(replica)
        case ["put", count, size, *rest]:
            copies = int(rest[0]) if rest else None
            for number in range(first, first + int(count)):
                try:
                    receipt = replica.store.put(message(number, size=int(size)), copies=copies)
                except PutError as error:
                    reply.report("refused", {"number": number, "message": str(error)})
                    continue
                reply.report("acked", {"number": number, "offset": receipt.physical_offset})
            return {"maxOffset": replica.end_offset}
    raise ValueError(f"unknown command {words}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["master", "slave"])
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--protocol", choices=["autoswitch", "classic"], default="autoswitch")
    parser.add_argument("--listen", type=int, default=0)
    parser.add_argument("--master")
    parser.add_argument("--epoch", type=int)
    parser.add_argument("--broker-id", type=int, default=1)
    parser.add_argument("--batch-bytes", type=int, default=32768)
    parser.add_argument("--copies", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()

    reply, end = Told(), threading.Event()
    options = HaOptions(heartbeat_ms=100, reconnect_ms=100, batch_bytes=given.batch_bytes)

    with (
        open_store(given.root) as store,
        ReplicatedStore(
            store,
            broker_id=given.broker_id,
            listen=(HOST, given.listen),
            protocol=given.protocol,
            quorum=Quorum(total=2, in_sync=given.copies, timeout_ms=20_000),
            options=options,
        ) as replica,
    ):
        if given.role == "master":
            # Nobody else may become master in these tests without this one hearing of it.
            replica.become_master(given.epoch, others_asked=given.epoch is not None)
        else:
            replica.become_slave(given.master, given.epoch)
        reply.report("ready", state_of(replica))

        watcher = threading.Thread(target=watch, args=(replica, reply, end))
        watcher.start()

        first = given.first
        for line in sys.stdin:
            words = line.split()
            if words == ["quit"]:
                break

            try:
                answer = obey(replica, reply, words, first=first)
                reply.report("done", {"line": line.strip(), **answer})
            except Exception as error:
                reply.report(
                    "error", {"in": "command", "line": line.strip(), "message": str(error)}
                )

            if words[:1] == ["put"]:
                first += int(words[1])

        end.set()
        watcher.join()


if __name__ == "__main__":
    main()
