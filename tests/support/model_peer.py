"""A connection of a client, as handlers of a server see it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqstore.remoting.frames import Frame

__all__ = ["ModelPeer"]


class ModelPeer:
    """An open connection, which keeps what is sent to its client."""

    def __init__(self, number: int = 1) -> None:
        self.peer = (f"10.1.0.{number}", 40_000)
        self.address = f"10.1.0.{number}:40000"
        self.proxied_peer: tuple[str, int] | None = None
        self.is_open = self.is_writable = True
        self.sent: list[Frame] = []
        self.reason = ""
        """Why the server closed the connection."""
        self._callbacks: list[Callable[[Any], None]] = []

    def send(self, frame: Frame) -> None:
        if self.is_open:
            self.sent.append(frame)

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def close(self, reason: str) -> None:
        """Begin to end the connection, which `lose` does."""
        self.is_open, self.reason = False, reason

    def lose(self) -> None:
        """End the connection."""
        self.is_open = False
        for callback in self._callbacks:
            callback(self)
