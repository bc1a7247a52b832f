"""Three replicas in processes of their own, and what they were heard to promise.

Every connection between replicas goes through a relay that can be cut. A `Ledger` keeps what was
acknowledged and what readers were given; an `Office` is the group's authority on who is master and,
for groups with a sync-state set, on the set.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from rmqstore.errors import StoreError
from tests.crash import replica_node
from tests.support.relay import Relay

__all__ = ["Ledger", "Office", "Replica", "Trouble"]

PATIENCE_S = 30.0
_TOLD_MAX = 12
_LINE_MAX = 500
_ERRORS_MAX = 4000


class Trouble(StoreError):
    """A replica could not do what it was asked, or ended."""


class Ledger:
    """What was heard; every contradiction is kept in *wrongs*."""

    def __init__(self) -> None:
        self.acked: dict[tuple[int, int], tuple[int, int]] = {}
        """Physical offset and number by queue and queue offset."""
        self.seen: dict[tuple[int, int], int] = {}
        self.wrongs: list[str] = []
        self._lock = threading.Condition()

    def ack(self, who: str, at: tuple[int, int], physical_offset: int, number: int) -> None:
        """Take an acknowledgement."""
        with self._lock:
            known = self.acked.setdefault(at, (physical_offset, number))
            if known != (physical_offset, number) or self.seen.get(at, number) != number:
                self.wrongs.append(
                    f"{who}: queue, offset {at} went to {number} at {physical_offset}, and had "
                    f"gone to {known}, seen {self.seen.get(at)}"
                )
            self._lock.notify_all()

    def see(self, who: str, on: int, first: int, numbers: list[int]) -> None:
        """Take what a reader was given."""
        with self._lock:
            for offset, number in enumerate(numbers, first):
                known = self.seen.setdefault((on, offset), number)
                acked = self.acked.get((on, offset))
                if known != number or (acked is not None and acked[1] != number):
                    self.wrongs.append(
                        f"{who}: a reader got {number} at queue, offset {(on, offset)}, another "
                        f"one {known}; acknowledged is {acked}"
                    )
                    self._lock.notify_all()

    def wrong(self, text: str) -> None:
        """Take what a replica itself found wrong."""
        with self._lock:
            self.wrongs.append(text)
            self._lock.notify_all()

    def wait_acked(self, count: int, timeout: float) -> bool:
        """Tell whether, within so many seconds, there come to be so many acknowledged messages, or
        something wrong."""
        with self._lock:
            return self._lock.wait_for(
                lambda: len(self.acked) >= count or bool(self.wrongs), timeout
            )

    def promised(self) -> tuple[dict[tuple[int, int], tuple[int, int]], dict[Any, int]]:
        """Return what is acknowledged and seen by now."""
        with self._lock:
            return dict(self.acked), dict(self.seen)

    def compare(
        self,
        records: list[tuple[int, int, int, int]],
        promised: tuple[dict[tuple[int, int], tuple[int, int]], dict[Any, int]],
    ) -> None:
        """Compare a whole log with what had been promised before it was read."""
        acked, seen = promised
        assert not self.wrongs, self.wrongs[:5]

        held = {(on, offset): (physical, number) for physical, on, offset, number in records}
        assert len(held) == len(records), "a queue offset is in the log twice"
        numbers = [(on, number) for _, on, _, number in records]
        assert len(set(numbers)) == len(numbers), "a message is in the log twice"

        ends: dict[int, int] = {}
        latest: dict[tuple[int, int], int] = {}
        for _, on, offset, number in sorted(records):
            last = ends.get(on, -1)
            assert offset == last + 1, f"queue {on}: {offset} comes behind {last}"
            ends[on] = offset

            # A put with a number of the last role may come a little late.
            putter = on, number // replica_node.NUMBERS_A_TERM
            last = latest.get(putter, -1)
            assert number > last, f"queue {on}: message {number} comes behind {last}"
            latest[putter] = number

        lost = {at: what for at, what in acked.items() if held.get(at) != what}
        assert not lost, f"{len(lost)} acknowledged are lost, as {sorted(lost.items())[:3]}"

        gone = {at: it for at, it in seen.items() if held.get(at, (0, None))[1] != it}
        assert not gone, f"{len(gone)} were seen and are gone, as {sorted(gone.items())[:3]}"


class Replica:
    """One replica: its directory, its relay, and its process when it runs."""

    def __init__(self, folder: Path, broker_id: int, variant: str, ledger: Ledger) -> None:
        self.broker_id = broker_id
        self.path = folder / f"replica-{broker_id}"
        self.relay = Relay()
        self.on_proposal: Callable[[Replica, int, list[int], int], None] = lambda *_: None
        self._variant = variant
        self._ledger = ledger
        self._process: subprocess.Popen[bytes] | None = None
        self._listener: threading.Thread | None = None
        self._numbers = itertools.count()
        self._writing = threading.Lock()
        self._answers: dict[int, queue.Queue[tuple[Any, str | None] | None]] = {}
        self._is_open = threading.Event()
        self._code: int | None = None
        self._told: deque[bytes] = deque(maxlen=_TOLD_MAX)
        self.errors = folder / f"replica-{broker_id}.err"

    def __repr__(self) -> str:
        return f"replica {self.broker_id}"

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def start(self, seed: int) -> None:
        """Start a process and return once it takes commands."""
        assert self._process is None
        self._is_open.clear()
        self._answers = {}

        names = os.pathsep.join(path for path in sys.path if path)
        arguments = [str(self.path), str(self.broker_id), self._variant, str(seed)]

        with self.errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-X", "faulthandler", replica_node.__file__, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={**os.environ, "PYTHONPATH": names},
            )

        self._listener = threading.Thread(target=self._listen, args=(self._process,))
        self._listener.start()
        assert self._is_open.wait(PATIENCE_S), f"{self} did not open: {self.story()}"
        if not self._is_usable:
            raise Trouble(f"{self} ended at once: {self.story()}")

    def ask(self, name: str, **arguments: Any) -> Any:
        """Have a command done and return its result. Raises Trouble."""
        answers = self.send(name, **arguments)
        try:
            answer = answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise AssertionError(
                f"{self} did not answer {name} in {PATIENCE_S} s: {self.story()}"
            ) from None
        if answer is None:
            raise Trouble(f"{self} ended during {name}: {self.story()}")
        if answer[1] is not None:
            raise Trouble(f"{self}, {name}: {answer[1]}")
        return answer[0]

    def send(self, name: str, **arguments: Any) -> queue.Queue[tuple[Any, str | None] | None]:
        """Send a command and return where its answer will be."""
        answers: queue.Queue[tuple[Any, str | None] | None] = queue.Queue()
        with self._writing:
            number = next(self._numbers)
            self._answers[number] = answers
            process = self._process
            if process is None or process.stdin is None or not self._is_usable:
                answers.put(None)
                return answers
            try:
                process.stdin.write(json.dumps([number, name, arguments]).encode() + b"\n")
                process.stdin.flush()
            except OSError:
                answers.put(None)
        return answers

    def signal(self, number: int) -> None:
        """Send the process a signal."""
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """Kill the process and return when all that it had told has been heard."""
        if self._process is not None:
            self._process.kill()
            self._finish()

    def stop(self) -> None:
        """Have the store closed; fails where that does not work."""
        assert self._process is not None
        assert self._process.stdin is not None
        with self._writing:
            # What it proposes until it has ended gets no answer.
            self._is_usable = False
            self._process.stdin.close()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            # Then it tells where its threads are.
            self._process.send_signal(signal.SIGABRT)
            self._process.wait(PATIENCE_S)
            raise AssertionError(f"{self} did not close: {self.story()}") from None
        code = self._finish()
        assert code == 0, f"{self} ended with {code}: {self.story()}"

    def _finish(self) -> int:
        process, listener = self._process, self._listener
        assert process is not None
        assert listener is not None
        code = self._code = process.wait()
        listener.join()
        self.relay.target = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process = None
        return code

    def story(self) -> str:
        """Return what there is to say of its processes: how the last one ended, the last lines that
        were told, and the end of what was written to standard error."""
        ended = "runs" if self.is_running else f"ended with {self._code}"
        errors = self.errors.read_text()[-_ERRORS_MAX:] if self.errors.exists() else ""
        reply = (line[:_LINE_MAX].decode(errors="replace").rstrip() for line in tuple(self._told))
        return "\n".join((ended, "told last:", *reply, "standard error:", errors))

    _is_usable = False

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._told.append(line)
            # The last line of a process that is killed may be cut.
            if not line.endswith(b"\n"):
                break
            try:
                self._take(*json.loads(line))
            except Exception as error:
                self._ledger.wrong(f"{self} told {line[:_LINE_MAX]!r}: {error!r}")
        with self._writing:
            self._is_usable = False
            for each in self._answers.values():
                each.put(None)
        self._is_open.set()

    def _take(self, kind: str, *reply: Any) -> None:
        match kind:
            case "acked":
                on, offset, physical_offset, number = reply
                self._ledger.ack(repr(self), (on, offset), physical_offset, number)
            case "seen":
                self._ledger.see(repr(self), *reply)
            case "wrong":
                self._ledger.wrong(f"{self}: {reply[0]}")
            case "proposal":
                self.on_proposal(self, *reply)
            case "open":
                host, port = reply[0]
                self.relay.target = (host, port)
                self._is_usable = True
                self._is_open.set()
            case "answer":
                number, result, error = reply
                self._answers[number].put((result, error))


class Office:
    """Who is master in which epoch and, with *has_set*, the sync-state set."""

    def __init__(self, members: Collection[int], *, has_set: bool, rng: random.Random) -> None:
        self.has_set = has_set
        self.members = frozenset(members)
        self.set_epoch = 1
        self.epoch = 0
        self.master: Replica | None = None
        self._is_electing = False
        self._rng = rng
        self._lock = threading.Condition()

    def begin_election(self) -> None:
        """Take no proposals until somebody is elected, or nobody."""
        with self._lock:
            self._is_electing = True

    def elect_nobody(self) -> None:
        """Leave everything as it is."""
        with self._lock:
            self._is_electing = False

    def elect(self, chosen: Replica, *, is_alone: bool) -> dict[str, Any]:
        """Make *chosen* the master and return what it is to be told; *is_alone*: the set is it."""
        with self._lock:
            self._is_electing = False
            self.epoch += 1
            self.master = chosen
            reply = {"epoch": self.epoch, "base": self.epoch * replica_node.NUMBERS_A_TERM}
            # Who elects here has asked as many as it takes.
            reply["others_asked"] = True
            if not self.has_set:
                return reply | {"members": [], "set_epoch": 0}
            assert chosen.broker_id in self.members
            self.set_epoch += 1
            if is_alone:
                self.members = frozenset((chosen.broker_id,))
            return reply | {"members": sorted(self.members), "set_epoch": self.set_epoch}

    def decide(self, master: Replica, number: int, members: list[int], set_epoch: int) -> None:
        """Answer a proposal, at times by a word that it got lost."""
        with self._lock:
            if self._is_electing or master is not self.master:
                master.send("refuse", number=number)
                return
            if set_epoch == self.set_epoch:
                self.members = frozenset(members)
                self.set_epoch += 1
                self._lock.notify_all()
            if self._rng.random() < 0.1:
                master.send("lose", number=number)
            else:
                master.send("set", members=sorted(self.members), set_epoch=self.set_epoch)

    def wait_members(self, members: Collection[int]) -> bool:
        """Tell whether, within a bounded while, the set comes to be *members*."""
        with self._lock:
            return self._lock.wait_for(lambda: self.members == set(members), PATIENCE_S)
