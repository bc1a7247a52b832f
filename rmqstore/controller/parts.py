"""What a controller is made of that reaches the world: its server, its clients, its log, its id.

The simulator gives others, on a simulated network, with a log of its own.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from rmqstore.config import ControllerConfig
from rmqstore.controller.engines.choice import engine_of
from rmqstore.controller.engines.engine import Engine
from rmqstore.remoting.client import RemotingClient
from rmqstore.remoting.server import RemotingServer

__all__ = ["Parts"]


def _random_id() -> str:
    return secrets.token_hex(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The makers of the parts, each called as the class that it stands for."""

    server: Callable[..., RemotingServer] = RemotingServer
    client: Callable[[], RemotingClient] = RemotingClient
    """Returns a new client, without connections."""
    engine: Callable[[ControllerConfig], Engine] = engine_of
    """Returns the engine of these settings, which is not started."""
    process_id: Callable[[], str] = _random_id
    """Returns an id that no other process of a controller has."""
