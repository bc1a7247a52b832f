"""Messages, property text, identifiers and statuses (spec/store.md 4, 5, 12.2, 26)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import ArgumentError, MessageRejected
from rmqstore.message import (
    AppendStatus,
    CompressionType,
    GetStatus,
    Message,
    PutStatus,
    SysFlag,
    TransactionType,
    UniqueKeys,
    compression_type,
    decode_properties,
    encode_properties,
    java_string_hash,
    message_id,
    parse_message_id,
    tags_code,
)
from tests.golden import GoldenCase, every_case

MONTH_MS_MAX = 31 * 86_400_000 + 3_600_000
NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)
VALUES = st.text(st.characters(exclude_characters="\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, VALUES))
def test_encoded_properties_decode_to_the_same(properties: dict[str, str]) -> None:
    assert decode_properties(encode_properties(properties)) == properties


def test_properties_encode_in_order_and_leave_none_out() -> None:
    assert encode_properties({"b": "1", "a": "2", "c": None}) == "b\x011\x02a\x012\x02"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a\x011", {"a": "1"}),
        ("a\x01\x02b\x012\x02", {"b": "2"}),
        ("\x01x\x02", {}),
        ("ab\x02a\x011\x02", {"a": "1"}),
        ("a\x011\x01x\x02", {"a": "1\x01x"}),
        ("a\x011\x02a\x012\x02", {"a": "2"}),
    ],
)
def test_decoding_follows_the_rules_of_the_java_decoder(
    text: str, expected: dict[str, str]
) -> None:
    assert decode_properties(text) == expected


@pytest.mark.parametrize("properties", [{"a\x01b": "1"}, {"a\x02b": "1"}, {"a": "1\x02"}])
def test_reserved_character_in_a_property_is_rejected(properties: dict[str, str]) -> None:
    with pytest.raises(MessageRejected, match="reserved character") as caught:
        encode_properties(properties)
    assert caught.value.stored is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("TAG1", 2567159),
        ("A", 65),
        ("polygenelubricants", -(2**31)),
        ("\U0001f600", 1772899),
    ],
)
def test_string_hash_equals_java(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


@every_case("plain", "ipv6", "keys-index")
def test_golden_records_have_our_tags_codes_ids_and_properties(
    golden_case: Callable[[str, str], GoldenCase], release: str, case_name: str
) -> None:
    records = golden_case(release, case_name).manifest
    assert records
    for record in records:
        assert decode_properties(record["propertiesRaw"]) == record["properties"]
        assert tags_code(record["tags"]) == record["tagsCode"]
        address, _, port = record["storeHost"].rpartition(":")
        written = message_id(address.strip("[]"), int(port), record["phyOffset"])
        assert written == record["msgId"]
        assert parse_message_id(written).physical_offset == record["phyOffset"]


@given(
    st.ip_addresses(),
    st.integers(min_value=0, max_value=65535),
    st.integers(min_value=0, max_value=2**63 - 1),
)
def test_message_id_parses_back(host: object, port: int, physical_offset: int) -> None:
    parts = parse_message_id(message_id(str(host), port, physical_offset))
    assert parts == (str(host), port, physical_offset)


@pytest.mark.parametrize("text", ["", "00", "x" * 32, "0" * 31, "0" * 33, " " * 32])
def test_malformed_message_id_is_an_argument_error(text: str) -> None:
    with pytest.raises(ArgumentError, match="give 32 hex digits"):
        parse_message_id(text)


def test_unique_key_has_the_layout_of_the_java_client() -> None:
    keys = UniqueKeys(address=bytes([10, 0, 0, 7]), process_id=0x1ABCD, salt=b"\x01\x02\x03\x04")
    now = time.mktime((2026, 11, 1, 0, 0, 0, 0, 0, -1)) * 1000
    assert keys.next(int(now) + 5) == "0A000007ABCD01020304000000050000"
    assert keys.next(int(now) + 6) == "0A000007ABCD01020304000000060001"


@pytest.mark.parametrize("month", range(1, 13))
def test_unique_key_counts_from_the_month_of_its_time(month: int) -> None:
    keys = UniqueKeys(address=bytes(4), process_id=1, salt=bytes(4))
    last = time.mktime((2027, month + 1, 1, 0, 0, 0, 0, 0, -1)) * 1000 - 1
    first = time.mktime((2027, month + 1, 1, 0, 0, 0, 0, 0, -1)) * 1000
    elapsed = [int(keys.next(int(now))[20:28], 16) for now in (last, first)]
    assert 27 * 86_400_000 < elapsed[0] < MONTH_MS_MAX
    assert elapsed[1] == 0


def test_message_stores_its_fields_as_properties() -> None:
    message = Message(
        "orders",
        b"paid",
        tags="eu",
        keys=["o-1", "o-2"],
        properties={"mine": "x"},
        delay_level=3,
        unique_key="U",
        wait_store_ok=False,
    )
    assert decode_properties(message.encoded_properties()) == {
        "mine": "x",
        "KEYS": "o-1 o-2",
        "UNIQ_KEY": "U",
        "WAIT": "false",
        "DELAY": "3",
        "TAGS": "eu",
    }


def test_plain_message_has_no_properties() -> None:
    assert Message("orders", b"paid").encoded_properties() == ""


def test_keys_as_text_are_split_at_spaces() -> None:
    assert Message("orders", b"", keys="k1  k2").keys == ("k1", "k2")


def test_key_with_a_space_is_an_argument_error() -> None:
    with pytest.raises(ArgumentError, match="holds a space"):
        Message("orders", b"", keys=["a b"])


def test_property_given_twice_with_two_values_is_an_argument_error() -> None:
    with pytest.raises(ArgumentError, match="TAGS is given twice"):
        Message("orders", b"", tags="a", properties={"TAGS": "b"})
    assert Message("orders", b"", tags="a", properties={"TAGS": "a"}).tags == "a"


def test_transaction_becomes_bits_of_the_sys_flag() -> None:
    message = Message(
        "orders", b"", transaction=TransactionType.COMMIT, sys_flag=SysFlag.MULTI_TAGS
    )
    assert message.stored_sys_flag == 0xA


def test_transaction_that_contradicts_the_sys_flag_is_an_argument_error() -> None:
    with pytest.raises(ArgumentError, match="disagree"):
        Message("orders", b"", transaction=TransactionType.COMMIT, sys_flag=0x4)


@pytest.mark.parametrize(
    ("sys_flag", "expected"),
    [
        (0, None),
        (0x300, None),
        (0x1, CompressionType.ZLIB),
        (0x101, CompressionType.LZ4),
        (0x201, CompressionType.ZSTD),
        (0x301, CompressionType.ZLIB),
    ],
)
def test_compression_type_is_read_from_the_sys_flag(
    sys_flag: int, expected: CompressionType | None
) -> None:
    assert compression_type(sys_flag) is expected


def test_undefined_compression_type_is_an_argument_error() -> None:
    with pytest.raises(ArgumentError, match="compression type 5"):
        compression_type(0x501)


@pytest.mark.parametrize("statuses", [PutStatus, AppendStatus, GetStatus])
def test_status_equals_its_name(
    statuses: type[PutStatus] | type[AppendStatus] | type[GetStatus],
) -> None:
    assert all(status == status.name for status in statuses)


def test_statuses_keep_the_order_of_rocketmq() -> None:
    assert list(PutStatus)[10] is PutStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
    assert list(GetStatus)[5] is GetStatus.OFFSET_OVERFLOW_ONE
    assert list(AppendStatus)[1] is AppendStatus.END_OF_FILE
