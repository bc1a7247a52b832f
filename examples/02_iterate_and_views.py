"""Iterate over a queue, filter by tag, and read bodies without copying them."""

import tempfile
import zlib

import rmqstore

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    for number in range(1000):
        store.put("orders", b"order %d" % number, tags="eu" if number % 4 else "us")
    queue = store.queue("orders", 0)
    assert (queue.start, queue.end, len(queue)) == (0, 1000, 1000)

    # Each record owns its bytes and outlives the store.
    last = [record.body for record in queue.records(start=990)]
    assert last == [b"order %d" % number for number in range(990, 1000)]

    # A filter by tag looks at the queue's units first, then at the text of the tag.
    assert sum(1 for _ in queue.records(tags="us")) == 250

    # scan() copies nothing: body_view looks into the mapped file, which the record pins.
    checksum = 0
    with queue.scan() as records:
        for record in records:
            with record.body_view as body:
                checksum = zlib.crc32(body, checksum)
    assert checksum == zlib.crc32(b"".join(b"order %d" % n for n in range(1000)))

    # A view that is still open keeps the store from closing, so that it can never dangle.
    with queue.scan(stop=1) as records:
        view = next(records).body_view
    try:
        store.close()
    except rmqstore.ViewsOpenError as error:
        print(error)
    assert view == b"order 0"
    view.release()
    del record, records
