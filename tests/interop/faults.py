"""What a process of a live group suffers within a block."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.support.java_cluster import Broker
from tests.support.our_server import OurServer

FEW = 20
"""Messages acknowledged before a fault, during it where that can be, and after it."""


@contextmanager
def killed(process: Broker | OurServer) -> Iterator[None]:
    """SIGKILL, and a new start at the end of the block."""
    process.kill()
    try:
        yield
    finally:
        process.start()


@contextmanager
def paused(process: Broker | OurServer) -> Iterator[None]:
    """SIGSTOP, and SIGCONT at the end of the block."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextmanager
def cut_off(process: Broker | OurServer) -> Iterator[None]:
    """Hold back all that is sent to or by a broker within the block."""
    assert isinstance(process, Broker)
    process.cut()
    try:
        yield
    finally:
        process.mend()


Fault = Callable[[Broker | OurServer], AbstractContextManager[None]]
