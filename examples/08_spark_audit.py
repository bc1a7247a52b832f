"""Read a store with Spark, and let Spark check every checksum in it (needs rmqstore[spark]).

python 08_spark_audit.py [PATH] -- without PATH, a store made here, of which bytes are then turned.
"""

import sys
import tempfile
from pathlib import Path

import rmqstore
from rmqstore import spark as rmq
from rmqstore.spark import pipelines


def make(path: Path) -> int:
    """Make a store, and return the offset of a record in the middle of its log."""
    with rmqstore.open(path, commit_log_file_size_bytes=1 << 20) as store:
        for number in range(5000):
            store.put("orders", b"paid %d" % number, queue=number % 4, keys=[f"o-{number}"])
        store.put_many([b"a line of a log " * 20] * 5000, topic="log")
        return store.get("orders", queue=3, offset=600).physical_offset


with tempfile.TemporaryDirectory() as folder:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(folder, "orders.store")
    place = None if len(sys.argv) > 1 else make(path)

    settings = {"spark.local.dir": folder, "spark.log.level": "ERROR"}
    spark = rmq.session(master="local[2]", config=settings).getOrCreate()

    # Spark passes a source neither the columns nor the conditions of a query: name them here.
    sizes = rmq.scan(spark, str(path), columns=["topic", "queueId", "size"])
    sizes.groupBy("topic", "queueId").sum("size").orderBy("topic", "queueId").show()

    # Sums are made in C where the log is read; only they go through Spark.
    print(pipelines.statistics(spark, str(path)))

    report = pipelines.audit(spark, str(path))
    print(report)
    if place is not None:
        assert report.is_sound
        assert report.records == 10_000

        # The body of one record is not what its checksum says.
        with Path(path, "commitlog", f"{0:020}").open("r+b") as file:
            file.seek(place + 90)
            file.write(b"\xff\xff\xff")
        report = pipelines.audit(spark, str(path))
        print(report)
        assert not report.is_sound
        assert report.records == 9_999
        assert [damage.start for damage in report.damage] == [place]

        # A read checks CRCs on request. "fail" ends the query, "skip" continues after the damage.
        checked = spark.read.format("rmqstore").option("checkCrc", "true")
        rows = checked.option("onCorrupt", "row").load(str(path))
        rows.where("error IS NOT NULL").select("physicalOffset", "error").show(truncate=False)
        assert checked.option("onCorrupt", "skip").load(str(path)).count() == 9_999
    spark.stop()
