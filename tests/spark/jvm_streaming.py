"""A streaming query whose tasks run in Java, without Spark."""

from __future__ import annotations

import json
from typing import Any

from rmqstore.spark import schema
from rmqstore.spark.failures import own_error
from rmqstore.spark.jvm.streams import Streams
from rmqstore.spark.options import Options
from tests.spark.plan_reader import PlanReader, ReaderError
from tests.spark.reading import Row
from tests.spark.streaming import Query


class JvmQuery(Query):
    """The same, planned by the driver's answers and read by the classes of the JVM."""

    def __init__(self, java: PlanReader, path: object, **options: object) -> None:
        self._java = java
        super().__init__(path, **options)

    def _make(self) -> None:
        super()._make()
        parsed = Options.parse(self.options, streaming=True)
        self._ddl = schema.ddl(schema.columns_of(parsed), kafka=parsed.kafka_names)
        self._streams = Streams()
        self._streams(
            {
                "do": "open",
                "options": self.options,
                "schema": self.schema.json(),
                "columns": self.schema.fieldNames(),
            }
        )

    def planned(self) -> list[Any]:
        """Return the partitions of the planned batch, as tasks get them."""
        start, end = json.dumps(self.start), self.offsets[self.committed]
        planned = self._streams({"do": "plan", "start": start, "end": end})
        found: list[Any] = json.loads(json.dumps(planned["partitions"]))
        return found

    def task_rows(self, partition: Any) -> list[Row]:
        """Return the rows of one partition, times as numbers."""
        reading, splits = partition["reading"], partition["splits"]
        plan = {"reading": reading, "partitions": [{"splits": splits}], "bytes": 0, "rows": None}
        try:
            rows = self._java.read(self._ddl, plan)
        except ReaderError as error:
            raise own_error(error) or error from None
        names = self.schema.fieldNames()
        made = [dict(zip(names, row, strict=True)) for row in rows]
        return [{**row, "body": bytes.fromhex(row["body"])} for row in made]
