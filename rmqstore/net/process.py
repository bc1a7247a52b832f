"""Runs a service as a process: starts it, announces it, and closes it at a signal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from rmqstore.errors import ArgumentError
from rmqstore.net.descriptors import raise_limit

__all__ = ["ending_signals", "run_until_signal"]

T = TypeVar("T")


def ending_signals() -> tuple[signal.Signals, ...]:
    """Return the signals at which a service closes: SIGINT, SIGTERM, and the SIGHUP of a closed
    terminal, unless the process was started to outlive the terminal (nohup)."""
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        return signal.SIGINT, signal.SIGTERM
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


async def run_until_signal(
    service: AbstractAsyncContextManager[T],
    ready_line: Callable[[T], str],
    *,
    announce: Callable[[str], None],
    ready_fd: int | None = None,
) -> None:
    """Run *service* until one of `ending_signals`, then close it. The process may use as many
    descriptors as its hard limit allows.

    Once the service is entered, *announce* is called with its *ready_line*. The line is also
    written to the descriptor *ready_fd*, which is then closed, so that the parent process can read
    to the end. Raises the errors of entering and leaving the service, and ArgumentError for a
    descriptor that cannot be written.
    """
    raise_limit()
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    if ready_fd is not None:
        _check_descriptor(ready_fd)

    signals = ending_signals()
    for number in signals:
        loop.add_signal_handler(number, stopped.set)

    try:
        async with service as entered:
            line = ready_line(entered)
            announce(line)
            if ready_fd is not None:
                _announce_to(ready_fd, line)
            await stopped.wait()
    finally:
        for number in signals:
            loop.remove_signal_handler(number)


def _check_descriptor(descriptor: int) -> None:
    try:
        os.fstat(descriptor)
    except OSError as error:
        raise ArgumentError(
            f"--ready-fd {descriptor} is not an open descriptor: {error.strerror}; "
            "give one that this process inherits"
        ) from error


def _announce_to(descriptor: int, line: str) -> None:
    # The reader may have closed its end; the service continues.
    with contextlib.suppress(OSError):
        os.write(descriptor, f"{line}\n".encode())
    with contextlib.suppress(OSError):
        os.close(descriptor)
