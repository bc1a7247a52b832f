"""The inner interface of a store that a broker uses.

A broker passes on what clients encoded: it stores property texts and batches as they came, and
answers pulls with the bytes of the log.
"""

from __future__ import annotations

from rmqstore.store.store import Store

__all__ = ["BrokerView"]


class BrokerView:
    """A store as the handlers of a broker call it.

    The members are the native methods themselves: a call passes through no Python frame. They raise
    StoreClosedError once the store is closed.
    """

    __slots__ = (
        "bounds",
        "get",
        "next_offset",
        "offset_by_time",
        "put",
        "put_batch",
        "query",
        "record_at",
        "record_in",
        "select",
        "takes_batches",
        "units",
    )

    def __init__(self, store: Store) -> None:
        self.put = store._put_encoded
        """Appends one message and returns its Receipt: topic, body, text of the properties, and by
        name queue, flag, sys_flag, born_timestamp, born_host (address and port as a record holds
        them), reconsume_times, and prepared_transaction_offset where it is not 0. Nothing is
        awaited. Raises as Store.put."""
        self.put_batch = store._put_encoded_batch
        """Appends the messages of a batch and returns their Receipts: topic, batch, their number,
        and by name as `put` but the flag, and `appended`, a text of properties that each message
        gets after its own. Raises as Store.put_many."""
        self.takes_batches = store._takes_batches
        """Returns whether a queue, by topic and number, is known as one for inner batches."""
        self.get = store._get_raw
        """Returns (status, next offset, min offset, max offset, messages, records back to back):
        topic, queue, offset, the number of messages and of bytes at most, tags or None, whether to
        check CRCs."""
        self.select = store._get_selected
        """Returns as `get` the records that a function selects: topic, queue, offset, the number of
        messages, of bytes and of messages to look at at most, names of properties, the function,
        which gets a tuple of their values (None for an absent one), whether to check CRCs."""
        self.bounds = store._bounds
        """Returns the first offset of a queue and the one after the last, None without the queue:
        topic, queue."""
        self.units = store._units
        """Returns units of a queue: topic, queue, offset, their number at most."""
        self.next_offset = store._next_offset
        """Returns the offset that the next message of a queue gets: topic, queue."""
        self.offset_by_time = store._offset_by_time
        """Returns the offset at a store time: topic, queue, milliseconds, whether the upper bound.
        Raises NotFoundError without the queue."""
        self.record_in = store._get_one
        """Returns the record at an offset of a queue, None where there is none: topic, queue,
        offset."""
        self.record_at = store._record_at
        """Returns the record at a physical offset, which may be one that readers must not see yet:
        offset, whether to check CRCs. Raises as Store.record_at."""
        self.query = store._query
        """Returns records by key or tag: topic, word, whether it is a tag, first and last store
        time in milliseconds, their number at most."""
