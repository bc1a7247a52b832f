"""Memory between two pages that nobody may touch: a read outside of it ends the process."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import cffi

PAGE = 4096
PROT_NONE, PROT_READ, PROT_WRITE = 0, 1, 2
MAP_PRIVATE, MAP_ANONYMOUS = 0x02, 0x20

_ffi = cffi.FFI()
_ffi.cdef(
    "void *mmap(void *, size_t, int, int, int, long);"
    "int mprotect(void *, size_t, int);"
    "int munmap(void *, size_t);"
)
_libc: Any = _ffi.dlopen(None)


class GuardedMemory:
    """Room for *size* bytes; leaving the block unmaps it."""

    def __init__(self, size: int) -> None:
        self.room = -(-size // PAGE) * PAGE
        self._mapped = self.room + 2 * PAGE
        flags = MAP_PRIVATE | MAP_ANONYMOUS
        self._base = int(
            _ffi.cast("intptr_t", _libc.mmap(_ffi.NULL, self._mapped, PROT_NONE, flags, -1, 0))
        )
        assert self._base != -1
        self.start = self._base + PAGE
        start = _ffi.cast("void *", self.start)
        assert _libc.mprotect(start, self.room, PROT_READ | PROT_WRITE) == 0

    def __enter__(self) -> GuardedMemory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _libc.munmap(_ffi.cast("void *", self._base), self._mapped)

    def put_first(self, data: bytes) -> int:
        """Return the address of *data*, placed so that the byte before it is forbidden."""
        return self._put(self.start, data)

    def put_last(self, data: bytes) -> int:
        """Return the address of *data*, placed so that the byte behind it is forbidden."""
        return self._put(self.start + self.room - len(data), data)

    def _put(self, address: int, data: bytes) -> int:
        assert len(data) <= self.room
        _ffi.memmove(_ffi.cast("char *", address), data, len(data))
        return address
