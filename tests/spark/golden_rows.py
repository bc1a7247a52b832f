"""The rows that a golden store must give, told by its manifest and the reference codecs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.golden import GoldenCase
from tests.reference import batch as reference_batch
from tests.reference import log as reference_log
from tests.reference import properties
from tests.reference import record as reference
from tests.spark.reading import Row

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Return a timestamp of a row as the store has it."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def expected_rows(case: GoldenCase) -> Iterator[Row]:
    """Yield one row a message, in log order, as `comparable` makes them of rows read."""
    bodies = {place: found.body for place, found in reference_log.walk(case.root / "commitlog")}
    for line in case.manifest:
        if "damaged" not in line:
            yield from _rows_of(line, bodies[line["phyOffset"]])


def comparable(row: Mapping[str, Any]) -> Row:
    """Return *row* with what a manifest tells of it: digests of bodies, times in milliseconds."""
    body = row["body"]
    return {
        **{name: value for name, value in row.items() if name not in ("body", "path")},
        "storeTimestamp": milliseconds(row["storeTimestamp"]),
        "bornTimestamp": milliseconds(row["bornTimestamp"]),
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }


def _rows_of(line: Mapping[str, Any], body: bytes) -> Iterator[Row]:
    row = {
        "topic": line["topic"],
        "queueId": line["queueId"],
        "queueOffset": line["queueOffset"],
        "physicalOffset": line["phyOffset"],
        "size": line["size"],
        "storeTimestamp": line["storeTimestamp"],
        "bornTimestamp": line["bornTimestamp"],
        "bornHost": line["bornHost"],
        "storeHost": line["storeHost"],
        "tags": line["tags"],
        "keys": line["keys"],
        "uniqKey": line["properties"].get("UNIQ_KEY"),
        "properties": line["properties"],
        "bodyCrc": line["bodyCRC"],
        "bodyCrcOk": True,
        "sysFlag": line["sysFlag"],
        "flag": line["flag"],
        "reconsumeTimes": line["reconsumeTimes"],
        "preparedTransactionOffset": line["preparedTransactionOffset"],
        "msgId": line["msgId"],
        "version": line["version"],
        "bodyLength": line["bodyLength"],
        "bodySha256": line["bodySha256"],
    }

    if not any("batchNum" in entry for entry in line["consumeQueues"]):
        yield row
        return

    (entry,) = line["consumeQueues"]
    messages = reference_batch.decode(body)
    assert len(messages) == entry["batchNum"]

    for index, message in enumerate(messages):
        pairs = properties.decode(message.property_bytes)
        yield row | {
            "queueOffset": entry["offset"] + index,
            "tags": pairs.get("TAGS"),
            "keys": pairs.get("KEYS"),
            "uniqKey": pairs.get("UNIQ_KEY"),
            "properties": pairs,
            "flag": message.flag,
            "bodyCrc": reference.crc(message.body),
            "bodyLength": len(message.body),
            "bodySha256": hashlib.sha256(message.body).hexdigest(),
        }
