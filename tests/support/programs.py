"""Programs that start others, as Spark's drivers do."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

__all__ = ["run_program"]

_LEFT_S = 60.0
"""How long processes that a program started may outlive it."""


def run_program(
    command: Sequence[str | os.PathLike[str]], *, timeout: float, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program as `subprocess.run` does, and end what it started and left.

    `subprocess.run` waits for the pipes of such processes without a limit, even behind its timeout.
    *options* are those of `subprocess.Popen`. Raises TimeoutExpired.
    """
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    ) as process:
        limit = time.monotonic() + timeout
        try:
            while time.monotonic() < limit:
                with suppress(subprocess.TimeoutExpired):
                    out, errors = process.communicate(timeout=1.0)
                    return subprocess.CompletedProcess(command, process.returncode, out, errors)
                if process.poll() is not None:
                    limit = min(limit, time.monotonic() + _LEFT_S)
            code = process.poll()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate(timeout=_LEFT_S)
    if code is None:
        raise subprocess.TimeoutExpired(command, timeout, out, errors)
    return subprocess.CompletedProcess(command, code, out, errors)
