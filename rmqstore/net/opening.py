"""Opening of what a loop cannot open without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["open_on_thread"]

T = TypeVar("T")


async def open_on_thread(make: Callable[[], T], close: Callable[[T], Awaitable[object]]) -> T:
    """Return what *make* returns on another thread. A call that is cancelled waits for the thread,
    which nothing can stop, and closes what it made."""
    making = asyncio.ensure_future(asyncio.to_thread(make))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait([making])
        if making.exception() is None:
            await close(making.result())
        raise
