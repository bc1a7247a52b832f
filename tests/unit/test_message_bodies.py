"""Messages in answers of brokers, against the reference codec of records."""

from __future__ import annotations

import contextlib
import zlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting.bodies.messages import decode_messages, encode_message
from tests.reference import record as reference

INT32, INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
PORTS = st.integers(0, 65535)


@st.composite
def records(draw: st.DrawFn) -> reference.Record:
    hosts = []
    sys_flag = draw(st.sampled_from([0, reference.TRANSACTION_MASK]))
    for flag in (reference.BORN_HOST_V6, reference.STORE_HOST_V6):
        size = draw(st.sampled_from([4, 16]))
        sys_flag |= flag if size == 16 else 0
        hosts.append(reference.Host(draw(st.binary(min_size=size, max_size=size)), draw(PORTS)))
    version = draw(st.sampled_from([1, 2]))
    names = st.text("abc", min_size=1, max_size=4)
    pairs = draw(st.dictionaries(names, names, max_size=3))
    return reference.Record(
        version=version,
        body_crc=draw(INT32),
        queue_id=draw(INT32),
        flag=draw(INT32),
        queue_offset=draw(INT64),
        physical_offset=draw(INT64),
        sys_flag=sys_flag,
        born_timestamp=draw(INT64),
        born_host=hosts[0],
        store_timestamp=draw(INT64),
        store_host=hosts[1],
        reconsume_times=draw(INT32),
        prepared_transaction_offset=draw(INT64),
        body=draw(st.binary(max_size=50)),
        topic_bytes=draw(st.text(max_size=20 if version == 1 else 90)).encode(),
        property_bytes="".join(f"{name}\x01{each}\x02" for name, each in pairs.items()).encode(),
    )


@given(st.lists(records(), max_size=3))
def test_messages_are_those_of_the_reference(wanted: list[reference.Record]) -> None:
    found = decode_messages(b"".join(map(reference.encode, wanted)))
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        assert one.topic == other.topic
        assert one.offset_id == other.message_id
        assert one.properties == other.properties
        assert one.body == other.body
        assert (one.queue_id, one.queue_offset) == (other.queue_id, other.queue_offset)
        assert (one.flag, one.sys_flag) == (other.flag, other.sys_flag)
        assert one.born_timestamp_ms == other.born_timestamp
        assert one.store_timestamp_ms == other.store_timestamp
        assert one.reconsume_times == other.reconsume_times
        assert one.born_host[1] == other.born_host.port


@given(st.sampled_from(["10.0.0.1", "::1"]), st.sampled_from(["10.0.0.2", "::2"]), INT64)
def test_encoded_message_is_that_of_the_reference(born: str, stored: str, place: int) -> None:
    message = SimpleNamespace(
        queue_offset=place,
        physical_offset=place,
        flag=9,
        sys_flag=reference.TRANSACTION_MASK,
        born_timestamp=1,
        born_host=(born, 2),
        store_timestamp=3,
        store_host=(stored, 4),
        reconsume_times=5,
        prepared_transaction_offset=6,
        body=b"body",
        properties_text="a\x01b\x02",
    )
    [found] = decode_messages(encode_message(message, "T", 7))
    record = reference.decode(encode_message(message, "T", 7), 0)
    assert (record.topic, record.queue_id, record.body) == ("T", 7, b"body")
    assert record.body_crc == zlib.crc32(b"body") & 0x7FFFFFFF
    assert record.prepared_transaction_offset == 6
    assert (found.born_host, found.store_host) == (message.born_host, message.store_host)
    assert (found.queue_offset, found.physical_offset, found.flag) == (place, place, 9)
    assert (found.born_timestamp_ms, found.store_timestamp_ms) == (1, 3)
    assert (found.reconsume_times, found.properties) == (5, {"a": "b"})


@given(records(), st.data())
def test_cut_or_changed_bytes_never_end_but_in_an_error_of_the_frame(
    record: reference.Record, data: st.DataObject
) -> None:
    whole = reference.encode(record)
    end = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(RemotingFrameError, match="no message at byte 0"):
        decode_messages(whole[:end])
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(RemotingFrameError):
        assert len(decode_messages(bytes(changed))) == 1


def test_compressed_body_is_shown_as_it_was_sent() -> None:
    plain = b"paid " * 100
    host = reference.Host(b"\x7f\0\0\1", 10911)
    record = reference.Record(
        version=1,
        body_crc=0,
        queue_id=0,
        flag=0,
        queue_offset=0,
        physical_offset=0,
        sys_flag=reference.COMPRESSED | 0x300,
        born_timestamp=0,
        born_host=host,
        store_timestamp=0,
        store_host=host,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=zlib.compress(plain),
        topic_bytes=b"T",
        property_bytes=b"",
    )
    [found] = decode_messages(reference.encode(record))
    assert found.body == plain
    assert found.stored_body == record.body
