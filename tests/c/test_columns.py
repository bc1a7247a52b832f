"""Column buffers and their hand-over as Arrow structs, against the reference rows."""

from __future__ import annotations

import mmap
import resource
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqstore.config import StoreConfig
from rmqstore.errors import STATUS
from tests.c import library
from tests.c.test_record import RECORDS
from tests.reference import java_text
from tests.reference import record as reference
from tests.reference.columns import NAMES, row, rows_of
from tests.reference.record import Record

NO_MEMORY, INVALID = STATUS["NO_MEMORY"], STATUS["INVALID"]
ALIGNMENT = 64

VALID = RECORDS.map(reference.derive)
PROPERTIES = st.lists(
    st.tuples(
        st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "größe", "", "p"]),
        st.sampled_from(["v", "🚀", "", "a b"]),
    ),
    max_size=30,
).map(lambda pairs: "".join(f"{name}\x01{value}\x02" for name, value in pairs).encode())
SELECTIONS = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)


class Builder:
    """One struct rmq_columns; leaving the block frees it."""

    def __init__(
        self,
        core: Any,
        names: Sequence[str] = NAMES,
        *,
        rows: int = 1000,
        size: int = 1 << 20,
        large: bool = False,
        microseconds: bool = False,
        all_nullable: bool = False,
    ) -> None:
        self.ffi, self.lib = core
        self.error = self.ffi.new("struct rmq_error *")
        self.columns = self.ffi.new("struct rmq_columns *")
        self.numbers = self.ffi.new("uint8_t[]", [NAMES.index(name) for name in names])

        options = self.ffi.new(
            "struct rmq_columns_options *",
            {
                "columns": self.numbers,
                "column_count": len(names),
                "max_rows": rows,
                "max_bytes": size,
                "large_binary": large,
                "microseconds": microseconds,
                "all_nullable": all_nullable,
            },
        )

        self.status = self.lib.rmq_columns_open(self.columns, options, self.error)

    def __enter__(self) -> Builder:
        assert self.status == 0, self.message
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.rmq_columns_close(self.columns)

    @property
    def message(self) -> str:
        return str(self.ffi.string(self.error.detail).decode())

    def append(self, records: Sequence[Record]) -> int:
        """Return how many of the records the batch took."""
        decoded = self.ffi.new("struct rmq_record[]", max(len(records), 1))
        buffers = []
        for i, record in enumerate(records):
            data = reference.encode(record)
            buffers.append(self.ffi.from_buffer(data))
            status = self.lib.rmq_record_decode(
                buffers[-1], len(data), 0, 0, decoded + i, self.error
            )
            assert status == 0, self.message
        taken = self.ffi.new("size_t *")
        status = self.lib.rmq_columns_append(self.columns, decoded, len(records), taken, self.error)
        assert status == 0, self.message
        return int(taken[0])

    def batch(self) -> tuple[Any, Any]:
        """Return schema and array as the structs of the Arrow C data interface."""
        schema = self.ffi.new("struct ArrowSchema *")
        array = self.ffi.new("struct ArrowArray *")
        assert self.lib.rmq_arrow_schema(self.columns, schema, self.error) == 0
        assert self.lib.rmq_arrow_batch(self.columns, array, self.error) == 0
        return schema, array

    def take(self) -> pa.RecordBatch:
        """Return the rows so far, validated by pyarrow."""
        schema, array = self.batch()
        batch = pa.RecordBatch._import_from_c(
            int(self.ffi.cast("intptr_t", array)), int(self.ffi.cast("intptr_t", schema))
        )
        batch.validate(full=True)
        return batch


def expected(records: Sequence[Record], names: Sequence[str] = NAMES) -> list[dict[str, Any]]:
    return [{name: row(record)[name] for name in names} for record in records]


def one(**fields: Any) -> Record:
    made = Record(
        version=1,
        body_crc=0,
        queue_id=3,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=0,
        born_timestamp=0,
        born_host=reference.Host(bytes(4), 0),
        store_timestamp=0,
        store_host=reference.Host(bytes(4), 0),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"",
        topic_bytes=b"T",
        property_bytes=b"",
    )
    return reference.derive(replace(made, **fields))


def test_column_table_has_the_names_of_the_reference(core: Any) -> None:
    ffi, lib = core
    infos = lib.rmq_column_infos()
    assert lib.RMQ_COLUMN_COUNT == len(NAMES)
    assert tuple(ffi.string(infos[i].name).decode() for i in range(len(NAMES))) == NAMES


@given(st.data(), st.lists(VALID, min_size=1, max_size=12), SELECTIONS, st.booleans())
def test_any_columns_of_any_records_equal_the_reference(
    core: Any, data: st.DataObject, records: list[Record], names: list[str], large: bool
) -> None:
    records = [replace(record, property_bytes=data.draw(PROPERTIES)) for record in records]
    with Builder(core, names, large=large) as builder:
        assert builder.append(records) == len(records)
        batch = builder.take()
    assert batch.schema.names == names
    assert rows_of(batch) == expected(records, names)


@pytest.mark.parametrize("large", [False, True])
def test_schema_has_the_documented_types(core: Any, large: bool) -> None:
    binary = pa.large_binary() if large else pa.binary()
    text = dict.fromkeys(("topic", "born_host", "store_host", "message_id"), pa.string())
    nullable = dict.fromkeys(("tags", "keys", "unique_key"), pa.string())

    other = {
        "queue_offset": pa.int64(),
        "physical_offset": pa.int64(),
        "prepared_transaction_offset": pa.int64(),
        "tags_code": pa.int64(),
        "store_timestamp": pa.timestamp("ms", "UTC"),
        "born_timestamp": pa.timestamp("ms", "UTC"),
        "properties": pa.map_(pa.string(), pa.string()),
        "body": binary,
        "record": binary,
        "body_crc_ok": pa.bool_(),
    }
    types = {**text, **nullable, **other}

    with Builder(core, large=large) as builder:
        builder.append([one()])
        schema = builder.take().schema

    assert {field.name: field.type for field in schema} == {
        name: types.get(name, pa.int32()) for name in NAMES
    }
    assert {field.name for field in schema if field.nullable} == set(nullable)


def test_schema_says_of_every_column_that_it_may_be_null_when_asked(core: Any) -> None:
    with Builder(core, all_nullable=True) as builder:
        builder.append([one()])
        batch = builder.take()
    assert all(field.nullable for field in batch.schema)
    assert rows_of(batch) == expected([one()])


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=300))
@example([-(2**63), 2**63 - 1, -9223372036854775, 9223372036854775, 9223372036854776, -1])
def test_microseconds_of_times_out_of_range_are_the_ends_of_it(core: Any, times: list[int]) -> None:
    records = [one(store_timestamp=time, born_timestamp=-time - 1) for time in times]
    with Builder(core, ["born_timestamp", "store_timestamp"], microseconds=True) as builder:
        builder.append(records)
        batch = builder.take()
    assert set(batch.schema.types) == {pa.timestamp("us", "UTC")}

    def bounded(time: int) -> int:
        return max(-(2**63), min(2**63 - 1, time * 1000))

    born, stored = (column.cast(pa.int64()).to_pylist() for column in batch.columns)
    assert stored == [bounded(time) for time in times]
    assert born == [bounded(-time - 1) for time in times]


def test_tags_code_is_the_deliver_time_of_a_delayed_record_by_the_usual_levels(core: Any) -> None:
    records = [
        one(
            topic_bytes=b"SCHEDULE_TOPIC_XXXX",
            property_bytes=b"TAGS\x01t\x02DELAY\x01%d\x02" % level,
            store_timestamp=1_000_000,
        )
        for level in range(20)
    ]
    with Builder(core, ["tags_code"]) as builder:
        builder.append(records)
        found = builder.take().column(0).to_pylist()
    # A level above the last one counts as that.
    delays = [*StoreConfig().delay_levels_ms, 7_200_000]
    assert found == [java_text.string_hash("t"), *(1_000_000 + delay for delay in delays)]


def test_body_with_a_wrong_crc_is_told_and_an_empty_one_never_is(core: Any) -> None:
    good, empty = one(body=b"good"), replace(one(), body_crc=7)
    bad = replace(one(body=b"bad"), body_crc=7)
    with Builder(core, ["body_crc_ok"]) as builder:
        builder.append([good, bad, empty] * 5)
        assert builder.take().column(0).to_pylist() == [True, False, True] * 5


def test_later_value_of_a_property_wins_among_thousands(core: Any) -> None:
    count = 2000
    text = "".join(f"n{i}\x01{i}\x02" for i in range(count)) + "n7\x01last\x02n9\x01\x02"
    with Builder(core, ["properties"]) as builder:
        builder.append([one(property_bytes=text.encode()), one(property_bytes=b"a\x01b")] * 2)
        rows = rows_of(builder.take())
    wanted = {f"n{i}": str(i) for i in range(count)} | {"n7": "last"}
    assert [found["properties"] for found in rows] == [wanted, {"a": "b"}] * 2


def test_most_pairs_a_property_text_can_hold_are_all_there(core: Any) -> None:
    names = [chr(i) for i in range(0x21, 0x7F)] + [chr(i) for i in range(0x80, 0x800)]
    pieces, size = [], 0
    for name in names + [f"{a}{b}" for a in names[:60] for b in names[:94]]:
        piece = f"{name}\x01v\x02".encode()
        if size + len(piece) <= 32767:
            pieces.append(piece)
            size += len(piece)
    with Builder(core, ["properties"]) as builder:
        builder.append([one(property_bytes=b"".join(pieces))])
        assert len(rows_of(builder.take())[0]["properties"]) == len(pieces)


@given(st.binary(max_size=40), st.binary(max_size=40))
@example(b"\xed\xa0\x80", b"\xf0\x9f\x9a")
@example(b"a\xe2\x82", b"\xc0\xaf\xf4\x90\x80\x80")
def test_text_that_is_no_utf_8_is_mended_as_java_does(core: Any, topic: bytes, tags: bytes) -> None:
    tags = tags.replace(b"\x02", b"") or b"x"
    record = one(topic_bytes=topic, property_bytes=b"TAGS\x01" + tags + b"\x02")
    with Builder(core, ["topic", "tags"]) as builder:
        builder.append([record, one()])
        found = builder.take().to_pylist()
    assert found[0] == {"topic": java_text.decode(topic), "tags": java_text.decode(tags)}


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=300), st.integers(1, 2000))
def test_batches_end_at_the_byte_limit_and_lose_nothing(
    core: Any, bodies: list[bytes], limit: int
) -> None:
    records = [one(body=body) for body in bodies]
    found: list[bytes] = []
    with Builder(core, ["body"], size=limit) as builder:
        while len(found) < len(records):
            taken = builder.append(records[len(found) :])
            assert taken > 0
            batch = builder.take().column(0).to_pylist()
            assert len(batch) == taken
            assert taken == 1 or sum(map(len, batch)) <= limit
            found += batch
            if len(found) < len(records) and sum(map(len, batch)) < limit:
                assert sum(map(len, batch)) + len(records[len(found)].body) > limit
    assert found == bodies


@pytest.mark.parametrize("rows", [1, 7, 128, 129])
def test_batches_end_at_the_row_limit(core: Any, rows: int) -> None:
    records = [one(queue_offset=i) for i in range(300)]
    found: list[int] = []
    with Builder(core, ["queue_offset", "body_crc_ok", "tags"], rows=rows) as builder:
        while len(found) < len(records):
            assert builder.append(records[len(found) :]) == min(rows, len(records) - len(found))
            assert builder.append(records[:1]) == (0 if rows <= len(records) - len(found) else 1)
            batch = builder.take()
            found += batch.column(0).to_pylist()[:rows]
            assert batch.column("tags").null_count == batch.num_rows
    assert found[: len(records)] == list(range(300))


def test_record_over_the_byte_limit_is_a_batch_of_its_own(core: Any) -> None:
    with Builder(core, ["body", "record"], size=10) as builder:
        assert builder.append([one(body=bytes(5000)), one()]) == 1
        assert builder.take().num_rows == 1


def test_buffers_begin_at_multiples_of_64_bytes(core: Any) -> None:
    ffi, _ = core
    with Builder(core) as builder:
        builder.append([one(body=b"x" * i, property_bytes=b"TAGS\x01t\x02") for i in range(200)])
        schema, array = builder.batch()
    arrays = [array.children[i] for i in range(array.n_children)]
    while arrays:
        node = arrays.pop()
        arrays += [node.children[i] for i in range(node.n_children)]
        addresses = [int(ffi.cast("intptr_t", node.buffers[i])) for i in range(node.n_buffers)]
        assert [address % ALIGNMENT for address in addresses] == [0] * len(addresses)
    array.release(array)
    schema.release(schema)
    assert not array.release
    assert not schema.release


def test_child_moved_out_lives_on_after_its_parent(core: Any) -> None:
    ffi, _ = core
    with Builder(core, ["queue_offset", "body"]) as builder:
        builder.append([one(queue_offset=77)])
        schema, array = builder.batch()
    moved = ffi.new("struct ArrowArray *")
    ffi.memmove(moved, array.children[0], ffi.sizeof("struct ArrowArray"))
    array.children[0].release = ffi.NULL
    array.release(array)
    schema.release(schema)
    assert ffi.cast("int64_t *", moved.buffers[1])[0] == 77
    moved.release(moved)


@pytest.mark.parametrize(
    ("names", "limits", "message"),
    [
        ([], {}, "0 columns"),
        (["body", "body"], {}, "body was asked for twice"),
        (["body"], {"rows": 0}, "batches of 0 rows"),
        (["body"], {"rows": (1 << 24) + 1}, "16777216"),
        (["body"], {"size": 0}, "batches of 0 bytes"),
        (["body"], {"size": (1 << 30) + 1}, "1073741824"),
    ],
)
def test_options_out_of_range_are_refused(
    core: Any, names: list[str], limits: dict[str, Any], message: str
) -> None:
    builder = Builder(core, names, **limits)
    assert builder.status == INVALID
    assert message in builder.message


def test_unknown_column_number_is_refused(core: Any) -> None:
    ffi, lib = core
    error = ffi.new("struct rmq_error *")
    numbers = ffi.new("uint8_t[]", [len(NAMES)])
    options = ffi.new("struct rmq_columns_options *", [numbers, 1, 1, 1, False])
    assert lib.rmq_columns_options_check(options, error) == INVALID
    assert f"no column number {len(NAMES)}".encode() in ffi.string(error.detail)


@pytest.mark.skipif(library.is_sanitized(), reason="the sanitizers reserve address space freely")
def test_no_memory_is_a_status_and_leaves_the_builder_to_be_freed(core: Any) -> None:
    ffi, lib = core
    size = 512 << 20
    with mmap.mmap(-1, size) as body, Builder(core, ["queue_id", "body"], size=1 << 30) as builder:
        record = ffi.new("struct rmq_record *")
        # A buffer of mmap cannot be unmapped while cffi looks into it.
        view = ffi.from_buffer(body)
        record.body, record.body_size = view, size
        taken = ffi.new("size_t *")
        soft, hard = resource.getrlimit(resource.RLIMIT_AS)
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + size // 2, hard))
        try:
            status = lib.rmq_columns_append(builder.columns, record, 1, taken, builder.error)
        finally:
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            ffi.release(view)
        assert (status, taken[0]) == (NO_MEMORY, 0)
        assert "no memory for a batch" in builder.message
