"""Addresses for servers that are started again at the same place."""

from __future__ import annotations

import os
import random
import socket


class Hosts:
    """Addresses that no other process uses: hosts derived from the process id, random ports.

    The ports are below those that the system gives to outgoing connections.
    """

    def __init__(self) -> None:
        number = os.getpid()
        self._net = f"127.{1 + (number >> 8) % 254}.{number % 256}"
        self._given: set[int] = set()

    def host(self, number: int) -> str:
        """Return a host; numbers from 10 to 99 give texts of equal length."""
        assert 10 <= number <= 99
        return f"{self._net}.{number}"

    def ports(self, host: str, *offsets: int) -> int:
        """Return a port that is free at *host*, with those at *offsets* from it."""
        for _ in range(1000):
            port = random.randrange(15_000, 31_000)
            ports = {port, *(port + offset for offset in offsets)}
            if not ports & self._given and all(_is_free(host, each) for each in ports):
                self._given |= ports
                return port
        raise AssertionError(f"no free port at {host}")


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
