"""What opening a store found, and the warnings about it."""

from __future__ import annotations

from typing import NamedTuple

from rmqstore.store.logger import log

__all__ = ["Recovery"]


class Recovery(NamedTuple):
    """What opening the store found."""

    was_closed: bool
    """Whether the store had been closed; False after a crash."""
    start_offset: int
    """Where the walk through the log began."""

    end_offset: int
    records: int
    """Records walked and checked."""

    cut_bytes: int
    """Bytes after the last whole record that were dropped."""

    cut_path: str
    """Where whole records after a bad one were copied to, below the store; "" when there were
    none."""

    milliseconds: int

    was_cut: bool
    """Whether RocketMQ had cut the log and left bytes or queue units of what it cut."""

    doubtful_offset: int
    """In a read-only store, the offset of bytes that are not a record, where either RocketMQ cut
    the log or records are damaged, which one is unknown; else -1."""

    was_incomplete: bool
    """Whether queues or index lacked entries of records in the log, which are rebuilt. In a
    read-only store nothing is rebuilt: they may lack what they had when the store was closed."""

    def warn(self, root: str, *, read_only: bool, is_new: bool) -> None:
        """Log what an operator should know about the store at *root*."""
        if self.was_cut and not read_only:
            log().warning("%s: the log ends where RocketMQ cut it: %s", root, self)
        if self.doubtful_offset >= 0:
            log().warning(
                "%s: either RocketMQ cut the log at %d, or it is damaged there; which of the two "
                "is unknown, and records after that offset are read",
                root,
                self.doubtful_offset,
            )
        if self.was_incomplete and read_only:
            log().warning(
                "%s: queues or index may lack messages that the log has: open the store for "
                "writing, which rebuilds them, or see rmqstore verify",
                root,
            )
        elif self.was_incomplete:
            log().warning(
                "%s: queues or index lacked messages of the log, and were rebuilt: %s", root, self
            )
        if not self.was_closed and not read_only and not is_new:
            log().info("%s was not closed: %s", root, self)
