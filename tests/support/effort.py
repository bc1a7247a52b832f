"""How long a test runs: short by default, long with RMQ_LONG=1, which `make soak` sets."""

from __future__ import annotations

import os


def is_long() -> bool:
    """Tell whether the long forms were asked for."""
    return os.environ.get("RMQ_LONG", "0") not in ("", "0")


def rounds(short: int, long: int) -> int:
    """Return *long* with RMQ_LONG=1, else *short*."""
    return long if is_long() else short
