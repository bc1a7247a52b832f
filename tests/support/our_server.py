"""`rmqstore serve` as a process that tests kill, pause and start again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from tests.support.builds import REPOSITORY

START_S = 240.0
"""For a process to serve; a loaded machine takes a fraction of it."""


class OurServer:
    """`rmqstore serve` as a process that is killed, paused and started again."""

    def __init__(self, server: str, config: Mapping[str, object], *, root: Path, name: str) -> None:
        self._server = server
        self._config = root / f"{name}.conf"
        self._errors = root / f"{name}.err"
        self._process: subprocess.Popen[str] | None = None
        self._config.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
        self.start()

    def start(self) -> None:
        """Start the process; it serves on return."""
        with self._errors.open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "rmqstore", "serve", self._server, "-c", self._config],
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | {"PYTHONPATH": str(REPOSITORY)},
            )
        limit = threading.Timer(START_S, self._process.kill)
        limit.start()
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        limit.cancel()
        assert " serves at " in line, self._errors.read_text()[-4000:]

    def kill(self) -> None:
        """SIGKILL, where the process runs."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def stop(self) -> None:
        """SIGTERM; the process has ended on return."""
        assert self._process is not None
        self._process.terminate()
        self._process.communicate(timeout=START_S)
        self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        """Pause or continue the process."""
        assert self._process is not None
        self._process.send_signal(number)
