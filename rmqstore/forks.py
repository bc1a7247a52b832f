"""What a forked child must not keep: locks, listening sockets and connections of its parent.

A child shares every open file with its parent. While the child lives, a lock, a port or a
connection stays in use, even after the parent was killed. So the owners of such descriptors
register here, and the child closes its copies before `os.fork` returns in it. A child that C code
forks without Python's hooks keeps them until it calls exec.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

__all__ = ["make", "watch"]

T = TypeVar("T")


class _Acts(NamedTuple):
    in_child: Callable[[Any], object]
    before: Callable[[Any], object] | None
    in_parent: Callable[[Any], object] | None


_lock = threading.Lock()
"""Held over a fork, so that the child finds the registry whole."""
_owners: weakref.WeakKeyDictionary[Any, _Acts] = weakref.WeakKeyDictionary()
_held: list[tuple[Any, _Acts]] = []
"""The owners during a fork in progress."""


def watch(
    owner: T,
    in_child: Callable[[T], object],
    *,
    before: Callable[[T], object] | None = None,
    in_parent: Callable[[T], object] | None = None,
) -> None:
    """Call *in_child* with *owner* in every forked child, for as long as *owner* lives.

    *before* is called before the fork and *in_parent* after it, in the parent. *in_child* closes
    descriptors and nothing else: threads of the parent are not there, and their locks may be held.
    """
    with _lock:
        _owners[owner] = _Acts(in_child, before, in_parent)


def make(
    maker: Callable[[], T],
    in_child: Callable[[T], object],
    *,
    before: Callable[[T], object] | None = None,
    in_parent: Callable[[T], object] | None = None,
) -> T:
    """Return what *maker* returns, watched from its first moment: a fork waits for *maker*, which
    therefore neither blocks nor forks."""
    with _lock:
        owner = maker()
        _owners[owner] = _Acts(in_child, before, in_parent)
    return owner


def _before() -> None:
    _lock.acquire()
    for owner, acts in list(_owners.items()):
        _held.append((owner, acts))
        if acts.before is not None:
            acts.before(owner)


def _in_parent() -> None:
    try:
        for owner, acts in _held:
            if acts.in_parent is not None:
                acts.in_parent(owner)
    finally:
        _held.clear()
        _lock.release()


def _in_child() -> None:
    try:
        for owner, acts in _held:
            # What one cannot close, a number that is not open any more say, keeps no other.
            with contextlib.suppress(OSError):
                acts.in_child(owner)
    finally:
        _held.clear()
        _lock.release()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
