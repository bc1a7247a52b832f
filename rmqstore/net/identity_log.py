"""Log messages that name one of several servers in a process."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import Any

__all__ = ["IdentityLog"]


class IdentityLog(logging.LoggerAdapter[logging.Logger]):
    """Puts *identity*, such as "controller n0", in brackets before each message of a logger."""

    def __init__(self, name: str, identity: str) -> None:
        super().__init__(logging.getLogger(name))
        self.identity = identity

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Return the message with the identity."""
        return f"[{self.identity}] {msg}", kwargs
