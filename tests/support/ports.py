"""Ports for servers whose port must be known before they start."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator


@contextlib.contextmanager
def reserved(count: int) -> Iterator[list[int]]:
    """Yield ports of the loopback interface that nobody else gets while the context lasts.

    A socket that is bound and does not listen keeps a port for the processes that name it.
    """
    with contextlib.ExitStack() as stack:
        ports = []
        for _ in range(count):
            holder = stack.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            holder.bind(("127.0.0.1", 0))
            ports.append(holder.getsockname()[1])
        yield ports
