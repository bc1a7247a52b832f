"""A port in front of a replica, whose connections a test cuts, holds or changes."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 65536


class Relay:
    """A port of its own for a replica, whatever port that has after a restart.

    *change* is called for each direction of a connection, True for that from the target, and
    returns what is done to every piece that passes.
    """

    def __init__(
        self,
        target: tuple[str, int] | None = None,
        change: Callable[[bool], Callable[[bytes], bytes]] = lambda _: bytes,
        *,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:
        self._change = change
        self._listener = socket.create_server(listen)
        self.address: tuple[str, int] = self._listener.getsockname()
        self.target = target
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._is_cut = False
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def cut(self) -> None:
        """End all connections and take none; on return nothing gets through any more."""
        self.stop()
        self.drop()

    def stop(self) -> None:
        """Pass nothing on any more, and take no connections; `drop` ends those there are."""
        with self._lock:
            self._is_cut = True

    def mend(self) -> None:
        """Take connections again."""
        with self._lock:
            self._is_cut = False

    def drop(self) -> None:
        """End all connections."""
        with self._lock:
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End it all."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            target = self.target
            if target is None:
                near.close()
                continue
            try:
                far = socket.create_connection(target, timeout=10.0)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            with self._lock:
                is_taken = not self._is_cut and self.target == target
                if is_taken:
                    self._open |= {near, far}
            if not is_taken:
                near.close()
                far.close()
                continue
            ends = [near, far]
            for one, other in ((near, far), (far, near)):
                change = self._change(one is far)
                parts = (one, other, ends, change)
                threading.Thread(target=self._pass, args=parts, daemon=True).start()

    def _pass(
        self,
        one: socket.socket,
        other: socket.socket,
        ends: list[socket.socket],
        change: Callable[[bytes], bytes],
    ) -> None:
        with suppress(OSError):
            while (data := one.recv(_CHUNK_BYTES)) and not self._is_cut:
                other.sendall(change(data))
        with self._lock:
            for each in (one, other):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            ends.pop()
            if not ends:
                self._open -= {one, other}
                one.close()
                other.close()
