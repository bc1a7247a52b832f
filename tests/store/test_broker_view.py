"""What a broker's handlers call of a store: encoded puts, and reads of raw bytes."""

from __future__ import annotations

import struct
from typing import Any

import pytest

import rmqstore
from rmqstore import ArgumentError, CorruptionError, GetStatus, MessageRejected
from rmqstore.store.broker_view import BrokerView

HOST = bytes([10, 0, 0, 7]) + struct.pack(">I", 4711)
ENVELOPE: dict[str, Any] = {
    "queue": 0,
    "sys_flag": 0,
    "born_timestamp": 7,
    "born_host": HOST,
    "reconsume_times": 3,
}


def test_encoded_put_keeps_what_it_is_given(store: rmqstore.Store) -> None:
    view = BrokerView(store)
    receipt = view.put("orders", b"paid", b"TAGS\x01eu\x02a\x01\x01\x02", flag=-5, **ENVELOPE)
    record = store.get("orders", offset=receipt.queue_offset)
    assert (record.body, record.tags, record.flag) == (b"paid", "eu", -5)
    assert record.properties_text == "TAGS\x01eu\x02a\x01\x01\x02"
    assert (record.born_host, record.born_timestamp) == (("10.0.0.7", 4711), 7)
    assert record.reconsume_times == 3
    assert record.store_host == (store.config.store_host_address, store.config.store_host_port)


def test_host_of_ipv6_is_kept(store: rmqstore.Store) -> None:
    host = bytes(15) + b"\x01" + struct.pack(">I", 1)
    BrokerView(store).put("orders", b"x", b"", flag=0, **ENVELOPE | {"born_host": host})
    assert store.get("orders", offset=0).born_host == ("::1", 1)


@pytest.mark.parametrize("host", [b"", HOST[:-1], HOST + b"x", bytes(21)])
def test_host_of_another_size_is_refused(store: rmqstore.Store, host: bytes) -> None:
    with pytest.raises(ArgumentError, match=r"born_host has \d+ bytes; give 8"):
        BrokerView(store).put("orders", b"x", b"", flag=0, **ENVELOPE | {"born_host": host})


def test_limits_are_those_of_every_put(store: rmqstore.Store) -> None:
    view = BrokerView(store)
    with pytest.raises(MessageRejected):
        view.put("", b"x", b"", flag=0, **ENVELOPE)
    with pytest.raises(MessageRejected):
        view.put("orders", b"x", bytes(40_000), flag=0, **ENVELOPE)
    assert store.end_offset == 0


def test_batch_of_another_count_stores_nothing(store: rmqstore.Store) -> None:
    one = struct.pack(">iiiii", 23, 0, 0, 9, 1) + b"x" + struct.pack(">h", 0)
    view = BrokerView(store)
    receipts = view.put_batch("orders", one * 3, 3, appended=b"", **ENVELOPE)
    assert [each.queue_offset for each in receipts] == [0, 1, 2]
    assert store.get("orders", offset=2).flag == 9
    end = store.end_offset
    with pytest.raises(CorruptionError):
        view.put_batch("orders", one[:-1], 1, appended=b"", **ENVELOPE)
    assert store.end_offset == end


def test_raw_records_are_those_of_the_log_within_the_limits(store: rmqstore.Store) -> None:
    for number in range(10):
        store.put("orders", b"%d" % number, tags="a" if number % 2 else "b")
    store.wait_dispatched()
    view = BrokerView(store)
    raw = [store.get("orders", offset=offset).raw for offset in range(10)]

    found = view.get("orders", 0, 2, 3, 1 << 20, None, True)
    assert found == (GetStatus.FOUND, 5, 0, 10, 3, b"".join(raw[2:5]))
    found = view.get("orders", 0, 0, 100, len(raw[0]) + len(raw[1]), None, True)
    assert found[4:] == (2, b"".join(raw[:2]))
    found = view.get("orders", 0, 0, 0, 0, None, True)
    assert found[4:] == (1, raw[0])
    found = view.get("orders", 0, 0, 100, 1 << 20, ("a",), True)
    assert found[4:] == (5, b"".join(raw[1::2]))
    found = view.get("orders", 0, 10, 100, 1 << 20, None, True)
    assert found == (GetStatus.OFFSET_OVERFLOW_ONE, 10, 0, 10, 0, b"")


def test_search_for_a_rare_tag_ends_after_some_units(store: rmqstore.Store) -> None:
    count = 70_000
    store.put_many((b"" for _ in range(count)), topic="orders")
    store.wait_dispatched(timeout=120)
    found = BrokerView(store).get("orders", 0, 0, 512, 1 << 20, ("rare",), False)
    assert found[0] is GetStatus.NO_MATCHED_MESSAGE
    assert 60_000 < found[1] < count
