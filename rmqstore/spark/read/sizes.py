"""How much a reader fetches and fills at once, in Python and in the JVM."""

from __future__ import annotations

__all__ = [
    "BATCH_ROWS",
    "LOCAL_GAP_BYTES",
    "LOCAL_WINDOW_BYTES",
    "RECORD_BYTES",
    "REMOTE_GAP_BYTES",
    "REMOTE_WINDOW_BYTES",
]

BATCH_ROWS = 65_536
"""Reached by narrow rows only; wide ones fill the bytes of a batch first."""

LOCAL_WINDOW_BYTES = 1 << 20
"""Small enough to stay in the processor's cache between the read and the decoding."""
REMOTE_WINDOW_BYTES = 8 << 20
"""Large enough to make up for a request's way there and back."""

RECORD_BYTES = 4096
"""How much is read for a lone record whose size is not known yet."""

LOCAL_GAP_BYTES = 64 << 10
"""Records that begin closer to each other than this are read at once: reading the gap
costs less than another call."""
REMOTE_GAP_BYTES = 1 << 20
