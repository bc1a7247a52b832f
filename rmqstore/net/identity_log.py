"""Log messages that name one of several servers in a process."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

__all__ = ["IdentityLog"]


class IdentityLog(logging.LoggerAdapter[logging.Logger]):
    """Puts *identity*, such as "controller n0", in brackets before each message of a logger.

    A log without an identity, such as that of a store, takes the identity of the server that it
    works for: the server of whose `naming` block the running task is a descendant.
    """

    def __init__(self, name: str, identity: str = "") -> None:
        super().__init__(logging.getLogger(name))
        self.identity = identity

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Name this server in the messages of the block, and of the tasks, connections and threads
        that begin in it."""
        token = _server.set(self)
        try:
            yield
        finally:
            _server.reset(token)

    def process(
        self, msg: Any, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        """Return the message with the identity."""
        server = _server.get()
        identity = self.identity or (server.identity if server else "")
        return f"[{identity}] {msg}" if identity else msg, kwargs


_server: ContextVar[IdentityLog | None] = ContextVar("server", default=None)
