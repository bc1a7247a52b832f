"""Work over whole stores, run by Spark: comparison, audit, statistics, export, compaction.

Each pipeline is a function that takes a session and a path and returns a report. Its lines are
for people, its `as_json` is for programs, and its `is_sound` is False if anything was found.
Findings that can be many are also DataFrames.

    from rmqstore import spark as rmq
    from rmqstore.spark import pipelines

    spark = rmq.session().getOrCreate()
    print(pipelines.audit(spark, "/data/broker-a/store"))
"""

from rmqstore.spark.pipelines.audit import Audit, audit, audit_rows
from rmqstore.spark.pipelines.compact import Compaction, compact, latest
from rmqstore.spark.pipelines.compare import Comparison, Difference, compare
from rmqstore.spark.pipelines.export import Export, export
from rmqstore.spark.pipelines.feed import Feed, change_feed
from rmqstore.spark.pipelines.half import Hanging, delays, open_transactions, transactions
from rmqstore.spark.pipelines.plot import plot
from rmqstore.spark.pipelines.rebuild import Rebuild, rebuild_check
from rmqstore.spark.pipelines.report import Damage, Report
from rmqstore.spark.pipelines.statistics import (
    Count,
    Statistics,
    count,
    statistics,
    statistics_rows,
)

__all__ = [
    "Audit",
    "Compaction",
    "Comparison",
    "Count",
    "Damage",
    "Difference",
    "Export",
    "Feed",
    "Hanging",
    "Rebuild",
    "Report",
    "Statistics",
    "audit",
    "audit_rows",
    "change_feed",
    "compact",
    "compare",
    "count",
    "delays",
    "export",
    "latest",
    "open_transactions",
    "plot",
    "rebuild_check",
    "statistics",
    "statistics_rows",
    "transactions",
]
