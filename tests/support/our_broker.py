"""A broker of ours as a process behind relays, in the place of a Java broker."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from rmqstore.config import parse_properties
from tests.support.java_cluster import Broker
from tests.support.our_server import OurServer


class OurBroker(Broker):
    """`rmqstore serve broker` with the relays of a Java broker, and its configuration but for
    *settings*."""

    def __init__(
        self, cluster: Any, number: int, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(cluster, number)
        # A controller assigns the id. RocketMQ writes -1 for that, which is no id of a file here.
        self._settings = {"brokerId": 0} | dict(settings or {})
        self._server: OurServer | None = None

    def start(self) -> Any:
        """Start the process; it serves on return."""
        if self._server is None:
            settings = parse_properties(self._config.read_text()) | self._settings
            self._server = OurServer("broker", settings, root=self._root, name="broker")
        else:
            self._server.start()

    def kill(self) -> None:
        """SIGKILL."""
        if self._server is not None:
            self._server.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Pause or continue the process."""
        assert self._server is not None
        self._server.send_signal(number)
