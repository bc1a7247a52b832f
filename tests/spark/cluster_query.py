"""One query by both readers on the cluster of a master; prints the answers as JSON.

python -m tests.spark.cluster_query MASTER STORE
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import functions as F

from rmqstore.spark import session

CONFIG = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
}


def main(master: str, store: str) -> None:
    """Run the query and print what each reader answers."""
    with session(master=master, config=CONFIG).getOrCreate() as spark:
        answers = {}
        for reader in ("jvm", "python"):
            source = spark.read.format("rmqstore").option("reader", reader)
            frame = source.option("maxPartitionBytes", "20000").load(store).where("tags = 'eu'")
            sums = F.max(F.hex("body")), F.sum("queueOffset")
            rows = frame.groupBy("queueId").agg(*sums).collect()
            answers[reader] = sorted([*row] for row in rows)
        print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
