"""A driver that follows a store into Parquet until it is killed.

python -m tests.spark.stream_query PATH SINK CHECKPOINT SCRATCH
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from rmqstore.spark import session

OPTIONS = {
    "startingOffsets": "earliest",
    "columns": "physicalOffset,queueId,queueOffset,body",
}
BATCH_BYTES = 60_000


def follow(
    spark: SparkSession,
    path: str,
    sink: str,
    checkpoint: str,
    *,
    ends: bool,
    batch_bytes: int = BATCH_BYTES,
    reader: str = "auto",
) -> StreamingQuery:
    """Start a query that writes each message to *sink*; with *ends* it ends with what is there."""
    stream = spark.readStream.format("rmqstore").options(**OPTIONS).option("reader", reader)
    rows = stream.option("maxBytesPerTrigger", batch_bytes).load(path)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    if ends:
        writer = writer.trigger(availableNow=True)
    return writer.start(sink)


def _main(path: str, sink: str, checkpoint: str, scratch: str) -> None:
    config = {
        "spark.driver.memory": "512m",
        "spark.local.dir": scratch,
        "spark.log.level": "ERROR",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
    }
    spark = session(master="local[2]", config=config).getOrCreate()
    follow(spark, path, sink, checkpoint, ends=False).awaitTermination()


if __name__ == "__main__":
    _main(*sys.argv[1:])
