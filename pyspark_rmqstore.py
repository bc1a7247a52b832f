"""Where Spark finds the format "rmqstore" by itself.

At the first use of a data source's name Spark imports every top-level module whose name begins with
`pyspark_` and takes its `DefaultSource`.
"""

from rmqstore.spark.source import RmqStoreDataSource as DefaultSource

__all__ = ["DefaultSource"]
