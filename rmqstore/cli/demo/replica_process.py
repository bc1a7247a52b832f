"""A replica in a separate process, for `rmqstore demo`.

    python -m rmqstore.cli.demo.replica_process PATH BROKER_ID

Receives commands as lines of JSON and answers each with a line. Between the answers it reports
acknowledged messages immediately. It ends at the end of its standard input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import rmqstore
from rmqstore import Durability, Message
from rmqstore.cli.demo.replica_steps import REPLICAS, TOPIC
from rmqstore.cli.demo.writer_process import body_of
from rmqstore.errors import InSyncReplicasNotEnough, ReplicaTimeout, StoreError
from rmqstore.replication import HaOptions, HaState, Quorum, ReplicatedStore

__all__: list[str] = []

_LOG_FILE_SIZE = 64 << 20
_BATCH = 64
_PILED_TOPIC, _PILED_BODY = "piled", bytes(64 << 10)
_HEARTBEAT_MS, _RECONNECT_MS = 200, 50


class _Node:
    def __init__(self, path: str, broker_id: int) -> None:
        self.store = rmqstore.open(path, commit_log_file_size_bytes=_LOG_FILE_SIZE)
        self.replica = ReplicatedStore(
            self.store,
            broker_id=broker_id,
            listen="127.0.0.1:0",
            quorum=Quorum(total=REPLICAS, in_sync=2),
            options=HaOptions(heartbeat_ms=_HEARTBEAT_MS, reconnect_ms=_RECONNECT_MS),
        )
        self._is_asked_to_stop = threading.Event()
        self._writer: threading.Thread | None = None

    def close(self) -> None:
        self._stop_writing()
        self.replica.close()
        self.store.close()

    def answer(self, command: Mapping[str, Any]) -> dict[str, Any]:
        doing: Callable[..., dict[str, Any] | None] = getattr(self, f"_do_{command['do']}")
        return doing(**{name: value for name, value in command.items() if name != "do"}) or {}

    # ---- commands

    def _do_status(self) -> dict[str, Any]:
        status = self.replica.status()
        return {
            "end": status.end_offset,
            "confirmed": status.confirm_offset,
            "linked": status.master is not None and status.master.state is HaState.TRANSFER,
            "epochs": [[each.epoch, each.start_offset] for each in status.epochs],
        }

    def _do_master(self, epoch: int) -> dict[str, Any]:
        self.replica.become_master(epoch)
        host, port = self.replica.address or ("", 0)
        return {"address": f"{host}:{port}"} | self._do_status()

    def _do_slave(self, address: str, epoch: int) -> None:
        self.replica.become_slave(address, epoch)

    def _do_write(self, start: int, rate: int) -> None:
        """Begins to put messages from number *start* on, *rate* a second; 0: without a limit."""
        self._writer = threading.Thread(target=self._write, args=(start, rate))
        self._writer.start()

    def _do_pile(self, size_bytes: int) -> dict[str, Any]:
        """Puts messages without waiting for other replicas."""
        bodies = [_PILED_BODY] * (size_bytes // len(_PILED_BODY) + 1)
        self.store.put_many(bodies, topic=_PILED_TOPIC, durability=Durability.MEMORY)
        return self._do_status()

    def _do_stop_writing(self) -> None:
        self._stop_writing()

    def _do_wait(self, copies: int, timeout: float) -> None:
        self.replica.wait_in_sync(copies, timeout=timeout)

    def _stop_writing(self) -> None:
        if self._writer is not None:
            self._is_asked_to_stop.set()
            self._writer.join()

    def _write(self, first: int, rate: int) -> None:
        pause = _BATCH / rate if rate else 0.0
        while not self._is_asked_to_stop.wait(pause):
            numbers = range(first, first + _BATCH)
            first = numbers.stop
            try:
                self.store.put_many(
                    (Message(TOPIC, body_of(number)) for number in numbers),
                    durability=Durability.REPLICATED,
                )
            except (InSyncReplicasNotEnough, ReplicaTimeout):
                continue
            _report({"acknowledged": [numbers.start, numbers.stop]})


def _report(reply: Mapping[str, Any]) -> None:
    # One write, so that lines of different threads do not mix.
    os.write(sys.stdout.fileno(), json.dumps(reply).encode() + b"\n")


def _run(path: str, broker_id: int) -> None:
    node = _Node(path, broker_id)
    try:
        _report(node._do_status())
        for line in sys.stdin:
            try:
                reply = node.answer(json.loads(line))
            except StoreError as error:
                reply = {"error": str(error)}
            _report(reply)
    finally:
        node.close()


if __name__ == "__main__":
    # The killed master held messages that no other replica has. Cutting them is part of the demo.
    logging.getLogger("rmqstore").addHandler(logging.NullHandler())
    _run(sys.argv[1], int(sys.argv[2]))
