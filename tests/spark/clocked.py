"""Stores whose messages have store times at even steps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import rmqstore
from tests.support.native_store import set_clock

CLOCK_MS = 1_700_000_000_000
"""Store time of the first message."""


def write_clocked(
    root: Path, put: Callable[[int], dict[str, Any]], *, count: int, step_ms: int, file_bytes: int
) -> Path:
    """Write a closed store of *count* messages with the arguments of `Store.put` that *put* returns
    for each number, beside body and property n; return *root*."""
    with rmqstore.open(root, commit_log_file_size_bytes=file_bytes) as store:
        for number in range(count):
            set_clock(store, CLOCK_MS + step_ms * number)
            store.put(body=b"body %d" % number, properties={"n": str(number)}, **put(number))
    return root
