"""Messages as a Polars DataFrame, without pyarrow in between (needs polars)."""

import tempfile

import polars as pl

import rmqstore

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    store.put_many(
        rmqstore.Message(
            "orders",
            b'{"order": %d, "cents": %d}' % (number, number % 7 * 100),
            queue=number % 2,
            tags="eu" if number % 4 else "us",
        )
        for number in range(1000)
    )

    # Polars takes every object with __arrow_c_stream__: a queue's, or the whole log's.
    sizes = pl.DataFrame(store.scan_arrow(columns=["queue_id", "tags", "size"]))
    answer = sizes.group_by("queue_id", "tags").agg(pl.len(), pl.col("size").sum())
    print(answer.sort("queue_id", "tags"))
    assert sizes["size"].sum() == store.end_offset

    # Which rows are read is said to the store; what they mean is found out by Polars.
    queue = store.queue("orders", 0)
    us = pl.DataFrame(queue.to_arrow(columns=["queue_offset", "body"], tags="us"))
    decoded = us.with_columns(
        pl.col("body")
        .cast(pl.String)
        .str.json_decode(pl.Struct({"order": pl.Int64, "cents": pl.Int64}))
    ).unnest("body")
    assert decoded["order"].to_list() == list(range(0, 1000, 4))
    assert decoded["cents"].sum() == sum(number % 7 * 100 for number in range(0, 1000, 4))
    print(f"{decoded.height} orders from us, {decoded['cents'].sum()} cents")
