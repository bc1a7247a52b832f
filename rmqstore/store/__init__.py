"""A store and its queues: open, put, get, iterate, columns, retention, metadata."""

from rmqstore.store.store import GetResult, Queue, Recovery, Store
from rmqstore.store.store import open as open

__all__ = ["GetResult", "Queue", "Recovery", "Store"]
