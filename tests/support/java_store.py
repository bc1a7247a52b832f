"""The real Java store on the command line, as a Python object.

A process that takes too long is killed with all its children, so every call here ends. Most
commands of a release are obeyed by one process after the other: its start costs more than they do.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import java
from tests.support.waiting import WAIT_S

PROGRAM = "peer.store.Main"
COMMAND_TIMEOUT_S = 300.0
STDERR_KEPT = 4000


class PeerError(Exception):
    """The Java program failed in a way that is no verdict, or took too long."""


@dataclass(frozen=True, slots=True)
class Report:
    """What one command printed: JSON lines on stdout, the rest of its talk on stderr."""

    lines: Sequence[Mapping[str, Any]]
    exit_status: int
    stderr: str

    def of(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the lines of one type, such as `message` or `queue`."""
        return [line for line in self.lines if line.get("type") == kind]

    @property
    def verdict(self) -> Mapping[str, Any]:
        """The judgement of a dump; `ok` is true when the Java store finds no fault."""
        return self.of("verdict")[-1]


class JavaStore:
    """The message store of one RocketMQ release.

    Directories are case directories or bare store roots. `settings` are properties of Java's
    MessageStoreConfig; a bare root whose index file sizes differ from the defaults needs
    `maxHashSlotNum` and `maxIndexNum`, because the Java store enlarges smaller files.
    """

    def __init__(self, release: str) -> None:
        self.release = release
        self._service: _Service | None = None

    def close(self) -> None:
        """End the process that obeys the commands."""
        if self._service is not None:
            self._service.close()
            self._service = None

    def write(
        self, case: Path, spec: Mapping[str, Any] | Path, *, crash: bool = False
    ) -> list[dict[str, Any]]:
        """Make a store in `case/store` as *spec* says and return its manifest.

        With *crash* the JVM is halted without flush or shutdown. A spec given as a mapping is
        written to `case/spec.json`.
        """
        case.mkdir(parents=True, exist_ok=True)
        if isinstance(spec, Path):
            spec_file = spec
        else:
            spec_file = case / "spec.json"
            spec_file.write_text(json.dumps(spec), encoding="utf-8")
        command = ["write", "--dir", str(case), "--spec", str(spec_file)]
        # A crash ends the process.
        report = self._run_alone([*command, "--crash"]) if crash else self._run(command)
        manifest = case / "manifest.jsonl"
        # A halted JVM ends with a status of its own; the manifest is written before it.
        if not manifest.is_file() or (report.exit_status != 0 and not crash):
            raise self._failure("write", report)
        return [json.loads(line) for line in manifest.read_bytes().splitlines()]

    def dump(
        self,
        directory: Path,
        *,
        spec: Path | None = None,
        settings: Mapping[str, object] | None = None,
        manifest: Path | None = None,
        keys: bool = False,
        probe: bool = False,
        in_place: bool = False,
        quiet: bool = False,
        timeout: float = COMMAND_TIMEOUT_S,
    ) -> Report:
        """Open *directory* with the Java store, recovery included, and return its judgement.

        Works on a copy unless *in_place*. *keys* looks every key up through the index,
        *manifest* compares all messages, *probe* puts one more message into each queue, *quiet*
        leaves out all lines but the verdict.
        """
        command = ["dump", "--dir", str(directory), *_common(spec, settings)]
        if manifest is not None:
            command += ["--manifest", str(manifest)]
        asked = {"--keys": keys, "--probe": probe, "--in-place": in_place, "--quiet": quiet}
        report = self._run([*command, *(flag for flag, on in asked.items() if on)], timeout=timeout)
        if not report.of("verdict"):
            raise self._failure("dump", report)
        return report

    def append_raw(
        self,
        source: Path,
        target: Path,
        *,
        spec: Path | None = None,
        settings: Mapping[str, object] | None = None,
        chunk: int | None = None,
    ) -> Report:
        """Copy the commit log of *source* into a fresh Java store at *target*, as a slave does.

        *chunk* is the number of bytes handed over at once; boundaries of records do not matter.
        """
        command = ["append-raw", "--from", str(source), "--dir", str(target)]
        command += _common(spec, settings)
        if chunk is not None:
            command += ["--chunk", str(chunk)]
        report = self._run(command)
        if report.exit_status != 0:
            raise self._failure("append-raw", report)
        return report

    def bench(
        self,
        workload: str,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        timeout: float = COMMAND_TIMEOUT_S,
        **options: object,
    ) -> Mapping[str, Any]:
        """Run one workload (put, batchput, get, recover) on a bare store root, return its figures.

        An option is named as on the command line: `messages=1000` is `--messages 1000`,
        `transient_pool=True` is `--transient-pool`.
        """
        report = self._run_alone(
            self._bench_command(workload, directory, settings, options), timeout
        )
        if report.exit_status != 0 or not report.lines:
            raise self._failure(f"bench {workload}", report)
        return report.lines[-1]

    @contextmanager
    def benching(
        self,
        workload: str,
        directory: Path,
        *,
        settings: Mapping[str, object] | None = None,
        **options: object,
    ) -> Iterator[subprocess.Popen[str]]:
        """Run a workload in the background; leaving the block kills it without warning."""
        command = self._bench_command(workload, directory, settings, options)
        with self._process(command) as process:
            yield process

    @staticmethod
    def _bench_command(
        workload: str,
        directory: Path,
        settings: Mapping[str, object] | None,
        options: Mapping[str, object],
    ) -> list[str]:
        command = ["bench", workload, "--dir", str(directory), *_common(None, settings)]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                command.append(flag)
            elif value is not None and value is not False:
                command += [flag, str(value)]
        return command

    def _run(self, arguments: Sequence[str], timeout: float = COMMAND_TIMEOUT_S) -> Report:
        if self._service is None:
            self._service = _Service(self.release)
        try:
            return self._service.run(arguments, timeout)
        except PeerError:
            self.close()
            raise

    def _run_alone(self, arguments: Sequence[str], timeout: float = COMMAND_TIMEOUT_S) -> Report:
        """Run a command in a process of its own."""
        with self._process(arguments, flags=java.quick_flags(self.release)) as process:
            try:
                stdout, stderr = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired as expired:
                raise _too_long(self.release, arguments, timeout) from expired
        lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        return Report(lines, process.returncode, stderr[-STDERR_KEPT:])

    @contextmanager
    def _process(
        self, arguments: Sequence[str], *, flags: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[str]]:
        with java.scratch(flags) as flags:
            process = subprocess.Popen(
                java.command(self.release, PROGRAM, *arguments, flags=flags),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
            with process:  # closes the pipes and reaps
                try:
                    yield process
                finally:
                    if process.poll() is None:
                        os.killpg(process.pid, signal.SIGKILL)

    def _failure(self, command: str, report: Report) -> PeerError:
        return PeerError(
            f"{self.release} {command} ended with status {report.exit_status}: {report.stderr}"
        )


class _Service:
    """A process that obeys one command after the other."""

    def __init__(self, release: str) -> None:
        self._release = release
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stack = ExitStack()
        flags = self._stack.enter_context(java.scratch(java.quick_flags(release)))
        self._errors = self._stack.enter_context(tempfile.TemporaryFile())
        self._process = subprocess.Popen(
            java.command(release, PROGRAM, "serve", flags=flags),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {release}")
        self._reader.start()

    def run(self, arguments: Sequence[str], timeout: float) -> Report:
        """Return what a command prints. Raises PeerError where the process does not answer."""
        assert self._process.stdin is not None
        begin = os.fstat(self._errors.fileno()).st_size
        self._process.stdin.write(json.dumps(arguments) + "\n")
        self._process.stdin.flush()
        lines: list[Mapping[str, Any]] = []
        deadline = time.monotonic() + timeout
        while not lines or lines[-1].get("type") != "end":
            try:
                text = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise _too_long(self._release, arguments, timeout) from None
            if not text:
                raise PeerError(
                    f"{self._release} {arguments[0]} ended its process: {self._said(begin)}"
                )
            if text.startswith("{"):
                lines.append(json.loads(text))
        return Report(lines[:-1], lines[-1]["status"], self._said(begin))

    def close(self) -> None:
        """End the process, at once and with its children."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        with self._process:  # closes the pipes
            self._stack.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def _said(self, begin: int) -> str:
        """Return what the process wrote on its standard error after a position of it."""
        # The process writes at the position that both share; it is not moved here.
        size = os.fstat(self._errors.fileno()).st_size
        data = os.pread(self._errors.fileno(), size - begin, begin)
        return data.decode(errors="replace")[-STDERR_KEPT:]


def _too_long(release: str, arguments: Sequence[str], timeout: float) -> PeerError:
    return PeerError(f"{release} {arguments[0]} took over {timeout} s")


def _common(spec: Path | None, settings: Mapping[str, object] | None) -> list[str]:
    command = [] if spec is None else ["--spec", str(spec)]
    for name, value in (settings or {}).items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        command += ["--set", f"{name}={text}"]
    return command
