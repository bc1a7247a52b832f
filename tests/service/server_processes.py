"""`rmqstore serve` as a process: started, ended by a signal, or refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rmqstore.cli.errors import ExitCode
from tests.support.waiting import WAIT_S


@contextmanager
def serving(*arguments: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run `rmqstore serve` with *arguments*; kill the process at the end or after WAIT_S."""
    with subprocess.Popen(
        [sys.executable, "-m", "rmqstore", "serve", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    ) as process:
        limit = threading.Timer(WAIT_S, process.kill)
        limit.start()
        try:
            yield process
        finally:
            limit.cancel()
            process.kill()


def first_line(process: subprocess.Popen[str]) -> str:
    """Return the first line that *process* prints: its server and its address."""
    assert process.stdout is not None
    return process.stdout.readline()


def errors_until_signal(
    number: signal.Signals,
    server: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
) -> tuple[str, str]:
    """Run *server* until it is ready, then end it by signal *number*.

    Return the address it serves at and what it logged. The address comes on the descriptor of
    --ready-fd and on the standard output, alike; the process ends with status 0. *environment*
    adds variables.
    """
    reader, writer = os.pipe()
    given = {"pass_fds": [writer], "env": {**os.environ, **(environment or {})}}
    with serving(server, *arguments, "--ready-fd", str(writer), **given) as process:
        os.close(writer)
        with open(reader, encoding="utf-8") as ready:
            line = ready.read()
        assert line.startswith(f"rmqstore {server} serves at 127.0.0.1:")
        process.send_signal(number)
        out, errors = process.communicate()

    assert process.returncode == 0, errors
    assert out == line
    return line.split()[-1], errors


def refusal(*arguments: str, status: int = ExitCode.USAGE) -> str:
    """Return what `rmqstore serve` prints where it refuses to start, with exit *status*."""
    with serving(*arguments) as process:
        _, errors = process.communicate()
    assert process.returncode == status, errors
    return errors
