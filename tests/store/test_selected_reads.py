"""Reads of the records whose properties a function selects, as a broker makes them for a filter."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import rmqstore
from rmqstore import CorruptionError, GetStatus, Message, Store
from rmqstore.store.broker_view import BrokerView
from tests.support.sends import properties_text

Values = tuple[str | None, ...]
_BODY_AT = 88
"""Of the body in a record with hosts of IPv4."""


def filled(root: Path, *numbers: int) -> Store:
    """Return a store with messages of topic T whose property n is a number."""
    store = rmqstore.open(root)
    for number in numbers:
        store.put(Message("T", b"%d" % number, properties={"n": str(number), "x": "y"}))
    store.wait_dispatched()
    return store


def above(limit: int) -> Callable[[Values], bool]:
    return lambda values: values[0] is not None and int(values[0]) > limit


def select(
    store: Store,
    selects: Callable[[Values], bool],
    *,
    offset: int = 0,
    messages: int = 32,
    size: int = 1 << 20,
    looked: int = 256,
    names: tuple[str, ...] = ("n",),
) -> tuple[GetStatus, int, int, bytes]:
    """Return the status, the next offset, the number of messages, and their records."""
    view = BrokerView(store)
    found = view.select("T", 0, offset, messages, size, looked, names, selects, True)
    return found[0], found[1], found[4], found[5]


def raw(store: Store, *offsets: int) -> bytes:
    return b"".join(store.get("T", offset=each).raw for each in offsets)


def test_records_are_those_of_the_log_and_the_next_offset_is_after_all_looked_at(
    tmp_path: Path,
) -> None:
    with filled(tmp_path, 1, 7, 2, 8, 3) as store:
        assert select(store, above(5)) == (GetStatus.FOUND, 5, 2, raw(store, 1, 3))
        assert select(store, above(5), offset=2) == (GetStatus.FOUND, 5, 1, raw(store, 3))
        assert select(store, above(9)) == (GetStatus.NO_MATCHED_MESSAGE, 5, 0, b"")
        assert select(store, above(9), looked=2) == (GetStatus.NO_MATCHED_MESSAGE, 2, 0, b"")
        assert select(store, above(5), offset=5)[:2] == (GetStatus.OFFSET_OVERFLOW_ONE, 5)


def test_limits_end_a_read_before_the_next_selected_record(tmp_path: Path) -> None:
    with filled(tmp_path, 1, 7, 2, 8, 3) as store:
        assert select(store, above(5), messages=1) == (GetStatus.FOUND, 2, 1, raw(store, 1))
        assert select(store, above(5), size=1) == (GetStatus.FOUND, 3, 1, raw(store, 1))


@pytest.mark.parametrize("count", [1, 16, 17, 40])
def test_values_are_in_the_order_of_the_names(tmp_path: Path, count: int) -> None:
    seen: list[Values] = []
    names = (*(f"absent{number}" for number in range(count - 1)), "n")
    with filled(tmp_path, 4) as store:
        select(store, lambda values: bool(seen.append(values)), names=names)
    assert seen == [(None,) * (count - 1) + ("4",)]


def test_the_last_of_two_values_counts(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path) as store:
        text = properties_text({"n": "1"}) + properties_text({"n": "2"})
        put = BrokerView(store).put
        host = bytes([127, 0, 0, 1, 0, 0, 0, 1])
        put("T", b"x", text.encode(), queue=0, flag=0, sys_flag=0, born_timestamp=0,
            born_host=host, reconsume_times=0)  # fmt: skip
        store.wait_dispatched()
        assert select(store, lambda values: values == ("2",))[0] is GetStatus.FOUND


def test_exception_of_the_function_reaches_the_caller_and_leaves_the_store_whole(
    tmp_path: Path,
) -> None:
    with filled(tmp_path, 4) as store:
        with pytest.raises(ZeroDivisionError):
            select(store, lambda _: bool(1 // 0))
        assert select(store, above(1))[0] is GetStatus.FOUND


def test_body_of_a_selected_record_is_checked_and_of_no_other_one(tmp_path: Path) -> None:
    with filled(tmp_path, 1, 7, 8) as store:
        bodies = [each.physical_offset + _BODY_AT for each in store.scan_log()]
    log = tmp_path / "commitlog" / f"{0:020}"
    data = bytearray(log.read_bytes())
    for at in (bodies[0], bodies[2]):
        data[at] ^= 1
    log.write_bytes(data)
    with rmqstore.open(tmp_path, read_only=True) as store:
        assert select(store, above(5))[:3] == (GetStatus.FOUND, 2, 1)
        with pytest.raises(CorruptionError):
            select(store, above(5), offset=2)


def test_records_after_a_cut_are_those_that_are_there(tmp_path: Path) -> None:
    with filled(tmp_path, 1, 7, 8) as store:
        [*_, last] = store.scan_log()
        store.truncate_to(last.physical_offset)
        store.put(Message("T", b"9", properties={"n": "9"}))
        store.wait_dispatched()
        assert select(store, above(5)) == (GetStatus.FOUND, 3, 2, raw(store, 1, 2))
        assert store.get("T", offset=2).body == b"9"
