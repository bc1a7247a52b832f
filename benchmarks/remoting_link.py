"""A server of the remoting protocol under measurement, and a connection that costs little."""

from __future__ import annotations

import argparse
import contextlib
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.processes import cpu_seconds, status_KiB
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode

__all__ = ["Link", "Server", "add_options", "chosen"]


@dataclass(frozen=True, slots=True)
class Server:
    """A server that runs."""

    host: str
    port: int
    pid: int

    def cpu_s(self) -> float:
        """Return the processor time of the process so far."""
        return cpu_seconds(self.pid)

    def rss_mib(self, name: str = "VmRSS") -> float:
        """Return the resident memory of the process, or the part that the kernel calls *name*."""
        return (status_KiB(self.pid, name) or 0) / 1024


class Link:
    """A blocking connection that counts whole answers without decoding them."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection((server.host, server.port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = bytearray()

    def send(self, data: bytes) -> None:
        """Send encoded requests."""
        self._socket.sendall(data)

    def skip(self, count: int) -> None:
        """Read *count* answers."""
        while count:
            while len(self._held) < 4 or len(self._held) < 4 + self._length():
                self._read()
            del self._held[: 4 + self._length()]
            count -= 1

    def ask(self, request: Frame) -> Frame:
        """Return the answer to one request, with any code."""
        self.send(encode(request))
        decoder = FrameDecoder()
        while True:
            frames = decoder.feed(self._socket.recv(1 << 20))
            if frames:
                return frames[0]

    def call(self, request: Frame) -> Frame:
        """Return the answer to one request. Raises RemotingError for an error of the server."""
        return self.ask(request).raise_for_code(ResponseCode.SUCCESS)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _length(self) -> int:
        return int(struct.unpack_from(">I", self._held)[0])

    def _read(self) -> None:
        data = self._socket.recv(1 << 20)
        if not data:
            raise ConnectionError("the server closed the connection")
        self._held += data


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `chosen` reads, and --json."""
    parser.add_argument("--json", action="store_true", help="print lines of JSON")
    parser.add_argument("--address", help="HOST:PORT of a server that already runs")
    parser.add_argument("--pid", type=int, help="its process id")


@contextlib.contextmanager
def chosen(
    parser: argparse.ArgumentParser,
    given: argparse.Namespace,
    name: str,
    arguments: Sequence[str] = (),
) -> Iterator[Server]:
    """Yield the server of --address, or else `rmqstore serve NAME`, which ends with the block."""
    if (given.address is None) != (given.pid is None):
        parser.error("give --address and --pid together")
    if given.address is not None:
        host, _, port = given.address.rpartition(":")
        yield Server(host, int(port), given.pid)
        return
    command = [sys.executable, "-m", "rmqstore", "serve", name, "--port", "0", *arguments]
    with subprocess.Popen(
        [*command, "--log-level", "ERROR"], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            port = process.stdout.readline().rpartition(":")[2]
            yield Server("127.0.0.1", int(port), process.pid)
        finally:
            process.terminate()
