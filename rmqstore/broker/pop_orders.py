"""The order of popped messages: what follows from pops, acknowledgements and changed times.

The messages of an orderly pop belong to one consumer until they are acknowledged or their time is
over. Before that no consumer of the group pops the queue, except for a repetition of the same
attempt; after that the queue is popped again from the first message without an acknowledgement.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from rmqstore.store.metadata.orders import OrderState

__all__ = [
    "acknowledged",
    "count_texts",
    "free_ms",
    "hidden_until",
    "is_blocked",
    "next_offset",
    "popped",
]


def popped(
    former: OrderState | None,
    offsets: Collection[int],
    *,
    popped_ms: int,
    invisible_ms: int,
    attempt_id: str | None,
    now_ms: int,
) -> OrderState:
    """Return the state after a pop of messages. Those of the *former* pop count once more, unless
    the consumer repeats its attempt."""
    counts = None
    if former is not None:
        counts = dict(former.counts or {})
        if former.attempt_id is None or former.attempt_id != attempt_id:
            again = set(former.offsets).intersection(offsets)
            counts = {offset: counts.get(offset, 0) + 1 for offset in sorted(again)}
    return OrderState(
        popped_ms=popped_ms,
        invisible_ms=invisible_ms,
        offsets=tuple(offsets),
        counts=counts,
        used_ms=now_ms,
        attempt_id=attempt_id,
    )


def is_blocked(
    state: OrderState | None, attempt_id: str | None, *, invisible_ms: int, now_ms: int
) -> bool:
    """Return whether another consumer has messages of the queue. *invisible_ms* counts where the
    state names no time."""
    if state is None or (state.attempt_id is not None and state.attempt_id == attempt_id):
        return False
    return any(now_ms < _visible_ms(state, offset, invisible_ms) for offset in _open_offsets(state))


def free_ms(state: OrderState, *, now_ms: int) -> int | None:
    """Return when the next message may be popped again, at the earliest now; None without a
    message, or without a time."""
    if not state.offsets:
        return None
    for offset in _open_offsets(state):
        if state.invisible_ms is None:
            return None
        visible_ms = _visible_ms(state, offset, 0)
        if now_ms < visible_ms:
            return visible_ms
    return now_ms


def acknowledged(state: OrderState, offset: int) -> OrderState | None:
    """Return the state once a message is consumed; None for one that the pop does not have."""
    if offset not in state.offsets:
        return None
    bit = 1 << state.offsets.index(offset)
    return replace(state, acknowledged=state.acknowledged | bit)


def next_offset(state: OrderState) -> int | None:
    """Return the offset of the first message that is not acknowledged, or the one past all; None
    for a pop without messages."""
    if not state.offsets:
        return None
    return next(iter(_open_offsets(state)), state.offsets[-1] + 1)


def hidden_until(state: OrderState, offset: int, visible_ms: int) -> OrderState:
    """Return the state once a message has a time of its own from which on it may be popped
    again."""
    return replace(state, visible_ms={**(state.visible_ms or {}), offset: visible_ms})


def count_texts(kind: int, queue: int, state: OrderState) -> list[str]:
    """Return how often messages of a pop were popped before, as the answer names it: each one that
    was, then the least number of all."""
    counts = state.counts or {}
    texts = [f"{kind} qo{queue}%{offset} {count}" for offset, count in counts.items()]
    # A number is missing for each message that comes for the first time.
    least = min(counts.values()) if counts and len(counts) == len(state.offsets) else 0
    return [*texts, f"{kind} {queue} {least}"]


def _open_offsets(state: OrderState) -> list[int]:
    """Returns the messages that are not acknowledged."""
    return [offset for at, offset in enumerate(state.offsets) if not state.acknowledged >> at & 1]


def _visible_ms(state: OrderState, offset: int, invisible_ms: int) -> int:
    visible_ms = state.popped_ms + (state.invisible_ms or invisible_ms)
    return (state.visible_ms or {}).get(offset, visible_ms)
