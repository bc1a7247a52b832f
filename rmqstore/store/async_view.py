"""The inner interface of a store that `rmqstore.aio` uses.

The public class of a store is `rmqstore.Store`. For asyncio an append and the wait for its
acknowledgement are separate calls, and threads wait for offsets on behalf of tasks.
"""

from __future__ import annotations

from rmqstore.store.store import Store

__all__ = ["AsyncView"]


class AsyncView:
    """A store as `rmqstore.aio` calls it.

    The members are the native methods themselves: a call passes through no Python frame. They may
    be called from any thread, and raise StoreClosedError once the store is closed.
    """

    __slots__ = ("admit", "deciding", "outcomes", "wait_dispatched_beyond")

    def __init__(self, store: Store) -> None:
        self.admit = store._admit
        """Returns the Admission of a put that the caller appends next, and whose acknowledgement it
        awaits itself. Arguments: copies, durability. Raises as Store.put when it refuses one."""
        self.deciding = store._deciding
        """Returns (Admission, Receipt) of the puts that decide when all of an iterable of handles
        are as durable as asked."""
        self.outcomes = store._outcomes
        """Returns the receipts of an iterable of handles, or raises as Store.wait; does not wait.
        Also given: (Admission, Receipt) of each deciding put that was acknowledged."""
        self.wait_dispatched_beyond = store._wait_progress
        """Returns whether the dispatched offset is above an offset, after a number of milliseconds
        at most."""
