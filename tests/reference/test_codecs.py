"""The reference codecs on values of their own: round trips, rules and worked examples."""

import struct
import zlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.reference import (
    batch,
    batch_consume_queue,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    index_file,
    java_text,
    log,
    properties,
    record,
)
from tests.reference.index_file import Index, Request
from tests.reference.record import BadRecord, Host, Record

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
PART = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
# No put hook lets a longer topic of so few characters through: version 1 has one byte for its size.
TOPICS = st.text("tT", min_size=1, max_size=300) | PART.filter(
    lambda text: len(text.encode()) <= record.TOPIC_LENGTH_MAX_V1
)
HOSTS = st.builds(
    Host, st.binary(min_size=4, max_size=4) | st.binary(min_size=16, max_size=16), INT32
)

MEASURED = bytes.fromhex(
    "00000078daa320a7375337b90000000000000000000000000000000000000000000000000000"
    "00000000018bcfe568007f00000100000000000001a1fc0ff57f7f00000100001fbb00000000"
    "0000000000000000000000026d3006466f6f42617200154b455953016b31206b320254414753"
    "015441473102"
)
"""A record written by RocketMQ 5.3.3: topic FooBar, tag TAG1, keys "k1 k2", body "m0"."""


@st.composite
def records(draw: st.DrawFn) -> Record:
    """A record as a put may leave it: version and flags agree with topic and hosts."""
    fields = Record(
        version=1,
        body_crc=0,
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=draw(INT32),
        born_timestamp=draw(INT64),
        born_host=draw(HOSTS),
        store_timestamp=draw(INT64),
        store_host=draw(HOSTS),
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        body=draw(st.binary(max_size=50)),
        topic_bytes=draw(TOPICS).encode(),
        property_bytes=properties.encode(draw(st.dictionaries(PART, PART, max_size=4))),
    )
    return record.derive(fields)


def message(**fields: object) -> Record:
    """The measured record, its body and properties as *fields* say."""
    return replace(record.decode(MEASURED, 0), **fields)  # type: ignore[arg-type]


def test_measured_record_decodes_to_what_was_put() -> None:
    found = record.decode(MEASURED, 0)
    assert (found.topic, found.body, found.version) == ("FooBar", b"m0", 1)
    assert found.properties == {"KEYS": "k1 k2", "TAGS": "TAG1"}
    assert (str(found.born_host), str(found.store_host)) == ("127.0.0.1:0", "127.0.0.1:8123")
    assert (found.born_timestamp, found.tags_code) == (1_700_000_000_000, 2567159)
    assert record.body_crc_is_right(found)


@given(records(), st.binary(max_size=9), st.binary(max_size=9))
def test_record_decodes_to_its_fields_wherever_it_lies(
    fields: Record, before: bytes, after: bytes
) -> None:
    encoded = record.encode(fields)
    assert len(encoded) == fields.size == struct.unpack_from(">i", encoded)[0]
    assert record.decode(before + encoded + after, len(before)) == fields


@given(records(), st.data())
def test_record_cut_anywhere_is_bad(fields: Record, data: st.DataObject) -> None:
    encoded = record.encode(fields)
    kept = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(BadRecord):
        record.decode(encoded[:kept], 0)


def test_lengths_that_disagree_with_the_total_tell_what_to_skip() -> None:
    longer = struct.pack(">i", len(MEASURED) + 4) + MEASURED[4:] + bytes(4)
    with pytest.raises(BadRecord, match="sum up") as caught:
        record.decode(longer, 0)
    assert caught.value.size == len(longer)


def test_topic_size_below_zero_is_bad() -> None:
    at = MEASURED.index(b"\x06FooBar")
    with pytest.raises(BadRecord, match="do not fit"):
        record.decode(MEASURED[:at] + b"\xff" + MEASURED[at + 1 :], 0)


def test_version_2_begins_with_the_128th_utf_16_unit() -> None:
    topics = ["t" * 127, "t" * 128, "\N{ROCKET}" * 63, "\N{ROCKET}" * 64]
    versions = [record.derive(message(topic_bytes=topic.encode())).version for topic in topics]
    assert versions == [1, 2, 1, 2]


@given(st.binary())
def test_crc_is_that_of_zlib_without_its_top_bit(data: bytes) -> None:
    assert record.crc(data) == zlib.crc32(data) & 0x7FFFFFFF


def test_crc_property_has_the_digits_in_reverse() -> None:
    assert record.crc_property(2044523717) == b"__CRC32#\x017173254402\x02"
    assert record.crc_property(120) == b"__CRC32#\x010210000000\x02"


@given(records(), st.data())
def test_crc_property_finds_every_flipped_bit_before_it(
    fields: Record, data: st.DataObject
) -> None:
    encoded = record.encode_put(fields, property_crc=True)
    assert record.property_crc_is_right(encoded) is True
    # Past size and magic, and not in a length: the record must still decode.
    at = data.draw(st.integers(12, 43))
    bit = data.draw(st.sampled_from([bit for bit in range(8) if at != 39 or bit not in (4, 5)]))
    flipped = bytearray(encoded)
    flipped[at] ^= 1 << bit
    assert record.property_crc_is_right(bytes(flipped)) is False


def test_given_crc_property_is_replaced_and_an_open_pair_ended() -> None:
    given_text = b"a\x01b\x02__CRC32#\x017\x02c\x01d"
    put = record.decode(record.encode_put(message(property_bytes=given_text), property_crc=True), 0)
    assert put.property_bytes[:-20] == b"a\x01b\x02c\x01d\x02"
    assert record.property_crc_is_right(record.encode(put)) is True


def test_open_pair_in_a_batch_swallows_the_crc_property() -> None:
    encoded = record.encode_put(message(property_bytes=b"a\x01b"), property_crc=True, in_batch=True)
    assert record.decode(encoded, 0).properties["a"].startswith("b__CRC32#\x01")
    assert record.property_crc_is_right(encoded) is None


def test_blank_is_known_by_its_magic_alone() -> None:
    assert record.encode_blank(100) == bytes.fromhex("00000064cbd43194")
    assert record.is_blank(b"..\xff\xff\xff\xff\xcb\xd4\x31\x94", 2)
    assert not record.is_blank(record.encode_blank(7)[:7], 0)


@given(HOSTS, INT64)
def test_message_id_parses_to_host_and_offset(host: Host, offset: int) -> None:
    assert record.parse_message_id(record.message_id(host, offset)) == (host, offset)


def test_message_id_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="32 or 56"):
        record.parse_message_id("00" * 17)


@given(st.dictionaries(PART, PART))
def test_properties_decode_to_the_pairs_encoded(pairs: dict[str, str]) -> None:
    encoded = properties.encode(pairs)
    assert properties.decode(encoded) == pairs
    assert properties.decode(encoded.removesuffix(b"\x02")) == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        (b"a\x01b\x01c\x02", {"a": "b\x01c"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01\x02\x01b\x02ab\x02\x02\x02c\x01d", {"c": "d"}),
        (b"", {}),
    ],
    ids=["value with separator", "later duplicate", "broken pieces", "empty"],
)
def test_property_text_reads_as_java_reads_it(text: bytes, pairs: dict[str, str]) -> None:
    assert properties.decode(text) == pairs


def test_removing_a_property_keeps_all_other_bytes() -> None:
    text = b"xa\x011\x02a\x012\x02\x02a\x02b\x013"
    assert properties.remove(text, "a") == b"xa\x011\x02\x02a\x02b\x013"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("TAG1", 2567159), ("\N{ROCKET}", 1773027), ("polygenelubricants", -(1 << 31))],
)
def test_string_hash_is_javas(text: str, expected: int) -> None:
    assert java_text.string_hash(text) == expected


@pytest.mark.parametrize(
    ("data", "replaced"),
    [
        (b"\xed\xa0\x80x", "\ufffdx"),
        (b"\xed\xa0x", "\ufffdx"),
        (b"\xe2\x82", "\ufffd"),
        (b"\xf0\x9f\x9a", "\ufffd"),
        (b"\xf5\x80", "\ufffd\ufffd"),
        (b"\xc0\x80", "\ufffd\ufffd"),
    ],
)
def test_malformed_text_is_replaced_as_java_does(data: bytes, replaced: str) -> None:
    assert java_text.decode(data) == replaced


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1000), ("5", 60_000), ("18", 7_200_000), ("99", 7_200_000)]
)
def test_tags_code_of_a_scheduled_record_is_when_it_is_due(level: str, delay_ms: int) -> None:
    pairs = {"DELAY": level, "TAGS": "A"}
    topic = properties.SCHEDULE_TOPIC
    due = properties.tags_code(pairs, topic=topic, store_timestamp=10)
    assert due == 10 + delay_ms
    assert properties.tags_code(pairs, topic="other", store_timestamp=10) == 65
    assert properties.tags_code({"TAGS": "A"}, topic=topic, store_timestamp=10) == 65


MESSAGES = st.builds(
    batch.Message, flag=INT32, body=st.binary(max_size=20), property_bytes=st.binary(max_size=20)
)


@given(st.lists(MESSAGES, max_size=5))
def test_batch_body_decodes_to_its_messages(messages: list[batch.Message]) -> None:
    assert batch.decode(batch.encode(messages)) == messages


@given(st.lists(MESSAGES, min_size=1, max_size=3), st.data())
def test_batch_body_cut_inside_a_message_is_refused(
    messages: list[batch.Message], data: st.DataObject
) -> None:
    encoded = batch.encode(messages)
    borders = {len(batch.encode(messages[:count])) for count in range(len(messages) + 1)}
    kept = data.draw(st.sampled_from(sorted(set(range(len(encoded))) - borders)))
    with pytest.raises(ValueError, match="at "):
        batch.decode(encoded[:kept])


def test_batch_of_5_3_gives_each_record_the_properties_of_the_batch() -> None:
    messages = [
        batch.Message(flag=1, body=b"x", property_bytes=b"a\x01b"),
        batch.Message(flag=2, body=b"", property_bytes=b""),
    ]
    head = message(property_bytes=b"c\x01d\x02", queue_offset=7, physical_offset=1000)
    written = batch.records(head, messages, property_crc=False, append_properties=True)
    first, second = (record.decode(data, 0) for data in written)
    assert (first.property_bytes, second.property_bytes) == (b"a\x01b\x02c\x01d\x02", b"c\x01d\x02")
    assert (first.flag, second.flag, second.body_crc) == (1, 2, 0)
    assert (first.queue_offset, second.queue_offset) == (7, 8)
    assert (first.physical_offset, second.physical_offset) == (1000, 1000 + first.size)


UNITS = st.builds(consume_queue.Unit, st.integers(0, 1 << 62), st.integers(1, (1 << 31) - 1), INT64)


@given(st.lists(UNITS), st.integers(0, 40), st.integers(1, 8))
def test_consume_queue_files_hold_fill_units_then_units(
    units: list[consume_queue.Unit], first: int, units_per_file: int
) -> None:
    files = consume_queue.encode_files(
        units, first=first, file_size=units_per_file * consume_queue.UNIT.size
    )
    fills = first % units_per_file
    assert consume_queue.decode(b"".join(files.values())) == (
        [consume_queue.FILL] * fills + units if files else []
    )
    names = [int(name) for name in files]
    start = (first - fills) * consume_queue.UNIT.size
    step = units_per_file * consume_queue.UNIT.size
    assert names == list(range(start, start + step * len(files), step))
    assert all(len(data) == step for data in files.values())


@given(
    st.lists(
        st.builds(
            batch_consume_queue.Unit,
            st.integers(0, 1 << 62),
            st.integers(1, (1 << 31) - 1),
            INT64,
            INT64,
            st.integers(0, 1 << 62),
            st.integers(1, (1 << 15) - 1),
        )
    )
)
def test_batch_units_decode_up_to_the_first_zero_unit(
    units: list[batch_consume_queue.Unit],
) -> None:
    data = batch_consume_queue.encode(units)
    assert len(data) == 46 * len(units)
    assert batch_consume_queue.decode(data + bytes(92)) == units


def test_batch_unit_is_found_by_every_offset_it_spans() -> None:
    units = [batch_consume_queue.Unit(0, 1, 0, 0, 5, 3), batch_consume_queue.Unit(1, 1, 0, 0, 8, 1)]
    found = [batch_consume_queue.find(units, offset) for offset in range(4, 10)]
    assert found == [None, units[0], units[0], units[0], units[1], None]


@given(
    st.lists(st.builds(consume_queue_ext.Unit, INT64, INT64, st.binary(max_size=40))),
    st.integers(64, 300),
)
def test_ext_units_are_found_at_their_addresses(
    units: list[consume_queue_ext.Unit], file_size: int
) -> None:
    addresses, data = consume_queue_ext.encode(units, file_size=file_size)
    assert len(data) % file_size == 0
    assert all(consume_queue_ext.is_address(address) for address in addresses)
    assert [consume_queue_ext.decode_at(data, address) for address in addresses] == units
    assert consume_queue_ext.decode(data, file_size=file_size) == list(
        zip(addresses, units, strict=True)
    )


def test_hashes_of_tags_are_no_ext_addresses() -> None:
    assert not consume_queue_ext.is_address(-(1 << 31))
    assert consume_queue_ext.is_address(-(1 << 31) - 1)


@given(
    st.builds(
        checkpoint.Checkpoint,
        **dict.fromkeys(checkpoint.Checkpoint.__slots__, INT64),
    ).map(lambda made: replace(made, flushed_offset=max(made.flushed_offset, -1)))
)
def test_checkpoint_decodes_to_its_fields(fields: checkpoint.Checkpoint) -> None:
    encoded = fields.encode()
    assert len(encoded) == 4096
    assert checkpoint.decode(encoded) == fields


REQUESTS = st.lists(st.tuples(st.lists(st.sampled_from("abcde"), max_size=3), st.integers(0, 5000)))


@given(REQUESTS, st.integers(1, 4), st.integers(2, 6))
def test_index_finds_every_key_and_its_files_decode(
    added: list[tuple[list[str], int]], slot_count: int, entry_count: int
) -> None:
    index = Index(slot_count=slot_count, entry_count=entry_count)
    holders: dict[str, list[int]] = {}
    time = 1_000_000

    for offset, (keys, pause_ms) in enumerate(added, 1):
        time += pause_ms
        texts = [f"t#{key}" for key in keys]
        index.put(Request(keys=texts, physical_offset=offset, store_timestamp=time))
        for key in keys:
            holders.setdefault(key, []).insert(0, offset)

    for key, offsets in holders.items():
        found = index.query("t", key, begin_ms=0, end_ms=1 << 62, limit=1000)
        assert found == offsets

    for file in index.files:
        data = file.encode()
        assert len(data) == 40 + 4 * slot_count + 20 * entry_count
        assert index_file.decode(data, slot_count=slot_count, entry_count=entry_count) == file


def test_next_index_file_inherits_the_end_and_begins_with_its_first_record() -> None:
    index = Index(slot_count=3, entry_count=2)
    for offset, time, keys in ((10, 1000, ["t#a"]), (20, 2000, []), (30, 5500, ["t#b"])):
        index.put(Request(keys=keys, physical_offset=offset, store_timestamp=time))
    first, second = index.files
    assert (first.begin_physical_offset, first.end_timestamp) == (10, 1000)
    assert (second.begin_physical_offset, second.begin_timestamp) == (30, 5500)
    assert second.entries[1].seconds == 4


def test_index_skips_a_record_before_its_last_and_repeats_the_last() -> None:
    index = Index(slot_count=3, entry_count=9)
    for offset in (10, 20, 10, 20):
        index.put(Request(keys=["t#a"], physical_offset=offset, store_timestamp=1000))
    assert index.query("t", "a", begin_ms=0, end_ms=2000, limit=9) == [20, 20, 10]


def test_index_query_stops_at_the_limit_and_outside_the_time_range() -> None:
    index = Index(slot_count=3, entry_count=3)
    for offset in range(1, 7):
        time = 10_000 * offset
        index.put(Request(keys=["t#a"], physical_offset=offset, store_timestamp=time))
    assert index.query("t", "a", begin_ms=0, end_ms=1 << 62, limit=3) == [6, 5, 4]
    assert index.query("t", "a", begin_ms=25_000, end_ms=45_000, limit=9) == [4, 3]
    assert index.query("t", "z", begin_ms=0, end_ms=1 << 62, limit=9) == []


def test_key_hash_of_the_smallest_integer_is_zero() -> None:
    assert index_file.key_hash("polygenelubricants") == 0
    assert index_file.key_hash("t#a") >= 0


def test_prepared_and_rolled_back_records_are_in_no_queue() -> None:
    kinds = (0, record.PREPARED, record.COMMIT, record.ROLLBACK)
    assert [len(log.entries_of(message(sys_flag=kind))) for kind in kinds] == [1, 0, 1, 0]


def test_rolled_back_records_have_no_index_keys() -> None:
    kinds = (0, record.PREPARED, record.COMMIT, record.ROLLBACK)
    keys = [log.index_request(message(sys_flag=kind), tag_keys=True).keys for kind in kinds]
    assert keys == [["FooBar#k1", "FooBar#k2", "FooBar#T#TAG1"]] * 3 + [[]]


def test_light_queues_get_a_unit_each_beside_the_main_one() -> None:
    text = properties.encode(
        {"INNER_MULTI_DISPATCH": "%LMQ%a,other,x/y", "INNER_MULTI_QUEUE_OFFSET": "5,6,7"}
    )
    found = message(property_bytes=text, queue_id=3)
    entries = log.entries_of(found, multi_dispatch=True)
    assert [(entry.topic, entry.queue_id, entry.queue_offset) for entry in entries] == [
        ("FooBar", 3, 0),
        ("%LMQ%a", 0, 5),
        ("other", 3, 6),
    ]
    assert len(log.entries_of(found)) == 1
    retry = replace(found, topic_bytes=b"%RETRY%g")
    assert len(log.entries_of(retry, multi_dispatch=True)) == 1
