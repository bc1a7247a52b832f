"""The replica steps of `demo`: a master is killed under load, another replica takes over, and the
old master comes back and cuts off messages that were never acknowledged."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any, Self

import rmqstore
from rmqstore.check import verify
from rmqstore.check.compare import compare
from rmqstore.cli.demo.steps import Done
from rmqstore.cli.demo.writer_process import MESSAGE, body_of
from rmqstore.errors import StoreError, StoreTimeout
from rmqstore.replication.group.log_rank import LogRank

__all__ = ["REPLICAS", "TOPIC", "Done", "show"]

REPLICAS = 3
TOPIC = "ledger"
"""Topic of the counted messages."""

_ACKNOWLEDGED_BEFORE_KILL = 20_000
_ACKNOWLEDGED_AFTER, _RATE_AFTER = 5_000, 10_000
_FIRST_NUMBER_AFTER = 500_000_000
_PILED_BYTES = 32 << 20
"""More than the sockets between a master and its slaves can hold."""

_FIRST_EPOCH = 1

_NUMBER = slice(MESSAGE.index("%"), MESSAGE.index("%") + 9)
"""Position of the number in a body."""

_TIMEOUT_S = 20.0
_LOOK_S = 0.01


def show(folder: Path, done: Done) -> None:
    """Do all steps in *folder*."""
    print("5. three replicas, two copies of each message; the master is killed", flush=True)
    with ExitStack() as stack:
        steps = _Steps(folder, done, stack)
        steps.write_until_killed()
        steps.promote()
        steps.come_back()
        steps.compare()


class _Node:
    """A replica in a separate process. Leaving the context kills the process if it still runs."""

    def __init__(self, path: Path, broker_id: int) -> None:
        self.path = path
        self.acknowledged: list[range] = []
        self._answers: queue.Queue[dict[str, Any] | None] = queue.Queue()

        arguments = [
            sys.executable,
            "-m",
            "rmqstore.cli.demo.replica_process",
            str(path),
            str(broker_id),
        ]

        self.broker_id = broker_id
        self._process = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def count(self) -> int:
        """The number of messages that were reported as acknowledged."""
        return sum(map(len, self.acknowledged))

    def ask(self, do: str, **members: Any) -> dict[str, Any]:
        """Send a command and return the answer. Raises StoreError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"do": do} | members) + "\n")
        self._process.stdin.flush()
        return self.answer()

    def ask_until(self, is_so: Callable[[Mapping[str, Any]], bool], what: str) -> None:
        """Query the status until it satisfies *is_so*. Raises StoreError."""
        _until(lambda: is_so(self.ask("status")), what)

    def answer(self) -> dict[str, Any]:
        """Return the next answer; the first one is the status after opening. Raises StoreError."""
        try:
            reply = self._answers.get(timeout=_TIMEOUT_S)
        except queue.Empty:
            raise StoreTimeout(
                f"replica {self.broker_id} did not answer within {_TIMEOUT_S:.0f} s"
            ) from None
        if reply is None:
            raise StoreError(f"replica {self.broker_id} ended with {self._process.wait()}")
        if "error" in reply:
            raise StoreError(f"replica {self.broker_id}: {reply['error']}")
        return reply

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process and return when all of its output has been read."""
        self._process.kill()
        self._process.wait()
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def close(self) -> int:
        """Close the store and return the exit code."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        code = self._process.wait(_TIMEOUT_S)
        self._listener.join()
        return code

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            # The last line of a killed process may be incomplete.
            if not line.endswith("\n"):
                break
            reply = json.loads(line)
            if "acknowledged" in reply:
                self.acknowledged.append(range(*reply["acknowledged"]))
            else:
                self._answers.put(reply)
        self._answers.put(None)


class _Steps:
    def __init__(self, folder: Path, done: Done, stack: ExitStack) -> None:
        self._done = done
        self._stack = stack
        self._paths = [folder / f"replica-{number}.store" for number in range(1, REPLICAS + 1)]
        self._started: list[_Node] = []
        """All processes started so far, whose acknowledged puts are counted."""

        self._nodes: list[_Node] = []
        self._master: _Node | None = None
        self._address = ""
        self._taken_at = 0
        """Start offset of the second master's epoch."""

    def write_until_killed(self) -> None:
        began = time.monotonic()

        first, *slaves = (self._start(broker_id) for broker_id in range(1, REPLICAS + 1))
        for each in (first, *slaves):
            each.answer()
        self._nodes = slaves

        address = first.ask("master", epoch=_FIRST_EPOCH)["address"]
        for each in slaves:
            each.ask("slave", address=address, epoch=_FIRST_EPOCH)
        first.ask("wait", copies=REPLICAS, timeout=_TIMEOUT_S)
        first.ask("write", start=0, rate=0)
        _until(lambda: first.count >= _ACKNOWLEDGED_BEFORE_KILL, "acknowledgements")

        # Cut off briefly, so that the master certainly holds messages that no other replica has.
        for each in slaves:
            each.signal(signal.SIGSTOP)
        try:
            end = first.ask("pile", size_bytes=_PILED_BYTES)["end"]
            first.kill()
        finally:
            for each in slaves:
                each.signal(signal.SIGCONT)

        seconds = time.monotonic() - began
        proof = f"{first.count} messages had two copies or more when it died, at byte {end}"
        right = first.count >= _ACKNOWLEDGED_BEFORE_KILL
        self._done("write to three replicas", first.count, seconds, proof, right)

    def promote(self) -> None:
        began = time.monotonic()

        for each in self._nodes:
            # Bytes that arrived before the master died are still being appended.
            each.ask_until(lambda status: not status["linked"], "the connection's end")

        held = {each.broker_id: each.ask("status") for each in self._nodes}
        best = max(self._nodes, key=lambda each: _rank(held[each.broker_id]))
        taken = best.ask("master", epoch=_FIRST_EPOCH + 1)
        self._master, self._address = best, taken["address"]
        epoch, self._taken_at = taken["epochs"][-1]

        for each in self._nodes:
            if each is not best:
                each.ask("slave", address=self._address, epoch=epoch)

        best.ask("wait", copies=len(self._nodes), timeout=_TIMEOUT_S)
        best.ask("write", start=_FIRST_NUMBER_AFTER, rate=_RATE_AFTER)
        _until(lambda: best.count >= _ACKNOWLEDGED_AFTER, "acknowledgements")

        seconds = time.monotonic() - began
        proof = (
            f"replica {best.broker_id}, with the longest log, is master of epoch {epoch} from byte "
            f"{self._taken_at} on; {best.count} messages acknowledged since"
        )
        self._done("promote another", best.count, seconds, proof, epoch == _FIRST_EPOCH + 1)

    def come_back(self) -> None:
        assert self._master is not None
        began = time.monotonic()
        old = self._start(1)
        end = old.answer()["end"]
        self._nodes.append(old)
        old.ask("slave", address=self._address, epoch=_FIRST_EPOCH + 1)
        self._master.ask("wait", copies=REPLICAS, timeout=_TIMEOUT_S)
        seconds = time.monotonic() - began
        lost = end - self._taken_at
        proof = f"{lost} bytes that no other replica had were cut off its log; it is in sync again"
        self._done("take the old one back", 1, seconds, proof, lost >= _PILED_BYTES // 2)

    def compare(self) -> None:
        assert self._master is not None
        began = time.monotonic()

        self._master.ask("stop_writing")
        self._master.ask("wait", copies=REPLICAS, timeout=_TIMEOUT_S)
        end = self._master.ask("status")["end"]
        for each in self._nodes:
            each.ask_until(lambda status: status["confirmed"] == end, "the confirm offset")

        faults = [
            f"replica {each.broker_id} ended with {code}"
            for each in self._nodes
            if (code := each.close())
        ]

        with ExitStack() as stack:
            first, *others = (
                stack.enter_context(rmqstore.open(path, read_only=True)) for path in self._paths
            )
            for other in others:
                found = compare(first, other)
                if not found.is_equal or found.common != (0, end):
                    faults.append(f"rmqstore diff {first.path} {other.path}")

        report = verify(self._paths[0])
        faults += map(str, report.damage)

        seconds = time.monotonic() - began
        proof = f"all {end} bytes of the three logs are the same, and the ends of their queues"
        right = not faults
        proof = proof if right else "; ".join(faults)
        self._done("compare the three", report.records, seconds, proof, right)
        self._count()

    def _count(self) -> None:
        began = time.monotonic()
        wanted = set(
            chain.from_iterable(range_ for each in self._started for range_ in each.acknowledged)
        )
        missing, count = 0, 0
        for path in self._paths:
            numbers = list(_numbers_in(path))
            missing += len(wanted.difference(numbers)) + len(numbers) - len(set(numbers))
            count += len(numbers)
        seconds = time.monotonic() - began
        proof = f"all {len(wanted)} acknowledged messages are in each of the three, once"
        self._done("count in the three", count, seconds, proof, missing == 0 < len(wanted))

    def _start(self, broker_id: int) -> _Node:
        node = self._stack.enter_context(_Node(self._paths[broker_id - 1], broker_id))
        self._started.append(node)
        return node


def _rank(status: Mapping[str, Any]) -> LogRank:
    epochs = status["epochs"]
    return LogRank(epochs[-1][0] if epochs else -1, status["end"])


def _numbers_in(path: Path) -> Iterator[int]:
    with rmqstore.open(path, read_only=True) as store:
        for record in store.queue(TOPIC).records():
            number = int(record.body[_NUMBER])
            if record.body == body_of(number):
                yield number


def _until(is_so: Callable[[], bool], what: str) -> None:
    """Returns when *is_so*. Raises StoreTimeout."""
    deadline = time.monotonic() + _TIMEOUT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise StoreTimeout(f"waited {_TIMEOUT_S:.0f} s for {what}")
        time.sleep(_LOOK_S)
