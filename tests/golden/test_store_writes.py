"""Same inputs and clock in, same bytes out: golden stores written again, or from a cut on."""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

import pytest

import rmqstore
from rmqstore.check import manifest
from tests.golden import GoldenCase, GoldenCases, every_case
from tests.golden.rewriting import (
    batch_topics,
    compatibility_of,
    config_of,
    files_of,
    open_fresh,
    records_of,
    replay,
)
from tests.reference import checkpoint, consume_queue, consume_queue_ext, log
from tests.reference.manifest import comparable
from tests.reference.record import PREPARED, ROLLBACK, Record
from tests.reference.walked import Walked

GoldenCopy = Callable[[str, str], GoldenCase]

# deleted-head lacks its first files; cq-ext was dispatched with a filter's bit maps, whose sizes
# are in the queues' addresses; crash-torn holds traces of a record that nobody can read.
WHOLE = ("deleted-head", "cq-ext", "crash-torn")
# Java writes the property text of an inner batch in the order of a HashMap, rmqstore leaves it as
# it came and ends it with INNER_BASE. Sizes and all other bytes are equal.
REORDERED = ("batch",)


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A golden case and the store that its inputs make again, for tests that only read them."""

    case: GoldenCase
    root: Path


Rewrite = Callable[[str, str], Rewritten]


@pytest.fixture(scope="module")
def rewrite(golden_cases: GoldenCases, tmp_path_factory: pytest.TempPathFactory) -> Rewrite:
    """Return a function (release, name) that writes a case again, once for all tests here."""

    @functools.cache
    def made(release: str, name: str) -> Rewritten:
        folder = tmp_path_factory.mktemp("rewritten")
        case = golden_cases.copy(release, name, into=folder)
        return Rewritten(case, rewritten(case, folder / "mine"))

    return made


def rewritten(case: GoldenCase, root: Path) -> Path:
    for line in case.expected_of("checkpoint"):
        # Replication sets the field in Java; a store keeps what its checkpoint holds.
        kept = checkpoint.Checkpoint(master_flushed_offset=line["masterFlushedOffset"])
        root.mkdir()
        (root / "checkpoint").write_bytes(kept.encode())
    with open_fresh(case, root) as store:
        replay(case, records_of(case.root), store)
    return root


def index_contents(root: Path) -> list[bytes]:
    """Index files are named after the moment they were made, so their names are left out."""
    return [data for _, data in sorted(files_of(root / "index").items())]


def assert_same_queues(mine: Path, golden: Path, *, without: Collection[str] = ()) -> None:
    for kind in ("consumequeue", "batchconsumequeue", "consumequeue_ext"):
        expected = files_of(golden / kind)
        kept = {name: data for name, data in expected.items() if name not in without}
        assert files_of(mine / kind) == kept


def written(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return *files* without those that hold nothing: files made ahead of the writer."""
    return {name: data for name, data in files.items() if any(data)}


@every_case(without={*WHOLE, *REORDERED})
def test_the_log_is_the_same_byte_for_byte(release: str, case_name: str, rewrite: Rewrite) -> None:
    both = rewrite(release, case_name)
    mine = written(files_of(both.root / "commitlog"))
    assert mine == written(files_of(both.case.root / "commitlog"))


@every_case(without=WHOLE)
def test_queues_and_index_are_the_same_byte_for_byte(
    release: str, case_name: str, rewrite: Rewrite
) -> None:
    both = rewrite(release, case_name)
    assert_same_queues(both.root, both.case.root)
    assert index_contents(both.root) == index_contents(both.case.root)


@every_case(*REORDERED)
def test_records_with_reordered_properties_are_the_same_by_field(
    release: str, case_name: str, rewrite: Rewrite
) -> None:
    both = rewrite(release, case_name)
    case, mine = both.case, records_of(both.root)
    for ours, theirs in zip(mine, records_of(case.root), strict=True):
        if theirs.topic not in batch_topics(case):
            assert ours == theirs
            continue
        assert ours.properties == theirs.properties
        assert set(ours.property_bytes.split(b"\x02")) == set(theirs.property_bytes.split(b"\x02"))
        assert ours.property_bytes.count(b"\x02") == len(ours.properties)
        assert blind(ours) == blind(theirs)


def blind(record: Record) -> tuple[object, ...]:
    """Return every field but the property text."""
    return tuple(
        getattr(record, name)
        for name in type(record).__dataclass_fields__
        if name != "property_bytes"
    )


@every_case(without=WHOLE)
def test_the_checkpoint_of_a_clean_stop_is_the_same(
    release: str, case_name: str, rewrite: Rewrite
) -> None:
    both = rewrite(release, case_name)
    case = both.case
    my_bytes = (both.root / "checkpoint").read_bytes()
    their_bytes = (case.root / "checkpoint").read_bytes()
    assert my_bytes[48:] == their_bytes[48:]

    mine, theirs = checkpoint.decode(my_bytes), checkpoint.decode(their_bytes)
    last = records_of(case.root)[-1]
    assert mine.master_flushed_offset == theirs.master_flushed_offset
    assert mine.confirm_offset == theirs.confirm_offset

    # What Java had flushed when it wrote its own is a matter of its timers.
    assert mine.physic_timestamp == last.store_timestamp >= theirs.physic_timestamp
    assert mine.logics_timestamp >= theirs.logics_timestamp
    assert mine.logics_physical_offset >= theirs.logics_physical_offset

    if not case.spec.get("crash"):
        assert mine.index_timestamp == theirs.index_timestamp
        dispatched = next(
            found
            for found in reversed(records_of(case.root))
            if found.transaction not in (PREPARED, ROLLBACK)
        )
        assert mine.logics_timestamp == dispatched.store_timestamp
        if release == "5.3.3":
            assert mine.logics_timestamp == theirs.logics_timestamp
            assert mine.logics_physical_offset == 0
        else:
            assert mine.logics_physical_offset == dispatched.physical_offset


@every_case("crash-torn")
def test_what_was_put_before_a_torn_record_is_the_same(
    release: str, case_name: str, rewrite: Rewrite
) -> None:
    both = rewrite(release, case_name)
    case, mine = both.case, both.root

    torn = next(line for line in case.manifest if "damaged" in line)
    start, theirs = log.read_run(case.root / "commitlog")
    assert start == 0
    assert log.read_run(mine / "commitlog")[1].rstrip(b"\0") == theirs[: torn["phyOffset"]].rstrip(
        b"\0"
    )

    walked = Walked(case, records_of(case.root))
    for (topic, queue_id), entries in walked.queues().items():
        units = consume_queue.encode([entry.unit() for entry in entries])
        place = Path("consumequeue", topic, str(queue_id))
        assert log.read_run(mine / place)[1].rstrip(b"\0") == units.rstrip(b"\0")
        assert log.read_run(case.root / place)[1].startswith(units)

    index = log.build_index(
        walked.records,
        slot_count=case.spec["store"]["maxHashSlotNum"],
        entry_count=case.spec["store"]["maxIndexNum"],
        tag_keys=walked.has_tag_keys,
    )
    assert index_contents(mine) == [file.encode() for file in index.files]


@every_case("cq-ext")
def test_an_extended_queue_without_bit_maps_is_what_the_reference_makes(
    release: str, case_name: str, rewrite: Rewrite
) -> None:
    both = rewrite(release, case_name)
    case, mine = both.case, both.root
    assert written(files_of(mine / "commitlog")) == written(files_of(case.root / "commitlog"))
    assert index_contents(mine) == index_contents(case.root)

    walked = Walked(case, records_of(case.root))

    queues, runs = log.extend_queues(
        log.build_queues(walked.records),
        bitmap_of=lambda entry: b"",
        file_size=walked.settings["mappedFileSizeConsumeQueueExt"],
    )

    for (topic, queue_id), entries in queues.items():
        place = Path(topic, str(queue_id))
        units = log.read_run(mine / "consumequeue" / place)[1]
        assert units.rstrip(b"\0") == consume_queue.encode(
            [entry.unit() for entry in entries]
        ).rstrip(b"\0")
        assert log.read_run(mine / "consumequeue_ext" / place)[1] == runs[topic, queue_id]

        theirs = consume_queue.decode(log.read_run(case.root / "consumequeue" / place)[1])
        assert [unit.physical_offset for unit in theirs] == [e.physical_offset for e in entries]
        assert all(consume_queue_ext.is_address(unit.tags_code) for unit in theirs)


def cut_places(case: GoldenCase) -> list[int]:
    """Record borders to cut at: the start of a file, one in its middle, the last record."""
    offsets = [found.physical_offset for found in records_of(case.root)]
    last = offsets[-1]
    file_size = case.spec["store"]["mappedFileSizeCommitLog"]
    start = last - last % file_size
    first_of_file = next(offset for offset in offsets if offset >= start)
    return sorted({first_of_file, offsets[len(offsets) * 2 // 3], last})


@every_case(without={"cq-ext", "crash-torn", "crash-intact", *REORDERED})
def test_a_java_store_that_is_cut_and_goes_on_ends_up_the_same(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    before = golden_case(release, case_name)
    records = records_of(before.root)
    # Java leaves a queue's file to its next cleaning when all in it is deleted.
    expired = {"TopicB/0/00000000000000000000"} if case_name == "deleted-head" else set()
    for place in cut_places(before):
        case = golden_case(release, case_name)
        config = config_of(case.spec["store"], case.root, compatibility=compatibility_of(case))
        with rmqstore.open(case.root, config) as store:
            store.truncate_to(place)
            assert store.end_offset <= place
            replay(case, (each for each in records if each.physical_offset >= place), store)
            assert list(manifest.dump(store)) == [comparable(dict(line)) for line in case.manifest]
        assert files_of(case.root / "commitlog") == files_of(before.root / "commitlog")
        assert_same_queues(case.root, before.root, without=expired)
        assert index_entries(case) == index_entries(before)


def index_entries(case: GoldenCase) -> list[tuple[int, int]]:
    """Hash and place of every entry, in order, whichever file it is in.

    The index is built anew from a file's first record on, which may have keys in the file before:
    these are then there twice, as after a recovery by Java. Here each counts once.
    """
    slots = case.spec["store"]["maxHashSlotNum"]
    found = []
    for data in index_contents(case.root):
        (used,) = struct.unpack_from(">i", data, 36)
        for number in range(1, used):
            found.append(struct.unpack_from(">iq", data, 40 + 4 * slots + 20 * number))
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("chunk", [4096, 977, 65536 + 13])
@every_case("plain", "topic-length", "batch", "transactions", "deleted-head")
def test_a_log_copied_raw_gives_equal_queues_and_index(
    release: str, case_name: str, chunk: int, golden_case: GoldenCopy, tmp_path: Path
) -> None:
    case = golden_case(release, case_name)
    start, data = log.read_run(case.root / "commitlog")
    with rmqstore.open(case.root, read_only=True) as source:
        end = source.end_offset
    with open_fresh(case, tmp_path / "mine") as store:
        for at in range(start, end, chunk):
            store.append_raw(at, data[at - start : min(at + chunk, end) - start])
        store.wait_dispatched()
        assert store.end_offset == end
        assert list(manifest.dump(store)) == [comparable(dict(line)) for line in case.manifest]
    mine = tmp_path / "mine"
    assert written(files_of(mine / "commitlog")) == written(files_of(case.root / "commitlog"))
    if start == 0:
        assert_same_queues(mine, case.root)
        assert index_contents(mine) == index_contents(case.root)
