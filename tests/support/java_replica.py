"""Replicas in processes of their own: the real Java store of tests/interop/peer, and rmqstore's.

Both obey lines on their standard input and tell events, a JSON object a line, on their standard
output: `ready` first, `state` whenever something has changed, `done` or `error` for each command,
in order. Whatever a test leaves running is killed by its own id.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support import java
from tests.support.builds import REPOSITORY
from tests.support.java_store import STDERR_KEPT, PeerError

START_TIMEOUT_S = 180.0
WAIT_S = 40.0
HOST = "127.0.0.1"
PROGRAM = "peer.ha.Main"

MEMORY = ("-Xmx192m", "-XX:MaxDirectMemorySize=64m")

State = Mapping[str, Any]


class Replica:
    """One running process."""

    def __init__(
        self, command: Sequence[str], *, name: str, scratch: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.state: State = {}
        """The last state that the process reported."""
        self.events: list[Mapping[str, Any]] = []

        self._answers: list[Mapping[str, Any]] = []
        self._asked = 0
        self._has_ended = False
        self._changed = threading.Condition()

        self._errors = scratch / f"{name}.err"
        with self._errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                encoding="utf-8",
                env=os.environ | environment,
            )

        self._reader = threading.Thread(target=self._read, name=f"events of {name}", daemon=True)
        self._reader.start()

    @property
    def address(self) -> str:
        """Where it accepts replicas."""
        return f"{HOST}:{self.state['haPort']}"

    def wait_ready(self, *, timeout: float = START_TIMEOUT_S) -> None:
        """Return when it has reported its first state."""
        self._wait(lambda: bool(self.state), "its first state", timeout)

    def send(self, line: str) -> int:
        """Send a command and return the number of its answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        self._asked += 1
        return self._asked - 1

    def answer(self, number: int, *, timeout: float = WAIT_S) -> Mapping[str, Any]:
        """Return the answer of that number. Raises PeerError for one that is an error."""
        self._wait(lambda: len(self._answers) > number, f"answer {number}", timeout)
        found = self._answers[number]
        if found["event"] == "error":
            raise PeerError(f"{self.name}: {found}")
        return found

    def ask(self, line: str, *, timeout: float = WAIT_S) -> Mapping[str, Any]:
        """Send a command and return its answer."""
        return self.answer(self.send(line), timeout=timeout)

    def wait_state(
        self, wanted: Callable[[State], bool], what: str, *, timeout: float = WAIT_S
    ) -> State:
        """Return the state once it is as *wanted*; *what* says so in words."""
        self._wait(lambda: bool(self.state) and wanted(self.state), what, timeout)
        return self.state

    def events_of(self, event: str) -> list[Mapping[str, Any]]:
        """Return the events of one kind so far."""
        with self._changed:
            return [each for each in self.events if each["event"] == event]

    def wait_events(self, event: str, count: int) -> None:
        """Return once it has reported so many events of one kind."""
        self._wait(lambda: len(self.events_of(event)) >= count, f"{count} events {event!r}", WAIT_S)

    def kill(self) -> None:
        """SIGKILL; what it said until then has been read on return."""
        self.process.kill()
        self._reap()

    def quit(self) -> None:
        """Let it shut down in order."""
        if self.process.poll() is None:
            self.send("quit")
        self._reap()

    def stop(self) -> None:
        """End it in whatever way is quickest, if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
        self._reap()

    def _reap(self) -> None:
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:  # a command that it did not live to read
                pass

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:  # cut off by a kill
                continue
            with self._changed:
                self.events.append(event)
                if event["event"] in ("ready", "state") or event.get("line") == "status":
                    self.state = event
                if event["event"] == "done" or event.get("in") == "command":
                    self._answers.append(event)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _wait(self, wanted: Callable[[], bool], what: str, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        with self._changed:
            while not wanted():
                left = deadline - time.monotonic()
                if left <= 0 or self._has_ended:
                    status = self.process.poll()
                    ended = "ended" if status is None else f"ended with status {status}"
                    why = ended if self._has_ended else f"took over {timeout} s"
                    raise PeerError(
                        f"{self.name} {why}, waiting for {what}; its state: {self.state}; "
                        f"{self._errors.read_text(errors='replace')[-STDERR_KEPT:]}"
                    )
                self._changed.wait(left)


class Replicas:
    """Starts replicas for one test, Java's of one release; `stop` ends them all."""

    def __init__(self, release: str, scratch: Path) -> None:
        self.release = release
        self._scratch = scratch
        self._running: list[Replica] = []

    def java(
        self, role: str, root: Path, *, release: str | None = None, **options: object
    ) -> Replica:
        """Start the real store; *role* and *options* are those of peer.ha, `_` for `-`.

        It has reported its first state when this returns.
        """
        given = {"heartbeat_ms": 100, "watch_ms": 20} | options
        mend_epoch_file(root)
        name = f"{role}-{len(self._running)}"
        temporary = Path(tempfile.mkdtemp(prefix="java-", dir=self._scratch))
        release = release or self.release
        flags = (
            *(*java.quick_flags(release), *MEMORY),
            *(f"-Djava.io.tmpdir={temporary}", "-Dpeer.log.level=WARN"),
        )
        arguments = [role, "--dir", str(root), *_flags(given)]
        command = java.command(release, PROGRAM, *arguments, flags=flags)
        replica = self._start(command, name)
        replica.wait_ready()
        return replica

    def ours(self, role: str, root: Path, **options: object) -> Replica:
        """Start rmqstore in a process of its own; see tests/interop/our_replica.py."""
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.interop.our_replica", role]
        command += ["--root", str(root), *_flags(options)]
        replica = self._start(command, f"our-{role}-{len(self._running)}")
        replica.wait_ready()
        return replica

    def stop(self) -> None:
        """Kill what still runs."""
        for replica in self._running:
            replica.stop()

    def _start(self, command: Sequence[str], name: str) -> Replica:
        environment = {"PYTHONPATH": str(REPOSITORY)}
        replica = Replica(command, name=name, scratch=self._scratch, environment=environment)
        self._running.append(replica)
        return replica


def mend_epoch_file(root: Path) -> None:
    """Do what an operator has to do after a kill at the wrong moment.

    RocketMQ overwrites its epoch file in place; cut short, the file is empty, and it neither starts
    from that nor turns to the previous copy (docs/defects.md, H12).
    """
    file, copy = root / "epochFileCheckpoint", root / "epochFileCheckpoint.bak"
    if file.is_file() and not file.stat().st_size:
        file.unlink()
        if copy.is_file() and copy.stat().st_size:
            copy.rename(file)


def _flags(options: Mapping[str, object]) -> list[str]:
    flags: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        flags.append(f"--{name.replace('_', '-')}")
        if value is not True:
            flags.append(str(value))
    return flags
