"""Consume queues with extensions, and light queues, through expiry, cuts and crashes."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message
from rmqstore.check import verify
from rmqstore.message import tags_code

SETTINGS: dict[str, Any] = {
    "commit_log_file_size_bytes": 8192,
    "consume_queue_file_size_bytes": 100,
    "consume_queue_ext_file_size_bytes": 200,
    "index_slot_count": 7,
    "index_entry_count": 60,
    "enable_consume_queue_ext": True,
}
LIGHT: dict[str, Any] = {"enable_multi_dispatch": True}


def put_busy(store: rmqstore.Store, count: int) -> rmqstore.Receipt:
    for _ in range(count):
        receipt = store.put("busy", bytes(300), tags="A")
    store.wait_dispatched()
    return receipt


def check_reopens(directory: Path) -> None:
    """Opening, verifying and reading agree, and every record of the log has its tag."""
    with rmqstore.open(directory, **SETTINGS) as store:
        for record in store.scan_log():
            found = store.get(record.topic, queue=0, offset=record.queue_offset)
            assert found.physical_offset == record.physical_offset
        again = store.put("quiet", b"again", tags="B")
        store.wait_dispatched()
        found = store.get_many("quiet", queue=0, offset=again.queue_offset, tags="B")
        assert [each.body for each in found.records] == [b"again"]
    assert verify(directory, full=True).is_sound


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "crashed"])
def test_store_opens_after_expiry_and_a_cut(tmp_path: Path, is_closed: bool) -> None:
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **SETTINGS)
    store.put("quiet", b"once", tags="A")
    last = put_busy(store, 60)
    store.expire_files(2)
    store.truncate_to(last.physical_offset)
    if is_closed:
        store.close()
    else:
        store.abandon()
    check_reopens(directory)


@pytest.mark.parametrize("lead", range(10))
def test_store_opens_after_expiry_and_a_crash(tmp_path: Path, lead: int) -> None:
    """Some lead puts the first unit kept at the head of a file of the extension."""
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **SETTINGS)
    for _ in range(lead):
        store.put("quiet", bytes(300), tags="A")
    put_busy(store, 30)
    store.expire_files(1)
    store.abandon()
    check_reopens(directory)


def test_store_opens_where_the_extension_of_expired_units_is_gone(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, **SETTINGS) as store:
        store.put("quiet", b"once", tags="A")
        put_busy(store, 60)
        store.expire_files(2)
    (file,) = (directory / "consumequeue_ext" / "quiet" / "0").iterdir()
    file.unlink()
    check_reopens(directory)


def test_light_queues_hold_the_tags_code_itself_and_have_no_extension(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    names = {"INNER_MULTI_DISPATCH": "%LMQ%a,other"}
    with rmqstore.open(directory, **SETTINGS, **LIGHT) as store:
        store.put(Message("parent", b"1", tags="A", properties=names))
    for name in ("%LMQ%a", "other"):
        data = (directory / "consumequeue" / name / "0" / f"{0:020}").read_bytes()
        assert struct.unpack_from(">q", data, 12)[0] == tags_code("A")
        assert not (directory / "consumequeue_ext" / name).exists()
    assert (directory / "consumequeue_ext" / "parent").exists()
    with rmqstore.open(directory, **SETTINGS, **LIGHT) as store:
        assert [each.body for each in store.queue("%LMQ%a").records()] == [b"1"]
    assert verify(directory, full=True).is_sound


@pytest.mark.parametrize("name", ["%LMQ%d/e", "", "..", "%LMQ%" + "x" * 260])
def test_light_name_that_no_folder_can_have_is_skipped(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "store"
    names = {"INNER_MULTI_DISPATCH": f"%LMQ%a,{name},%LMQ%b"}
    with rmqstore.open(directory, **SETTINGS, **LIGHT) as store:
        for number in range(3):
            store.put(Message("parent", b"%d" % number, properties=names))
        store.wait_dispatched()
        for light in ("%LMQ%a", "%LMQ%b"):
            assert [each.body for each in store.queue(light).records()] == [b"0", b"1", b"2"]
        offsets = [each.properties["INNER_MULTI_QUEUE_OFFSET"] for each in store.scan_log()]
        assert offsets == ["0,0,0", "1,0,1", "2,0,2"]
    assert verify(directory, full=True).is_sound
