"""A master's board driven by hand, and replicas that acknowledge on it."""

from __future__ import annotations

import select
import threading
from typing import Any

import rmqstore
from rmqstore._native.core import AckBoard, LogWatch

LIMIT_S = 60


def board_of(store: rmqstore.Store, replicas: int = 2, **rule: Any) -> tuple[AckBoard, list[int]]:
    """Return the board of a master with replicas that count, by default two copies of each put."""
    board = store._board = AckBoard(store)
    slots = [board.open_slot() for _ in range(replicas)]
    board.thaw(**{"counted": slots, "copies": 2, "confirm_copies": 2, **rule})
    return board, slots


class Follower:
    """A replica that acknowledges whatever the log has, from a thread of its own."""

    def __init__(self, store: rmqstore.Store, board: AckBoard, slot: int) -> None:
        self._store, self._board, self._slot = store, board, slot
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        watch, poll, seen = LogWatch(self._store), select.poll(), 0
        poll.register(watch.fileno(), select.POLLIN)
        while not self._stopped.is_set():
            if not watch.arm(seen):
                poll.poll(20)
                watch.clear()
            seen = self._store.end_offset
            self._board.ack(self._slot, seen)
        watch.close()
