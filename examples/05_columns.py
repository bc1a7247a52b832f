"""Records as Arrow columns, filled in C straight from the mapped log (needs rmqstore[arrow])."""

import tempfile

import rmqstore

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    for number in range(1000):
        store.put("orders", b"%d" % number, queue=number % 2, tags="eu" if number % 4 else "us")

    # One queue, three columns, as a pyarrow.Table.
    table = store.queue("orders", 0).to_arrow(columns=["queue_offset", "tags", "body"]).read_all()
    assert table.num_rows == 500
    assert table["body"][1].as_py() == b"2"
    print(table.schema)

    # The whole log in stored order, in batches; nothing but the chosen columns is looked at.
    sizes = store.scan_arrow(columns=["queue_id", "size"], batch_rows=256)
    assert [batch.num_rows for batch in sizes] == [256, 256, 256, 232]

    # Rows are chosen in C, before anything becomes a column.
    stream = store.scan_arrow(columns=["queue_offset"], topic="orders", tags="us")
    assert stream.read_all().num_rows == 250
    assert (stream.rows, stream.skipped) == (250, 0)

# Every library that knows the Arrow C stream takes these objects, with or without pyarrow:
# polars.DataFrame(queue.to_arrow()), duckdb.from_arrow(queue.to_arrow().reader()).
