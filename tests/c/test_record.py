"""The record codec against the reference, the golden logs and hostile bytes."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.c.memory import PAGE, GuardedMemory
from tests.golden import GoldenCases, every_case
from tests.reference import log, properties
from tests.reference import record as reference
from tests.reference.record import BadRecord, Host, Record

BODY_CRC, PROPERTY_CRC, NEED_PROPERTY_CRC, PLACE = 1, 2, 4, 8
V6_FLAGS = reference.BORN_HOST_V6 | reference.STORE_HOST_V6
LIMITS = {"body_size_max": 4 << 20, "record_size_max": (4 << 20) + (64 << 10)}

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
HOSTS = st.builds(
    Host,
    address=st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16)),
    port=INT32,
)
PAIRS = st.lists(st.sampled_from([b"a\x01b", b"TAGS\x01x", b"\xc3\xa9", b""]), max_size=4).map(
    b"\x02".join
)
RECORDS = st.builds(
    Record,
    version=st.just(1),
    body_crc=st.just(0),
    queue_id=INT32,
    flag=INT32,
    queue_offset=INT64,
    physical_offset=INT64,
    sys_flag=INT32,
    born_timestamp=INT64,
    born_host=HOSTS,
    store_timestamp=INT64,
    store_host=HOSTS,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
    body=st.binary(max_size=300),
    topic_bytes=st.one_of(
        st.text(min_size=1, max_size=30).map(str.encode),
        st.integers(120, 300).map(lambda size: b"t" * size),
    ),
    property_bytes=PAIRS,
)

# The measured record of the spec: topic FooBar, tag TAG1, keys "k1 k2", body "m0".
MEASURED = bytes.fromhex(
    "00000078daa320a7375337b9000000000000000000000000000000000000000000000000000000000000018b"
    "cfe568007f00000100000000000001a1fc0ff57f7f00000100001fbb00000000000000000000000000000002"
    "6d3006466f6f42617200154b455953016b31206b320254414753015441473102"
)


class Encoder:
    """Puts a reference record through the planner and the encoder of the core."""

    def __init__(self, core: Any, *, crc: bool = False, versions: bool = True, **limits: int):
        self.ffi, self.lib = core
        self.limits = self.ffi.new(
            "struct rmq_record_limits *",
            {
                **LIMITS,
                **limits,
                "version_by_topic_size": versions,
                "append_property_crc": crc,
            },
        )
        self.error = self.ffi.new("struct rmq_error *")
        self.plan = self.ffi.new("struct rmq_record_plan *")
        self.kept: list[Any] = []

    def bytes_of(self, kind: str, data: bytes) -> Any:
        if not data:
            return self.ffi.NULL
        self.kept.append(self.ffi.new(f"{kind}[]", len(data)))
        self.ffi.memmove(self.kept[-1], data, len(data))
        return self.kept[-1]

    def message(self, record: Record, more_properties: bytes = b"") -> Any:
        return self.ffi.new(
            "struct rmq_message *",
            {
                "topic": self.bytes_of("char", record.topic_bytes),
                "topic_size": len(record.topic_bytes),
                "body": self.bytes_of("uint8_t", record.body),
                "body_size": len(record.body),
                "properties": self.bytes_of("char", record.property_bytes),
                "properties_size": len(record.property_bytes),
                "more_properties": self.bytes_of("char", more_properties),
                "more_properties_size": len(more_properties),
                "born_host": host_of(record.born_host),
                "store_host": host_of(record.store_host),
                "born_timestamp": record.born_timestamp,
                "prepared_transaction_offset": record.prepared_transaction_offset,
                "queue_id": record.queue_id,
                "flag": record.flag,
                "sys_flag": record.sys_flag,
                "reconsume_times": record.reconsume_times,
            },
        )

    def validate(self, record: Record, more_properties: bytes = b"") -> int:
        message = self.message(record, more_properties)
        status: int = self.lib.rmq_record_plan(message, self.limits, self.plan, self.error)
        return status

    def encode(self, record: Record, more_properties: bytes = b"") -> bytes:
        message = self.message(record, more_properties)
        status = self.lib.rmq_record_plan(message, self.limits, self.plan, self.error)
        assert status == self.lib.RMQ_OK, self.ffi.string(self.error.detail)

        placement = self.ffi.new(
            "struct rmq_placement *",
            {
                "queue_offset": record.queue_offset,
                "physical_offset": record.physical_offset,
                "store_timestamp": record.store_timestamp,
                "body_crc": reference.crc(record.body),
            },
        )

        size = self.plan.total_size
        out = self.ffi.new("uint8_t[]", size + 8)
        self.ffi.memmove(out + size, b"untouched"[:8], 8)

        self.lib.rmq_record_encode(out, message, self.plan, placement)
        assert bytes(self.ffi.buffer(out + size, 8)) == b"untouche"
        return bytes(self.ffi.buffer(out, size))


def host_of(host: Host) -> dict[str, object]:
    return {"address": host.address, "port": host.port, "size": len(host.address)}


def host_from(host: Any) -> Host:
    return Host(bytes(host.address[0 : host.size]), host.port)


class Decoder:
    def __init__(self, core: Any) -> None:
        self.ffi, self.lib = core
        self.record = self.ffi.new("struct rmq_record *")
        self.error = self.ffi.new("struct rmq_error *")

    def run(self, data: Any, size: int, *, place: int = 0, checks: int = 0) -> int:
        status: int = self.lib.rmq_record_decode(data, size, place, checks, self.record, self.error)
        return status

    def bytes_run(self, data: bytes, *, place: int = 0, checks: int = 0) -> int:
        self.kept = self.ffi.new("uint8_t[]", data or 1)
        return self.run(self.kept, len(data), place=place, checks=checks)

    def found(self) -> Record:
        record = self.record
        return Record(
            version=record.version,
            body_crc=record.body_crc,
            queue_id=record.queue_id,
            flag=record.flag,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=host_from(record.born_host),
            store_timestamp=record.store_timestamp,
            store_host=host_from(record.store_host),
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_transaction_offset,
            body=bytes(self.ffi.buffer(record.body, record.body_size)),
            topic_bytes=bytes(self.ffi.buffer(record.topic, record.topic_size)),
            property_bytes=bytes(self.ffi.buffer(record.properties, record.properties_size)),
        )


def some_record(**fields: Any) -> Record:
    base = Record(
        version=1,
        body_crc=0,
        queue_id=3,
        flag=0,
        queue_offset=5,
        physical_offset=1000,
        sys_flag=0,
        born_timestamp=1,
        born_host=Host(b"\x7f\0\0\1", 0),
        store_timestamp=2,
        store_host=Host(b"\x7f\0\0\1", 10911),
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=b"body",
        topic_bytes=b"topic",
        property_bytes=b"TAGS\x01t\x02",
    )
    return replace(base, **fields)


# ---- encoding ----


# The least time of all stands for the moment of storing.
PUT_RECORDS = RECORDS.filter(lambda record: record.born_timestamp != -(2**63))


@given(record=PUT_RECORDS)
def test_encoded_record_is_that_of_the_reference(core: Any, record: Record) -> None:
    # The reference counts characters, the store bytes: they part only where the first could not
    # be written as version 1.
    expected = replace(reference.derive(record), version=2 if len(record.topic_bytes) > 127 else 1)
    assert Encoder(core).encode(record) == reference.encode(expected)


@given(record=PUT_RECORDS.filter(lambda record: len(record.topic) > 127 or len(record.topic) < 30))
def test_record_with_crc_property_is_that_of_the_reference(core: Any, record: Record) -> None:
    encoded = Encoder(core, crc=True).encode(record)
    assert encoded == reference.encode_put(record, property_crc=True)
    assert reference.property_crc_is_right(encoded)


@pytest.mark.parametrize("own", [b"", b"a\x01b", b"a\x01b\x02"])
@pytest.mark.parametrize("more", [b"", b"c\x01d", b"c\x01d\x02"])
@pytest.mark.parametrize("crc", [False, True])
def test_properties_are_joined_so_that_every_pair_can_be_read(
    core: Any, own: bytes, more: bytes, crc: bool
) -> None:
    encoded = Encoder(core, crc=crc).encode(some_record(property_bytes=own), more)
    found = reference.decode(encoded, 0)
    pairs = found.properties
    assert (pairs.pop(properties.CRC, None) is not None) == crc
    assert pairs == {**properties.decode(own), **properties.decode(more)}
    if not crc:
        separator = b"\x02" if own == b"a\x01b" and more else b""
        assert found.property_bytes == own + separator + more


@pytest.mark.parametrize(
    ("fields", "options", "status"),
    [
        ({"topic_bytes": b""}, {}, "MESSAGE_ILLEGAL"),
        ({"topic_bytes": b"t" * 127}, {"versions": False}, "OK"),
        ({"topic_bytes": b"t" * 128}, {"versions": False}, "MESSAGE_ILLEGAL"),
        ({"topic_bytes": "\u00e9".encode() * 64}, {"versions": False}, "MESSAGE_ILLEGAL"),
        ({"topic_bytes": b"t" * 128}, {}, "OK"),
        ({"topic_bytes": b"t" * 32767}, {}, "OK"),
        ({"topic_bytes": b"t" * 32768}, {}, "MESSAGE_ILLEGAL"),
        ({"body": b"b" * 64}, {"body_size_max": 64}, "OK"),
        ({"body": b"b" * 65}, {"body_size_max": 64}, "MESSAGE_ILLEGAL"),
        ({}, {"record_size_max": 107}, "OK"),
        ({}, {"record_size_max": 106}, "MESSAGE_ILLEGAL"),
        ({"property_bytes": b"p" * 32767}, {}, "OK"),
        ({"property_bytes": b"p" * 32768}, {}, "PROPERTIES_TOO_LARGE"),
        ({"property_bytes": b"p" * 32746}, {"crc": True}, "OK"),
        ({"property_bytes": b"p" * 32747}, {"crc": True}, "PROPERTIES_TOO_LARGE"),
    ],
)
def test_limits_are_exact(
    core: Any, fields: dict[str, bytes], options: dict[str, Any], status: str
) -> None:
    encoder = Encoder(core, **options)
    assert encoder.validate(some_record(**fields)) == getattr(core[1], f"RMQ_{status}")


@pytest.mark.parametrize(("more_size", "status"), [(17, "OK"), (18, "PROPERTIES_TOO_LARGE")])
def test_added_properties_count_against_the_limit(core: Any, more_size: int, status: str) -> None:
    encoder = Encoder(core)
    own = some_record(property_bytes=b"p" * (32767 - 18))
    assert encoder.validate(own, b"m" * more_size) == getattr(core[1], f"RMQ_{status}")


def test_refusal_names_limit_and_size(core: Any) -> None:
    encoder = Encoder(core, body_size_max=64)
    encoder.validate(some_record(body=b"b" * 70))
    detail = core[0].string(encoder.error.detail)
    assert detail == b"body has 70 bytes, the limit is 64 (maxMessageSize)"


def test_blank_holds_the_bytes_left(core: Any) -> None:
    ffi, lib = core
    out = ffi.new("uint8_t[]", 8)
    lib.rmq_blank_encode(out, 1234)
    assert bytes(ffi.buffer(out)) == reference.encode_blank(1234)


# ---- decoding ----


def test_measured_record_of_the_java_store(core: Any) -> None:
    decoder = Decoder(core)
    assert decoder.bytes_run(MEASURED, checks=BODY_CRC | PLACE) == core[1].RMQ_OK
    record = decoder.found()
    assert (record.topic, record.body, record.store_host.port) == ("FooBar", b"m0", 8123)
    assert record.properties == {"KEYS": "k1 k2", "TAGS": "TAG1"}
    assert Encoder(core).encode(record) == MEASURED


@given(record=RECORDS, extra=st.binary(max_size=20), crc=st.booleans())
def test_decoded_record_is_that_of_the_reference(
    core: Any, record: Record, extra: bytes, crc: bool
) -> None:
    encoded = Encoder(core, crc=crc).encode(record)
    decoder = Decoder(core)
    checks = BODY_CRC | PROPERTY_CRC | PLACE | (NEED_PROPERTY_CRC if crc else 0)
    status = decoder.bytes_run(encoded + extra, place=record.physical_offset, checks=checks)
    assert status == core[1].RMQ_OK
    assert decoder.record.total_size == len(encoded)
    assert decoder.found() == reference.decode(encoded, 0)


@pytest.mark.parametrize(
    ("data", "status", "size"),
    [
        (b"", "END", 0),
        (bytes(4), "END", 0),
        (bytes(7), "END", 0),
        (bytes(8), "END", 0),
        (bytes(200), "END", 0),
        (b"\0\0\0\1", "CORRUPT", 0),
        (reference.encode_blank(8), "END", 8),
        (reference.encode_blank(-1) + b"x", "END", 8),
        (reference.encode_blank(8)[:7], "CORRUPT", 0),
        (b"\0\0\0\0\0\0\0\1", "CORRUPT", 0),
        (b"\0\0\0\1\0\0\0\0", "CORRUPT", 0),
        (struct.pack(">iI", 90, reference.MAGIC_V1) + bytes(200), "CORRUPT", 0),
        (struct.pack(">iI", -1, reference.MAGIC_V2) + bytes(200), "CORRUPT", 0),
        (struct.pack(">iI", (1 << 31) - 1, reference.MAGIC_V1) + bytes(200), "CORRUPT", 0),
    ],
)
def test_what_is_no_record(core: Any, data: bytes, status: str, size: int) -> None:
    decoder = Decoder(core)
    assert decoder.bytes_run(data, place=77) == getattr(core[1], f"RMQ_{status}")
    assert decoder.record.total_size == size
    if status == "CORRUPT":
        assert (decoder.error.status, decoder.error.at_offset) == (core[1].RMQ_CORRUPT, 77)


def test_smallest_record_is_read(core: Any) -> None:
    encoded = reference.encode(some_record(body=b"", topic_bytes=b"", property_bytes=b""))
    assert len(encoded) == 91
    assert Decoder(core).bytes_run(encoded, checks=BODY_CRC) == core[1].RMQ_OK


def test_negative_body_and_property_sizes_count_as_none(core: Any) -> None:
    encoded = bytearray(reference.encode(some_record(body=b"", property_bytes=b"")))
    encoded[84:88] = b"\xff" * 4
    encoded[-2:] = b"\xff\xff"
    decoder = Decoder(core)
    assert decoder.bytes_run(bytes(encoded), checks=BODY_CRC) == core[1].RMQ_OK
    assert (decoder.record.body_size, decoder.record.properties_size) == (0, 0)
    assert decoder.found().topic == "topic"


@pytest.mark.parametrize(
    ("wrong", "checks"),
    [
        (0, BODY_CRC),
        (88, BODY_CRC),
        (0, PLACE),
        (88, PROPERTY_CRC),
        (40, PROPERTY_CRC),
        (-2, PROPERTY_CRC),
        (40, NEED_PROPERTY_CRC),
    ],
)
def test_record_that_fails_a_check_still_tells_its_size(core: Any, wrong: int, checks: int) -> None:
    encoded = bytearray(Encoder(core, crc=True).encode(some_record()))
    place = 1000
    if wrong:
        encoded[wrong] ^= 1
    elif checks == PLACE:
        place = 1001
    else:
        encoded[11] ^= 1  # the stored body CRC
    decoder = Decoder(core)
    assert decoder.bytes_run(bytes(encoded), place=place) == core[1].RMQ_OK
    assert decoder.bytes_run(bytes(encoded), place=place, checks=checks) == core[1].RMQ_CORRUPT
    assert decoder.record.total_size == len(encoded)
    assert decoder.error.at_offset == place


@pytest.mark.parametrize("text", [b"", b"a\x01b\x02", b"x__CRC32#\x010000000000\x02"])
def test_missing_crc_property_is_corrupt_only_where_needed(core: Any, text: bytes) -> None:
    encoded = Encoder(core).encode(some_record(property_bytes=text))
    decoder = Decoder(core)
    assert decoder.bytes_run(encoded, checks=PROPERTY_CRC) == core[1].RMQ_OK
    assert decoder.bytes_run(encoded, checks=NEED_PROPERTY_CRC) == core[1].RMQ_CORRUPT
    assert decoder.record.total_size == len(encoded)


def test_every_cut_of_a_record_is_corrupt_and_nothing_behind_it_is_read(core: Any) -> None:
    ffi, lib = core
    hosts = {"born_host": Host(bytes(16), 1), "store_host": Host(bytes(16), 2)}
    encoded = Encoder(core, crc=True).encode(some_record(sys_flag=V6_FLAGS, **hosts))
    decoder = Decoder(core)
    checks = BODY_CRC | PROPERTY_CRC | PLACE
    with GuardedMemory(PAGE) as memory:
        for size in range(4, len(encoded)):
            data = ffi.cast("uint8_t *", memory.put_last(encoded[:size]))
            assert decoder.run(data, size, place=1000, checks=checks) == lib.RMQ_CORRUPT
            assert decoder.record.total_size == 0
        data = ffi.cast("uint8_t *", memory.put_last(encoded))
        assert decoder.run(data, len(encoded), place=1000, checks=checks) == lib.RMQ_OK


@given(
    record=RECORDS,
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4),
    size=st.none() | st.integers(0, 400),
)
@example(record=some_record(), changes=[(84, 127), (85, 255), (86, 255), (87, 255)], size=None)
@example(record=some_record(), changes=[(92, 255)], size=None)
@example(record=some_record(), changes=[(98, 127), (99, 255)], size=None)
@example(record=some_record(), changes=[(39, 0x30)], size=None)
def test_damaged_records_are_judged_as_by_the_reference(
    core: Any, record: Record, changes: list[tuple[int, int]], size: int | None
) -> None:
    ffi, lib = core
    data = bytearray(Encoder(core).encode(record))

    for at, value in changes:
        if at < len(data):
            data[at] = value
    if size is not None and size >= 8:
        data[0:4] = size.to_bytes(4, "big")

    decoder = Decoder(core)
    with GuardedMemory(PAGE) as memory:
        buffer = ffi.cast("uint8_t *", memory.put_last(bytes(data)))
        status = decoder.run(buffer, len(data), checks=BODY_CRC | PROPERTY_CRC)
        fits = decoder.record.total_size > 0
        found = decoder.found() if status == lib.RMQ_OK else None

    try:
        expected = reference.decode(bytes(data), 0)
    except BadRecord:
        assert status == lib.RMQ_CORRUPT
        assert not fits
        return

    assert fits
    assert found is None or found == expected
    assert (found is not None) == reference.body_crc_is_right(expected)


@every_case()
def test_golden_records_are_decoded_and_encoded_again(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    case = golden_cases.copy(release, case_name, into=tmp_path)
    has_crc = bool(case.spec["store"].get("enabledAppendPropCRC"))
    encoder, decoder = Encoder(core, crc=has_crc), Decoder(core)

    ffi, lib = core
    delays = ffi.new("int64_t[]", properties.DELAYS_MS)
    dispatch = ffi.new("struct rmq_dispatch_properties *")
    id_text = ffi.new("char[]", lib.RMQ_MESSAGE_ID_SIZE_MAX)

    count = 0

    for start, data in log.files(case.root / "commitlog"):
        kept = ffi.new("uint8_t[]", data)
        at = 0
        checks = BODY_CRC | PROPERTY_CRC | PLACE | (NEED_PROPERTY_CRC if has_crc else 0)
        while decoder.run(kept + at, len(data) - at, place=start + at, checks=checks) == lib.RMQ_OK:
            record, size = decoder.found(), decoder.record.total_size
            assert record == reference.decode(data, at)

            text = record.property_bytes
            own = text[:-20] if has_crc else text
            encoder.kept.clear()
            assert encoder.encode(replace(record, property_bytes=own)) == data[at : at + size]

            lib.rmq_properties_scan(
                decoder.record.properties, decoder.record.properties_size, dispatch
            )
            tags_code = lib.rmq_record_tags_code(decoder.record, dispatch, delays, len(delays))
            assert tags_code == record.tags_code

            host = ffi.addressof(decoder.record, "store_host")
            lib.rmq_message_id(host, start + at, id_text)
            assert ffi.string(id_text).decode() == record.message_id
            at += size
            count += 1

    assert count == sum(not line.get("damaged", False) for line in case.manifest)


# ---- what is derived ----


@pytest.mark.parametrize(
    ("level", "expected"),
    [("1", 1_000), ("2", 5_000), ("18", 7_200_000), ("99", 7_200_000), ("0", None), ("x", None)],
)
def test_schedule_topic_stores_the_time_it_is_due(
    core: Any, level: str, expected: int | None
) -> None:
    text = f"TAGS\x01TAG1\x02DELAY\x01{level}\x02".encode()
    code = tags_code(core, topic=b"SCHEDULE_TOPIC_XXXX", text=text, delays=properties.DELAYS_MS)
    assert code == (2567159 if expected is None else 1_000_000 + expected)
    assert tags_code(core, topic=b"other", text=text, delays=properties.DELAYS_MS) == 2567159


def test_delay_without_any_level_is_a_second(core: Any) -> None:
    assert tags_code(core, topic=b"SCHEDULE_TOPIC_XXXX", text=b"DELAY\x013\x02", delays=()) == (
        1_000_000 + 1000
    )


def test_tags_code_is_sign_extended_and_0_without_tags(core: Any) -> None:
    assert tags_code(core, topic=b"t", text=b"TAGS\x01polygenelubricants\x02", delays=()) == -(
        1 << 31
    )
    assert tags_code(core, topic=b"t", text=b"TAGS\x01\x02", delays=()) == 0


def tags_code(core: Any, *, topic: bytes, text: bytes, delays: tuple[int, ...]) -> int:
    ffi, lib = core
    decoder = Decoder(core)
    record = some_record(topic_bytes=topic, property_bytes=text, store_timestamp=1_000_000)
    assert decoder.bytes_run(reference.encode(record)) == lib.RMQ_OK
    scanned = ffi.new("struct rmq_dispatch_properties *")
    lib.rmq_properties_scan(decoder.record.properties, len(text), scanned)
    levels = ffi.new("int64_t[]", delays or 1)
    code: int = lib.rmq_record_tags_code(decoder.record, scanned, levels, len(delays))
    return code


@given(host=HOSTS, offset=INT64)
def test_message_id_is_that_of_the_reference(core: Any, host: Host, offset: int) -> None:
    ffi, lib = core
    out = ffi.new("char[]", lib.RMQ_MESSAGE_ID_SIZE_MAX)
    given_host = ffi.new("struct rmq_host *", host_of(host))
    size = lib.rmq_message_id(given_host, offset, out)
    text = ffi.string(out)
    assert (text.decode(), size) == (reference.message_id(host, offset), len(text))
