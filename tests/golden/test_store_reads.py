"""rmqstore reads what the real Java store wrote, and what it reports is what Java reports."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.check import manifest
from tests.golden import GoldenCase, every_case
from tests.golden.rewriting import FAR_TIME_MS, compatibility_of, config_of, files_of
from tests.reference.manifest import comparable
from tests.support.native_store import StoredForm, put_stored_forms

GoldenCopy = Callable[[str, str], GoldenCase]
Opener = Callable[[GoldenCase], rmqstore.Store]

OPENERS: dict[str, Opener] = {
    "read-only": lambda case: rmqstore.open(case.root, read_only=True),
    "found-out": lambda case: rmqstore.open(case.root),
    "configured": lambda case: rmqstore.open(
        case.root,
        config_of(case.spec["store"], case.root, compatibility=compatibility_of(case)),
    ),
}
every_opener = pytest.mark.parametrize("opener", OPENERS.values(), ids=OPENERS.keys())


def surviving(case: GoldenCase) -> list[dict[str, Any]]:
    """Return the manifest without what the damage done on purpose made unreadable."""
    return [comparable(dict(line)) for line in case.manifest if "damaged" not in line]


def bounds(case: GoldenCase) -> dict[tuple[str, int], tuple[int, int]]:
    return {
        # Java's minimum is that of the files; entries of deleted messages still count there.
        (line["topic"], line["queueId"]): (
            line["minOffset"] + line["expiredEntries"],
            line["maxOffset"],
        )
        for line in case.expected_of("queue")
    }


def assert_is_the_case(store: rmqstore.Store, case: GoldenCase) -> None:
    assert list(manifest.dump(store)) == surviving(case)
    found = {(queue.topic, queue.number): (queue.start, queue.end) for queue in store.queues()}
    assert found == bounds(case)
    (line,) = case.expected_of("store")
    assert (store.start_offset, store.end_offset) == (line["minPhyOffset"], line["maxPhyOffset"])
    if not store.read_only:
        assert store.recovery.was_closed is not line["abortFile"]


def offsets_by_key(store: rmqstore.Store, line: Mapping[str, Any]) -> list[int]:
    found = store._query(line["topic"], line["key"], False, 0, FAR_TIME_MS, 64)
    return [record.physical_offset for record in found]


@every_opener
@every_case()
def test_dump_bounds_and_ends_are_those_of_java(
    release: str, case_name: str, opener: Opener, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    with opener(case) as store:
        assert_is_the_case(store, case)


@every_case()
def test_every_key_finds_what_java_finds(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    expected = {(line["topic"], line["key"]): line for line in case.expected_of("index")}
    with rmqstore.open(case.root) as store:
        wrong = {
            key: (found, line["phyOffsets"])
            for key, line in expected.items()
            if (found := offsets_by_key(store, line)) != line["phyOffsets"]
        }
    assert expected
    assert not wrong


@every_case()
def test_a_read_only_store_finds_every_key_of_an_index_that_is_whole(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    with rmqstore.open(case.root, read_only=True) as store:
        for line in case.expected_of("index"):
            assert offsets_by_key(store, line) == line["phyOffsets"]


@every_case()
def test_closing_and_opening_again_changes_nothing(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    with rmqstore.open(case.root):
        pass
    assert not (case.root / "abort").exists()
    with rmqstore.open(case.root) as store:
        assert store.recovery.was_closed
        assert list(manifest.dump(store)) == surviving(case)
        for line in case.expected_of("index"):
            assert offsets_by_key(store, line) == line["phyOffsets"]


@every_case()
def test_reading_only_changes_no_byte(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    before = files_of(case.root)
    with rmqstore.open(case.root, read_only=True) as store:
        assert sum(1 for _ in manifest.dump(store)) == len(surviving(case))
    assert files_of(case.root) == before


@every_case()
def test_records_read_by_queue_are_those_of_the_log(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    expected: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for line in surviving(case):
        for entry in line["consumeQueues"]:
            key = entry["topic"], entry["queueId"]
            expected.setdefault(key, []).append((entry["offset"], line["phyOffset"]))
    with rmqstore.open(case.root, read_only=True) as store:
        found = {
            (queue.topic, queue.number): [
                (record.queue_offset, record.physical_offset) for record in queue.records()
            ]
            for queue in store.queues()
        }
    assert found == expected


@every_case("compressed")
def test_compressed_bodies_give_the_plain_bytes_java_was_given(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    lines = [line for line in case.manifest if "plainSha256" in line]
    assert lines
    with rmqstore.open(case.root, read_only=True) as store:
        for line in lines:
            record = store.record_at(line["phyOffset"])
            plain = rmqstore.decompress(record.body, record.sys_flag)
            assert len(plain) == line["plainLength"]
            assert hashlib.sha256(plain).hexdigest() == line["plainSha256"]


@every_case("crash-torn")
def test_a_torn_last_record_is_cut_and_the_rest_kept(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    torn = next(line for line in case.manifest if "damaged" in line)
    with rmqstore.open(case.root) as store:
        assert store.scan_log().count()[0] == 380
        assert store.end_offset == torn["phyOffset"]
        assert store.recovery.cut_bytes > 0
        assert not store.recovery.was_closed


def test_a_manifest_line_is_json(golden_case: GoldenCopy) -> None:
    case = golden_case("5.3.3", "plain")
    with rmqstore.open(case.root, read_only=True) as store:
        for line in manifest.dump(store):
            assert json.loads(json.dumps(line)) == line


def test_text_that_is_no_utf8_becomes_what_java_makes_of_it(tmp_path: Path) -> None:
    host = ("127.0.0.1", 10911)
    text = b"k\x01a\xff\xed\xa0\x80b\x02"
    form = StoredForm("T", 0, b"x", text, b"", 0, 0, 1, 2, host, host, 0, 0)
    with rmqstore.open(tmp_path / "store") as store:
        put_stored_forms(store, [form])
        (line,) = manifest.dump(store)
    assert line["propertiesRaw"] == "k\x01a\ufffd\ufffdb\x02"
    assert line["properties"] == {"k": "a\ufffd\ufffdb"}
