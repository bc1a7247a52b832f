"""Who is notified of what happens to a store; any number of subscribers to each event.

The offsets of the log move on whatever thread puts or works for the store, while C code runs, and
C code calls no Python: a subscriber gets a descriptor, for an event loop or a poll. Files expire
and the store closes inside calls of Python: a subscriber gives a function.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable
from typing import Any, Literal, Self, cast, overload

from rmqstore import forks
from rmqstore._native.core import LogWatch, StoreHandle
from rmqstore.errors import ArgumentError, StoreClosedError

__all__ = ["Subscription", "Watchers"]

Moved = Literal["grew", "flushed", "dispatched", "confirmed"]


class Subscription:
    """A function that is called for an event, until `close`. A context manager."""

    def __init__(self, act: Callable[..., object], others: list[Subscription]) -> None:
        self.act = act
        self._others = others

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the subscription. A call that has begun goes on. A second call does nothing."""
        with contextlib.suppress(ValueError):
            self._others.remove(self)


class Watchers:
    """The subscribers to the events of one store. Safe to use from any thread."""

    def __init__(self, store: StoreHandle) -> None:
        # Subscribers hold the store weakly, so that they do not keep it alive.
        self._store = weakref.ref(store)
        self._subscriptions: dict[str, list[Subscription]] = {"expired": [], "closed": []}

    @overload
    def subscribe(self, event: Moved) -> LogWatch: ...
    @overload
    def subscribe(self, event: Literal["expired"], act: Callable[[], object]) -> Subscription: ...
    @overload
    def subscribe(
        self, event: Literal["closed"], act: Callable[[bool], object]
    ) -> Subscription: ...
    def subscribe(self, event: str, act: Callable[..., object] | None = None) -> Any:
        """Return what notifies of *event* until it is closed.

        "grew", "flushed", "dispatched" and "confirmed": a LogWatch, whose descriptor becomes
        readable once the log's end, or the offset of that name, is above what the watcher has seen.
        A forked child does not keep it. "expired": *act* is called, without
        arguments, after files were removed from the beginning of the log, by the thread that
        removed them. "closed": *act* is called when the store begins to close and is still open,
        with False where the store is abandoned and nothing may be saved.

        Raises ArgumentError for another event, StoreClosedError.
        """
        if event in ("grew", "flushed", "dispatched", "confirmed"):
            store, moved = self._alive(), cast(Moved, event)
            return forks.make(lambda: LogWatch(store, moved), LogWatch.disown)
        if event not in self._subscriptions or act is None:
            raise ArgumentError(
                f"event {event!r}; events are 'grew', 'flushed', 'dispatched' and 'confirmed', and "
                "with a function 'expired' and 'closed'"
            )
        subscription = Subscription(act, self._subscriptions[event])
        self._subscriptions[event].append(subscription)
        return subscription

    def notify(self, event: Literal["expired", "closed"], *arguments: object) -> None:
        """Call every subscriber to *event*. One that raises keeps no other from being called; the
        first such error is raised at the end."""
        failure: BaseException | None = None
        for subscription in list(self._subscriptions[event]):
            try:
                subscription.act(*arguments)
            except BaseException as error:
                failure = failure or error
        if failure is not None:
            raise failure

    def _alive(self) -> StoreHandle:
        store = self._store()
        if store is None:
            raise StoreClosedError("the store of these watchers is gone")
        return store
