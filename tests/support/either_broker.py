"""A broker whose directory is served by Java's program or by ours, one after the other."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rmqstore.config import parse_properties
from tests.support.java_cluster import Broker, JavaCluster
from tests.support.our_server import OurServer

_STOP_S = 120.0
"""Java's brokers take up to 13 s on an idle machine."""


class EitherBroker(Broker):
    """A broker behind relays, with one configuration and one directory for both programs."""

    def __init__(
        self,
        cluster: JavaCluster,
        number: int,
        *,
        is_java: bool,
        release: str | None = None,
        settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        super().__init__(cluster, number, release=release, settings=settings)
        self.is_java = is_java
        """Which program the next start uses."""
        self.runs_java = is_java
        """Which program was started last."""
        self._server: OurServer | None = None

    def start(self) -> Any:
        """Start the process. Ours serves on return, Java's later."""
        self.runs_java = self.is_java
        if self.is_java:
            return super().start()
        if self._server is None:
            settings = parse_properties(self._config.read_text())
            self._server = OurServer("broker", settings, root=self._root, name="broker")
        else:
            self._server.start()
        return None

    def stop(self) -> None:
        """End the process as a supervisor does; it has ended on return."""
        if self.runs_java:
            assert self._process is not None
            self._process.process.send_signal(signal.SIGTERM)
            self._process.process.wait(_STOP_S)
        else:
            assert self._server is not None
            self._server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        if self.runs_java:
            super().kill()
        elif self._server is not None:
            self._server.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Pause or continue the process."""
        if self.runs_java:
            super().send_signal(number)
        else:
            assert self._server is not None
            self._server.send_signal(number)
