"""One query by each reader through a server of Spark Connect; prints the answers as JSON.

python -m tests.spark.connect_query ADDRESS STORE
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from rmqstore.spark.failures import own_error


def main(address: str, store: str) -> None:
    """Run the query and print who read, and what each reader answers, or the error of its own."""
    made: object = SparkSession.builder.remote(address).getOrCreate()
    assert isinstance(made, ConnectSession)
    spark: Any = made
    answers: dict[str, object] = {}
    for reader in ("auto", "jvm", "python", "none"):
        frame = spark.read.format("rmqstore").option("reader", reader).load(store)
        try:
            chosen = frame.where("tags = 'eu'")
            rows = chosen.groupBy("queueId").sum("queueOffset").collect()
            (by,) = re.findall(r"\((JVM|Python)\)", chosen._explain_string())
            answers[reader] = [by, sorted([*row] for row in rows)]
        except PySparkException as error:
            answers[reader] = [type(error).__name__, str(own_error(error))]
    spark.sql(f"CREATE TEMPORARY VIEW orders USING rmqstore OPTIONS (path '{store}')")
    answers["sql"] = spark.sql("SELECT count(*) FROM orders").collect()[0][0]
    spark.stop()
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
