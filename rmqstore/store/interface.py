"""The store as its own parts call it: queues, columns and retention.

`Store` imports these parts. They import the declarations of this module in place of `Store`, so
that the modules have an order of imports without circles.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

from rmqstore._native.core import Record, StoreReader
from rmqstore.config import StoreConfig
from rmqstore.errors import StoreError
from rmqstore.message import GetStatus

__all__ = ["GetResult", "StoreInterface"]


class GetResult(NamedTuple):
    """The result of a get, as RocketMQ's store returns it."""

    status: GetStatus
    records: list[Record]
    next_offset: int
    """Where to go on."""

    min_offset: int
    """The queue's bounds when the call began."""

    max_offset: int


class StoreInterface(StoreReader, ABC):
    """The methods of a `Store` that its parts call; `Store` documents and implements them."""

    config: StoreConfig

    @abstractmethod
    def get(self, topic: str, *, queue: int = 0, offset: int) -> Record:
        """Return the record at a queue offset."""

    @abstractmethod
    def get_many(
        self,
        topic: str,
        *,
        queue: int = 0,
        offset: int,
        max_count: int = 32,
        max_bytes: int = 4 << 20,
        tags: str | Sequence[str] | None = None,
    ) -> GetResult:
        """Return the records from a queue offset on."""

    @abstractmethod
    def expire_files(self, count: int) -> None:
        """Remove the first *count* commit log files."""

    @abstractmethod
    def _settle(self) -> StoreError | None:
        """Wait until all earlier puts can be read; return the error that prevents it."""

    @abstractmethod
    def _await_change(self, seen: int, timeout: float) -> None:
        """Return when the dispatched offset is above *seen*, or after *timeout* seconds."""
