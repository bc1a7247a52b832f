"""A side of a pair in a process of its own, commanded by lines; and what may lie in between."""

from __future__ import annotations

import json
import os
import queue
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from benchmarks.limits import ROOT
from benchmarks.processes import cpu_seconds, status_KiB

__all__ = ["Relay", "Side", "SideFailed", "rmqstore_side"]

PATIENCE_S = 180.0
_PIECE = 1 << 16


class SideFailed(Exception):
    """A process that ended, answered nothing, or said that it failed."""


class Side:
    """A process that answers each command with one line of JSON; the first line is `ready`.

    Leaving its block kills it.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env={**os.environ, **environment},
        )
        self.pid = self._process.pid

        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="answers", daemon=True)
        self._reader.start()

        try:
            self.ready = self._answer()
        except SideFailed:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        self._errors.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as answers:
            for line in answers:
                self._answers.put(line)
        self._answers.put(b"")

    def _answer(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=PATIENCE_S)
        except queue.Empty:
            raise SideFailed(f"no answer in {PATIENCE_S:.0f} s") from None
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip()
            raise SideFailed(f"the process ended: {said[-1000:]}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise SideFailed(answer["error"])
        return answer

    def ask(self, *words: object) -> dict[str, Any]:
        """Send a command and return its answer."""
        self._send(*words)
        return self._answer()

    def _send(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()

    def quit(self) -> None:
        """Wait until the process ends."""
        self._send("quit")
        self._process.wait(timeout=PATIENCE_S)

    @property
    def address(self) -> str:
        """Where a master listens."""
        return f"127.0.0.1:{self.ready['port']}"

    def pause(self) -> None:
        """Stop the process: while others are measured it takes no time."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let a stopped process go on."""
        os.kill(self.pid, signal.SIGCONT)

    def pin(self, cores: Set[int]) -> None:
        """Run all threads that there are, and those they start, on these cores."""
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with suppress(ProcessLookupError):  # it ended meanwhile
                os.sched_setaffinity(int(task), cores)

    def cpu_seconds(self) -> float:
        """Return the processor time of all its threads."""
        return cpu_seconds(self.pid)

    def private_KiB(self) -> int:
        """Return the memory that belongs to the process alone, mapped files not among it."""
        size = status_KiB(self.pid, "RssAnon")
        assert size is not None
        return size


def rmqstore_side(role: str, protocol: str, root: Path, master: str = "") -> Side:
    """Start a side of rmqstore."""
    command = [sys.executable, "-m", "benchmarks.replica_node", role, protocol, str(root)]
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    return Side([*command, master] if master else command, {"PYTHONPATH": path})


class Relay:
    """Stands between a slave and its master; its connections can be held and cut."""

    def __init__(self, master: str) -> None:
        host, _, port = master.rpartition(":")
        self._master = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._flows = threading.Event()
        self._flows.set()
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def close(self) -> None:
        """Close all connections and accept no others."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads:
            thread.join()

    def hold(self) -> None:
        """From now on nothing passes until `cut`."""
        self._flows.clear()

    def cut(self) -> None:
        """Close every connection; the next ones pass."""
        ends, self._ends = self._ends, []
        for end in ends:
            _shut(end)
        self._flows.set()

    def _start(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name="relay", daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                self._start(self._serve, self._listener.accept()[0])

    def _serve(self, slave: socket.socket) -> None:
        with slave, suppress(OSError), socket.create_connection(self._master) as master:
            for end in (slave, master):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._ends += (slave, master)
            back = self._start(self._pass, slave, master)
            self._pass(master, slave)
            back.join()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE):
                self._flows.wait()
                target.sendall(piece)
        _shut(source)
        _shut(target)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
