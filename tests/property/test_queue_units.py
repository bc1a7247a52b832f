"""The rule "which queue units does a record call for": in C, in Python, and over Arrow columns."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import rmqstore
from rmqstore.check.units import Unit, needs_properties, tags_code_of, units_of
from rmqstore.message import decode_properties
from tests.reference import properties as property_text
from tests.reference import record
from tests.reference.record import Host, Record

pytest.importorskip("pyarrow", reason="columns need pyarrow: pip install rmqstore[arrow]")

from rmqstore.spark.pipelines.calls import UNIT_COLUMNS, unit_batches

FILE_SIZE = 16 << 10
FILLER_BODY = bytes(4000)
"""Room below the record, so that it may have a queue offset above 0."""

HOST = Host(bytes((127, 0, 0, 1)), 10911)
STORED_MS = 1_700_000_000_000
UNIT, BATCH_UNIT = struct.Struct(">qiq"), struct.Struct(">qiqqqhii")
FILL_SIZE = 0x7FFFFFFF

NUMBERS = ("", "0", "1", "3", "+3", "07", "-1", " 3", "3 ", "1_0", "x", "٣")
texts = {
    "TAGS": st.sampled_from(["a", "b"]),
    "DELAY": st.sampled_from(["0", "1", "3", "+2", "99", "-1", "x", "4294967297"]),
    "INNER_NUM": st.sampled_from((*NUMBERS, "32768")),
    # An impossible base is damage; the record gets no unit.
    "INNER_BASE": st.sampled_from(NUMBERS),
    "INNER_MULTI_DISPATCH": st.lists(
        st.sampled_from(["%LMQ%a", "%LMQ%b", "other", "t", "", "..", "a/b", "l" * 256]), max_size=3
    ).map(",".join),
    "INNER_MULTI_QUEUE_OFFSET": st.lists(
        st.sampled_from(["0", "2", "+1", "", "x", " 1"]), max_size=4
    ).map(",".join),
}
records = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(
            ["t", "%LMQ%a", "%RETRY%g", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX", "..", "a/b", "t" * 127]
        ),
        "queue_id": st.sampled_from([-1, 0, 3]),
        "queue_offset": st.integers(0, 20),
        "sys_flag": st.sampled_from([0, 0x4, 0x8, 0xC]).flatmap(
            lambda kind: st.sampled_from([kind, kind | record.INNER_BATCH])
        ),
        "properties": st.fixed_dictionaries(texts) | st.fixed_dictionaries({}, optional=texts),
    }
)


def _light(
    topic: str, names: str, offsets: str, *, queue_id: int = 0, queue_offset: int = 0, flag: int = 0
) -> dict[str, Any]:
    return {
        "topic": topic,
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "sys_flag": flag,
        "properties": {"INNER_MULTI_DISPATCH": names, "INNER_MULTI_QUEUE_OFFSET": offsets},
    }


@given(records)
@example(_light("t", "%LMQ%a,%LMQ%a,%LMQ%a,%LMQ%a", "1,+1,0,2"))
@example(_light("%LMQ%a", "%LMQ%a,%LMQ%a,%LMQ%a", "2,1,3", queue_offset=2))
@example(_light("%LMQ%a", "%LMQ%a", "0", queue_id=3))
@example(_light("t", "t,t", "2,3", queue_id=3, queue_offset=2))
@example(_light("t", "t,%LMQ%a", "3,2", queue_offset=2, flag=record.INNER_BATCH))
def test_a_store_opened_on_a_record_builds_the_units_that_the_rule_names(
    fields: dict[str, Any],
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        _write_log(root, fields)
        settings = {"enable_multi_dispatch": True}
        with rmqstore.open(root, commit_log_file_size_bytes=FILE_SIZE, **settings) as store:
            store.wait_dispatched()
            called = [unit for each in store.scan_log() for unit in _called(each, store.config)]
            table = store.scan_arrow(columns=UNIT_COLUMNS).read_all()
        by_columns = [
            Unit(*row.values())
            for records in table.to_batches()
            for batch in unit_batches(records)
            for row in batch.to_pylist()
        ]
        assert sorted(_stored(root)) == sorted(map(_as_stored, called))
        assert sorted(by_columns) == sorted(called)


def _called(found: rmqstore.Record, config: rmqstore.StoreConfig) -> Iterator[Unit]:
    properties = {}
    if needs_properties(found.topic, found.properties_text):
        properties = decode_properties(found.properties_text)
    return units_of(
        found.topic,
        found.queue,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        size=found.size,
        tags_code=tags_code_of(
            found.topic,
            found.tags,
            properties,
            store_timestamp=found.store_timestamp,
            delays_ms=config.delay_levels_ms,
        ),
        sys_flag=found.sys_flag,
        properties=properties,
    )


def _as_stored(unit: Unit) -> tuple[object, ...]:
    """What the files of queues keep of a unit; only those of batch queues keep a count."""
    count = unit.message_count if unit.is_batch else 1
    fields = (unit.physical_offset, unit.size, unit.tags_code)
    return (*unit.queue, unit.queue_offset, count, *fields)


def _stored(root: Path) -> Iterator[tuple[object, ...]]:
    for path in root.glob("consumequeue/*/*/*"):
        queue = (path.parts[-3], int(path.parts[-2]), False)
        for number, fields in enumerate(UNIT.iter_unpack(path.read_bytes())):
            if fields[1] not in (0, FILL_SIZE):
                yield (*queue, int(path.name) // UNIT.size + number, 1, *fields)
    for path in root.glob("batchconsumequeue/*/*/*"):
        queue = (path.parts[-3], int(path.parts[-2]), True)
        for place, size, code, _, base, count, _, _ in BATCH_UNIT.iter_unpack(path.read_bytes()):
            if size:
                yield (*queue, base, count, place, size, code)


def _write_log(root: Path, fields: dict[str, Any]) -> None:
    pairs = {name: text for name, text in fields["properties"].items() if text}
    filler = _record(topic="f", queue_id=0, sys_flag=record.ROLLBACK, body=FILLER_BODY)
    data = record.encode(filler)
    drawn = _record(
        topic=fields["topic"],
        queue_id=fields["queue_id"],
        queue_offset=fields["queue_offset"],
        sys_flag=fields["sys_flag"],
        physical_offset=len(data),
        pairs=pairs,
    )
    (root / "commitlog").mkdir(parents=True)
    (root / "commitlog" / f"{0:020}").write_bytes(
        (data + record.encode(drawn)).ljust(FILE_SIZE, b"\0")
    )


def _record(
    *,
    topic: str,
    queue_id: int,
    sys_flag: int,
    queue_offset: int = 0,
    physical_offset: int = 0,
    body: bytes = b"body",
    pairs: dict[str, str] | None = None,
) -> Record:
    return Record(
        version=1,
        body_crc=record.crc(body),
        queue_id=queue_id,
        flag=0,
        queue_offset=queue_offset,
        physical_offset=physical_offset,
        sys_flag=sys_flag,
        born_timestamp=STORED_MS,
        born_host=HOST,
        store_timestamp=STORED_MS,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic_bytes=topic.encode(),
        property_bytes=property_text.encode(pairs or {}),
    )
