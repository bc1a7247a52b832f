"""Index files: put, query, roll, expire, discard."""

from __future__ import annotations

import errno
import struct
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import GoldenCase, GoldenCases, every_case
from tests.reference import java_text
from tests.reference.index_file import Index, Request

SLOTS = 7
ENTRIES = 10
EVER = (1 << 63) - 1
T0 = 1_700_000_000_000


class Native:
    """One open index; leaving the block closes it without a flush, as a crash would."""

    def __init__(self, core: Any, path: Path, **options: Any) -> None:
        self.ffi, self.lib = core
        self.slots = options.get("slots", SLOTS)
        self.entries = options.get("entries", ENTRIES)
        self.error = self.ffi.new("struct rmq_error *")
        self.index = self.ffi.new("struct rmq_index *")
        self.now_ms = T0

        directory = self.ffi.new("char[]", bytes(path))
        native = self.ffi.new(
            "struct rmq_index_options *",
            {
                "vfs": options.get("vfs", self.lib.rmq_vfs_posix()),
                "directory": directory,
                "slot_count": self.slots,
                "entry_count": self.entries,
                "read_only": options.get("read_only", False),
                "tag_keys": options.get("tag_keys", False),
            },
        )

        skipped = self.ffi.new("size_t *")
        self.check(self.lib.rmq_index_open(self.index, native, skipped, self.error))
        self.skipped = skipped[0]

    def __enter__(self) -> Native:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.rmq_index_close(self.index)

    def check(self, status: int) -> None:
        assert status == 0, (status, self.ffi.string(self.error.detail))

    def slice(self, text: str | None, keep: list[Any]) -> tuple[Any, int]:
        if text is None:
            return self.ffi.NULL, 0
        data = text.encode()
        keep.append(self.ffi.new("char[]", data))
        return keep[-1], len(data)

    def try_put(self, topic: str, offset: int, timestamp: int, **keys: str | None) -> int:
        keep: list[Any] = []
        request = self.ffi.new(
            "struct rmq_index_request *",
            {
                "topic": self.slice(topic, keep),
                "unique_key": self.slice(keys.get("unique_key"), keep),
                "keys": self.slice(keys.get("keys"), keep),
                "tags": self.slice(keys.get("tags"), keep),
                "physical_offset": offset,
                "store_timestamp": timestamp,
            },
        )

        self.rolled = self.ffi.new("int64_t *", -1)
        status: int = self.lib.rmq_index_put(
            self.index, request, self.now_ms, self.rolled, self.error
        )
        return status

    def put(self, topic: str, offset: int, timestamp: int, **keys: str | None) -> int:
        """Return the timestamp of the file that was rolled, or -1."""
        self.check(self.try_put(topic, offset, timestamp, **keys))
        return int(self.rolled[0])

    def query(
        self, topic: str, key: str, begin_ms: int = 0, end_ms: int = EVER, limit: int = 64
    ) -> list[int]:
        keep: list[Any] = []
        offsets = self.ffi.new("int64_t[]", max(limit, 1))
        count = self.ffi.new("size_t *")

        self.check(
            self.lib.rmq_index_query(
                self.index,
                self.slice(topic, keep),
                self.slice(key, keep),
                begin_ms,
                end_ms,
                offsets,
                limit,
                count,
                self.error,
            )
        )
        return [offsets[i] for i in range(count[0])]

    def roll(self) -> int:
        rolled = self.ffi.new("int64_t *", -1)
        self.check(self.lib.rmq_index_roll(self.index, rolled, self.error))
        return int(rolled[0])

    def discard(self, timestamp: int, offset: int) -> int:
        rebuild_from = self.ffi.new("int64_t *")
        self.check(
            self.lib.rmq_index_discard_unsafe(
                self.index, timestamp, offset, rebuild_from, self.error
            )
        )
        return int(rebuild_from[0])

    def expire(self, log_start: int) -> None:
        self.check(self.lib.rmq_index_expire(self.index, log_start, self.error))

    @property
    def summary(self) -> tuple[int, int]:
        """Last physical offset, first one of the newest file."""
        return (
            self.lib.rmq_index_last_physical_offset(self.index),
            self.lib.rmq_index_newest_begin(self.index),
        )


def contents(path: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(path.iterdir())]


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.iterdir())


def fill(index: Native, count: int, *, first: int = 0) -> None:
    """Enter records of one key each, 100 bytes and a second apart."""
    for n in range(first, first + count):
        index.put("T", 100 * n, T0 + 1000 * n, unique_key=f"u{n}")


RECORDS = st.lists(
    st.tuples(
        st.sampled_from(["T", "Ünï🚀"]),
        st.one_of(st.none(), st.sampled_from(["u1", "u2", ""])),
        st.text("ab ä🚀", max_size=6),
        st.sampled_from([None, "", "TAG", "größe"]),
        st.integers(-3000, 5000),
    ),
    max_size=25,
)


@given(RECORDS, st.booleans(), st.integers(1, 8), st.integers(2, 12))
def test_agrees_with_the_reference(
    core: Any,
    tmp_path_factory: pytest.TempPathFactory,
    records: list[tuple[str, str | None, str, str | None, int]],
    tag_keys: bool,
    slots: int,
    entries: int,
) -> None:
    path = tmp_path_factory.mktemp("index")
    model = Index(slot_count=slots, entry_count=entries)
    now = T0

    with Native(core, path, slots=slots, entries=entries, tag_keys=tag_keys) as index:
        for n, (topic, unique_key, keys, tags, step) in enumerate(records):
            now += step
            index.put(topic, 70 * n, now, unique_key=unique_key, keys=keys, tags=tags)
            texts = [] if unique_key is None else [unique_key]
            texts += [key for key in keys.split(" ") if key]
            texts += [f"T#{tags}"] if tag_keys and tags else []
            model.put(
                Request(
                    keys=[f"{topic}#{text}" for text in texts],
                    physical_offset=70 * n,
                    store_timestamp=now,
                )
            )

        assert contents(path) == [file.encode() for file in model.files]
        for topic, key in (("T", "u1"), ("T", "a"), ("Ünï🚀", "🚀"), ("T", "T#TAG"), ("T", "x")):
            for begin_ms, end_ms in ((0, EVER), (T0, now), (T0 + 1, T0 + 3000), (now, now)):
                for limit in (0, 1, 3, 64):
                    assert index.query(topic, key, begin_ms, end_ms, limit) == model.query(
                        topic, key, begin_ms=begin_ms, end_ms=end_ms, limit=limit
                    )


def test_empty_index_says_so(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path / "index") as index:
        assert index.summary == (-1, EVER)
        assert index.query("T", "k") == []
        assert index.roll() == -1
        index.expire(EVER)
    assert not (tmp_path / "index").exists()


@pytest.mark.parametrize(("slots", "entries"), [(0, 10), (-1, 10), (7, 1), (7, -5)])
def test_impossible_counts_are_refused(core: Any, tmp_path: Path, slots: int, entries: int) -> None:
    with pytest.raises(AssertionError, match="at least 1 and 2"):
        Native(core, tmp_path, slots=slots, entries=entries)


def test_record_before_the_last_one_is_there_already(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 4)
        before = contents(tmp_path)
        index.put("T", 299, T0, unique_key="u9", keys="k")
        assert contents(tmp_path) == before
        assert index.summary == (300, 0)


def test_key_of_the_smallest_hash_goes_to_hash_zero(core: Any, tmp_path: Path) -> None:
    """A key of that hash follows from the definition of the hash: its digits to the base 31."""
    target = -(1 << 31)
    prefix = java_text.string_hash("T#")
    rest = (target - prefix * 31**7) & 0xFFFFFFFF
    digits = [(rest // 31**power) % 31 for power in reversed(range(7))]
    key = "".join(map(chr, digits))
    assert java_text.string_hash(f"T#{key}") == target
    with Native(core, tmp_path) as index:
        index.put("T", 5, T0, unique_key=key)
        assert index.query("T", key) == [5]
    assert struct.unpack_from(">i", contents(tmp_path)[0], 40 + 4 * SLOTS + 20) == (0,)


def test_full_file_is_synced_and_reported_when_the_next_record_comes(
    core: Any, tmp_path: Path
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 9)
        assert len(names(tmp_path)) == 1
        assert index.put("T", 900, T0 + 9000) == T0 + 8000
        assert len(names(tmp_path)) == 2
        assert index.summary == (800, 800)
        assert index.put("T", 900, T0 + 9000, unique_key="u9") == -1
        assert index.summary == (900, 900)
        assert index.query("T", "u0") == [0]


def test_keys_of_one_record_may_lie_in_two_files(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 8)
        assert index.put("T", 800, T0 + 8000, unique_key="u8", keys="a b  c") == T0 + 8000
        assert [index.query("T", key) for key in ("u8", "a", "b", "c")] == [[800]] * 4
    assert [struct.unpack_from(">i", data, 36)[0] for data in contents(tmp_path)] == [10, 4]


def test_rolled_file_gets_no_further_entries(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 3)
        assert index.roll() == T0 + 2000
        before = contents(tmp_path)[0]
        assert index.roll() == -1
        assert index.summary == (200, 0)
        fill(index, 2, first=3)
        assert contents(tmp_path)[0] == before
        assert index.summary == (400, 300)
        assert [index.query("T", f"u{n}") for n in range(5)] == [[0], [100], [200], [300], [400]]


def test_reopened_index_goes_on_in_its_newest_file(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path / "two") as index:
        fill(index, 13)
    with Native(core, tmp_path / "one") as index:
        fill(index, 6)
    with Native(core, tmp_path / "one") as index:
        assert index.summary == (500, 0)
        fill(index, 7, first=6)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_file_is_named_after_local_time_and_never_before_the_last(
    core: Any, tmp_path: Path
) -> None:
    with Native(core, tmp_path) as index:
        for n, now in enumerate((T0 + 7, T0 + 7, T0, T0 + 60_000)):
            index.now_ms = now
            fill(index, 9, first=9 * n)
    digits = [time.strftime("%Y%m%d%H%M%S", time.localtime(t // 1000)) for t in (T0, T0 + 60_000)]
    assert names(tmp_path) == [f"{digits[0]}00{n}" for n in (7, 8, 9)] + [f"{digits[1]}000"]


def test_files_are_ordered_by_their_records_not_by_the_clock(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 12)
    first, second = names(tmp_path)
    (tmp_path / second).rename(tmp_path / "20000101000000000")
    with Native(core, tmp_path) as index:
        assert index.summary == (1100, 900)
        assert index.query("T", "u11") == [1100]
        fill(index, 1, first=12)
    assert names(tmp_path) == ["20000101000000000", first]


@pytest.mark.parametrize(("log_start", "left"), [(0, 3), (800, 3), (801, 2), (1701, 1), (9999, 1)])
def test_expiry_unlinks_files_whose_last_record_is_gone_but_the_newest(
    core: Any, tmp_path: Path, log_start: int, left: int
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 27)
        before = names(tmp_path)
        index.expire(log_start)
        assert names(tmp_path) == before[3 - left :]
        assert index.query("T", "u0") == ([0] if left == 3 else [])
        assert index.query("T", "u26") == [2600]


@pytest.mark.parametrize(
    ("timestamp", "offset", "left", "rebuild_from"),
    [
        (EVER, EVER, 3, EVER),
        (T0 + 26000, 2601, 3, EVER),
        (T0 + 25999, 2601, 2, 1800),
        (T0 + 26000, 2600, 2, 1800),
        (EVER, 1700, 1, 900),
        (T0 + 8000, EVER, 1, 900),
        (0, EVER, 0, 0),
    ],
)
def test_discard_removes_what_may_not_be_whole_and_says_where_to_rebuild_from(
    core: Any, tmp_path: Path, timestamp: int, offset: int, left: int, rebuild_from: int
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 27)
        whole = contents(tmp_path)
        before = names(tmp_path)
    with Native(core, tmp_path) as index:
        assert index.discard(timestamp, offset) == rebuild_from
        assert names(tmp_path) == before[:left]
        if left < 3:
            fill(index, 27 - rebuild_from // 100, first=rebuild_from // 100)
        assert contents(tmp_path) == whole


def test_discard_does_not_trust_a_header_without_entries(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 12)
    newest = tmp_path / names(tmp_path)[1]
    newest.write_bytes(bytes(40) + newest.read_bytes()[40:])
    with Native(core, tmp_path) as index:
        assert index.discard(EVER, EVER) == 800
        assert names(tmp_path) == [names(tmp_path)[0]]
        fill(index, 3, first=9)
        assert [index.query("T", f"u{n}") for n in (0, 9, 11)] == [[0], [900], [1100]]


def test_zero_length_newest_file_is_left_out_and_removed_when_told(
    core: Any, tmp_path: Path
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 3)
    (tmp_path / "99990101000000000").touch()
    with Native(core, tmp_path, read_only=True) as index:
        assert index.query("T", "u2") == [200]
    with Native(core, tmp_path) as index:
        assert index.query("T", "u2") == [200]
        assert len(names(tmp_path)) == 2
        index.check(index.lib.rmq_index_remove_unfinished(index.index, index.error))
    assert len(names(tmp_path)) == 1


def test_zero_length_file_before_others_is_corrupt(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 3)
    (tmp_path / "19990101000000000").touch()
    with pytest.raises(AssertionError, match="19990101000000000 is empty"):
        Native(core, tmp_path)


@pytest.mark.parametrize("name", ["readme.txt", "2026112103220672", "20261121032206727a"])
def test_foreign_name_is_corrupt_and_left_out_when_read_only(
    core: Any, tmp_path: Path, name: str
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 3)
    (tmp_path / name).write_bytes(b"x")
    (tmp_path / "folder").mkdir()
    with pytest.raises(AssertionError, match="not an index file; move it away"):
        Native(core, tmp_path)
    with Native(core, tmp_path, read_only=True) as index:
        assert (index.skipped, index.query("T", "u1")) == (1, [100])


def test_file_of_other_counts_is_corrupt_and_left_out_when_read_only(
    core: Any, tmp_path: Path
) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 3)
    with pytest.raises(AssertionError, match="has 268 bytes, expected 248"):
        Native(core, tmp_path, entries=ENTRIES - 1)
    with Native(core, tmp_path, entries=ENTRIES - 1, read_only=True) as index:
        assert (index.skipped, index.query("T", "u1")) == (1, [])


@pytest.mark.parametrize("count", [-(1 << 31), -1, 0, 1, 11, (1 << 31) - 1])
def test_hostile_entry_count_harms_nothing(core: Any, tmp_path: Path, count: int) -> None:
    with Native(core, tmp_path) as index:
        fill(index, 9)
    file = tmp_path / names(tmp_path)[0]
    data = bytearray(file.read_bytes())
    struct.pack_into(">i", data, 36, count)
    file.write_bytes(data)
    with Native(core, tmp_path) as index:
        assert index.query("T", "u8") == ([800] if count > 1 else [])
        fill(index, 5, first=9)
        assert index.query("T", "u13") == [1300]


@pytest.mark.parametrize("value", [-(1 << 31), -1, 10, 11, (1 << 31) - 1])
def test_hostile_slots_and_links_end_the_walk(core: Any, tmp_path: Path, value: int) -> None:
    with Native(core, tmp_path, slots=1) as index:
        fill(index, 9)
    file = tmp_path / names(tmp_path)[0]
    whole = file.read_bytes()
    for at in (40, *(44 + 20 * entry + 16 for entry in range(1, 10))):
        data = bytearray(whole)
        struct.pack_into(">i", data, at, value)
        file.write_bytes(data)
        with Native(core, tmp_path, slots=1, read_only=True) as index:
            assert index.query("T", "u0") == ([0] if at == 44 + 20 + 16 else [])


def test_chain_that_runs_in_a_circle_ends(core: Any, tmp_path: Path) -> None:
    with Native(core, tmp_path, slots=1) as index:
        fill(index, 9)
    file = tmp_path / names(tmp_path)[0]
    data = bytearray(file.read_bytes())
    struct.pack_into(">i", data, 44 + 20 + 16, 9)
    file.write_bytes(data)
    with Native(core, tmp_path, slots=1) as index:
        assert index.query("T", "u0") == [0]
        assert index.query("T", "absent") == []


def test_full_disk_refuses_the_entry_and_a_later_put_succeeds(core: Any, tmp_path: Path) -> None:
    _, lib = core
    vfs = lib.rmq_vfs_fault_new()
    try:
        with Native(core, tmp_path, vfs=vfs) as index:
            for call in (lib.RMQ_CALL_RESIZE, lib.RMQ_CALL_ALLOCATE):
                lib.rmq_vfs_fault_arm(vfs, call, 0, 100, errno.ENOSPC, 0)
                assert index.try_put("T", 0, T0, unique_key="u0") == lib.RMQ_NO_SPACE
                assert names(tmp_path) == []
            lib.rmq_vfs_fault_arm(vfs, lib.RMQ_CALL_ANY, 0, 0, errno.EIO, 0)
            fill(index, 1)
            assert index.query("T", "u0") == [0]
    finally:
        lib.rmq_vfs_fault_free(vfs)


def options_of(case: GoldenCase) -> dict[str, Any]:
    store = case.spec["store"]
    return {"slots": store["maxHashSlotNum"], "entries": store["maxIndexNum"]}


@every_case("plain", "many-queues", "keys-index", "deleted-head", "cq-ext", "batch", "transactions")
def test_golden_index_gives_the_hits_that_java_reports(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    case = golden_cases.copy(release, case_name, into=tmp_path)
    store = next(case.expected_of("store"))
    before = contents(case.root / "index")
    lines = list(case.expected_of("index"))
    assert lines
    with Native(core, case.root / "index", **options_of(case)) as index:
        for line in lines:
            hits = index.query(line["topic"], line["key"])
            kept = {at for at in hits if store["minPhyOffset"] <= at < store["maxPhyOffset"]}
            assert sorted(kept) == line["phyOffsets"]
    assert contents(case.root / "index") == before


@every_case("plain", "many-queues", "keys-index", "cq-ext")
def test_golden_index_is_written_again_byte_for_byte(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    case = golden_cases.copy(release, case_name, into=tmp_path)
    tag_keys = release == "5.5.0"
    with Native(core, tmp_path / "again", tag_keys=tag_keys, **options_of(case)) as index:
        for line in case.manifest:
            index.put(
                line["topic"],
                line["phyOffset"],
                line["storeTimestamp"],
                unique_key=line["properties"].get("UNIQ_KEY"),
                keys=line["keys"],
                tags=line["tags"],
            )
    assert contents(tmp_path / "again") == contents(case.root / "index")
