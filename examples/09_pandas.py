"""Messages as a pandas DataFrame, by way of Arrow (needs rmqstore[arrow] and pandas)."""

import json
import tempfile

import pandas as pd

import rmqstore

with tempfile.TemporaryDirectory() as folder, rmqstore.open(f"{folder}/orders.store") as store:
    store.put_many(
        rmqstore.Message(
            "orders",
            json.dumps({"order": number, "cents": number % 7 * 100}).encode(),
            queue=number % 2,
            tags="eu" if number % 4 else "us",
        )
        for number in range(1000)
    )

    # One queue: only the named columns are filled. pandas 3 takes the stream itself:
    # pd.DataFrame.from_arrow(stream), by way of its __arrow_c_stream__.
    stream = store.queue("orders", 0).to_arrow(columns=["tags", "body"])
    orders = stream.read_all().to_pandas()
    assert len(orders) == 500
    print(orders.dtypes)

    # Bodies are bytes; what they mean is for pandas to find out.
    orders = orders.join(pd.json_normalize(orders.pop("body").map(json.loads).tolist()))
    cents = orders.groupby("tags")["cents"].sum()
    print(cents)
    assert cents.sum() == sum(number % 7 * 100 for number in range(0, 1000, 2))

    # The whole log, one batch after the other, where it does not fit into memory.
    counts = pd.Series(dtype="int64")
    for batch in store.scan_arrow(columns=["tags", "size"], batch_rows=256):
        counts = counts.add(batch.to_pandas()["tags"].value_counts(), fill_value=0)
    assert counts.astype(int).to_dict() == {"eu": 750, "us": 250}

    # store_timestamp and born_timestamp are datetime64[ms, UTC], ready for resample.
    frame = store.scan_arrow(columns=["store_timestamp", "size"]).read_all().to_pandas()
    a_minute = frame.resample("1min", on="store_timestamp")["size"].sum()
    assert a_minute.sum() == store.end_offset
    print(f"{a_minute.sum()} bytes in {len(frame)} messages")
