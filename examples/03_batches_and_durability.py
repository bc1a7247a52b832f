"""Put many messages at once, choose what an acknowledgement means, and read the errors."""

import tempfile

import rmqstore
from rmqstore import Durability, Message

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    # put_many: all messages are validated first; one wait covers all of them.
    messages = [Message("orders", b"line %d" % n, queue=n % 4, keys=[f"l-{n}"]) for n in range(100)]
    receipts = store.put_many(messages, durability=Durability.DISK)
    assert [receipt.durability for receipt in receipts] == [Durability.DISK] * 100
    assert store.flushed_offset >= receipts[-1].end_offset

    # MEMORY, the default, returns when the record is in the mapped log: it survives this process,
    # not a power loss. wait_flushed() makes up for it later, for any number of puts.
    receipt = store.put("orders", b"cheap", durability=Durability.MEMORY)
    store.wait_flushed(receipt.end_offset)

    # put_async: a handle at once; one wait covers any number of them.
    handles = [store.put_async("orders", b"paid", durability=Durability.DISK) for _ in range(10)]
    assert [handle.receipt.queue_offset for handle in handles] == list(range(26, 36))
    assert {receipt.durability for receipt in store.wait(handles)} == {Durability.DISK}

    # put_batch: one queue, side by side in one log file, as RocketMQ stores a client's batch.
    batch = store.put_batch([Message("orders", b"a"), Message("orders", b"b")])
    assert batch[1].physical_offset == batch[0].end_offset

    # A failed put answers three questions: its status, whether it is stored, whether to retry.
    try:
        store.put("orders", bytes(5 << 20))
    except rmqstore.MessageRejected as error:
        print(error)
        print(f"{error.status}, stored: {error.stored}, retriable: {error.retriable}")

    # There are no replicas to acknowledge, so REPLICATED is refused instead of pretended.
    try:
        store.put("orders", b"paid", durability=Durability.REPLICATED)
    except rmqstore.InSyncReplicasNotEnough as error:
        print(error)
        print(f"{error.status}, stored: {error.stored}, retriable: {error.retriable}")
