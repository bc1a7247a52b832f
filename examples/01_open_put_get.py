"""Open a store, put a message, get it back by offset, by key, by id and by time."""

import tempfile

import rmqstore

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    # A put returns a receipt with the offsets of the message. The first put of a queue creates it.
    receipt = store.put("orders", b"paid", queue=0, tags="eu", keys=["o-17", "c-4"])
    print(receipt)

    # A get sees everything that was put before it.
    record = store.get("orders", queue=0, offset=receipt.queue_offset)
    assert (record.body, record.tags, record.keys) == (b"paid", "eu", ["o-17", "c-4"])

    # The index finds messages by key, the offset message id names one permanently.
    assert [found.body for found in store.find("orders", "o-17")] == [b"paid"]
    assert store.get_by_id(receipt.message_id).physical_offset == receipt.physical_offset

    # LOWER: the first message stored at or after a time.
    assert store.queue("orders").offset_at(record.store_timestamp) == receipt.queue_offset

    # What is not there is an error that says what is.
    try:
        store.get("orders", queue=0, offset=5)
    except rmqstore.OffsetOutOfRange as error:
        print(error)
        print(f"from {error.start} to before {error.end}; nearest is {error.nearest}")
# Leaving the block flushed and closed the store.
