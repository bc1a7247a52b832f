"""SQL over the messages of a store with DuckDB (needs rmqstore[arrow] and duckdb)."""

import tempfile

import duckdb

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
    with duckdb.connect() as database:
        # A stream of the store is a table by the name of its variable; it is read again each time.
        log = store.scan_arrow(columns=["queue_id", "tags", "size"])
        per_queue = "SELECT queue_id, tags, count(*), sum(size) FROM log GROUP BY ALL ORDER BY ALL"
        print(database.sql(per_queue))
        assert database.sql("SELECT sum(size) FROM log").fetchall() == [(store.end_offset,)]

        # Or registered under a name. Columns and tags are chosen here: DuckDB passes neither.
        us = store.queue("orders", 0).to_arrow(columns=["queue_offset", "body"], tags="us")
        database.register("us", us)
        cents = "SELECT count(*), sum((decode(body) ->> 'cents')::BIGINT) FROM us"
        orders, total = database.sql(cents).fetchall()[0]
        assert (orders, total) == (250, sum(number % 7 * 100 for number in range(0, 1000, 4)))
        print(f"{orders} orders from us, {total} cents")

        # To a file in columns: what DuckDB can write, a store can be exported to.
        database.sql(f"COPY (FROM us) TO '{folder}/us.parquet'")
        found = database.sql(f"SELECT max(queue_offset) FROM '{folder}/us.parquet'")
        assert found.fetchall() == [(store.queue("orders", 0).end - 2,)]
