"""What a directory holds and up to where it may be read, told from its files."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore.epochs import EpochEntry, format_epochs
from rmqstore.errors import CorruptionError, DiskError, NotFoundError
from rmqstore.spark import files
from rmqstore.spark.read import layout, liveness
from rmqstore.spark.read.layout import Layout, QueueFiles
from rmqstore.spark.read.records import Log
from tests.golden import GoldenCase, every_case
from tests.reference import consume_queue
from tests.reference.checkpoint import Checkpoint
from tests.support.waiting import spin_until

FILE_BYTES = 4096
WAIT_SECONDS = 30
SMALL: Mapping[str, Any] = {
    "commit_log_file_size_bytes": FILE_BYTES,
    "consume_queue_file_size_bytes": 200,
    "index_slot_count": 64,
    "index_entry_count": 500,
}


def open_store(root: Path, **settings: Any) -> rmqstore.Store:
    return rmqstore.open(root, **{**SMALL, **settings})


def put(store: rmqstore.Store, count: int, *, first: int = 0) -> None:
    for number in range(first, first + count):
        topic = "payments" if number % 5 == 0 else "orders"
        store.put(topic, b"%d" % number * (10 + number % 50), queue=number % 2)


def borders(root: Path) -> list[int]:
    """Return where the records of a store begin, and the end of the last one."""
    with rmqstore.open(root, read_only=True) as store:
        records = [(each.physical_offset, each.size) for each in store.scan_log()]
    return [*(place for place, _ in records), sum(records[-1])]


def queue(found: Layout, topic: str, queue_id: int) -> QueueFiles:
    assert found.queues is not None
    (it,) = (each for each in found.queues if (each.topic, each.queue_id) == (topic, queue_id))
    return it


def crashed(root: Path) -> None:
    (root / "abort").write_text("1")


def log_file(root: Path, offset: int) -> tuple[Path, int]:
    """Return the file that holds a physical offset, and where in it."""
    start = offset - offset % FILE_BYTES
    return root / "commitlog" / f"{start:020d}", offset - start


def overwrite(root: Path, offset: int, data: bytes) -> None:
    path, at = log_file(root, offset)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a closed store of several small files."""
    with open_store(tmp_path / "store") as store:
        put(store, 60)
    return tmp_path / "store"


# ---- stores of Java ----


@every_case()
def test_a_golden_store_ends_behind_its_last_record(
    golden_case: Callable[[str, str], GoldenCase], release: str, case_name: str
) -> None:
    case = golden_case(release, case_name)
    sound = [line for line in case.manifest if "damaged" not in line]
    end = sound[-1]["phyOffset"] + sound[-1]["size"]
    first = min(int(path.name) for path in (case.root / "commitlog").iterdir())

    found = pickle.loads(pickle.dumps(Layout.of(str(case.root))))

    assert (found.start, found.end, found.readable_end) == (first, end, end)
    assert found.was_closed == (not (case.root / "abort").exists())
    assert found.dispatched_end == end or not found.was_closed
    assert found.name == found.root == str(case.root)

    bare = Layout.of(str(case.root / "commitlog"))
    assert bare.queues is None
    assert (bare.start, bare.end, bare.readable_end) == (first, end, end)
    assert [(each.start, each.size) for each in bare.files] == [
        (each.start, each.size) for each in found.files
    ]


@every_case()
def test_queues_of_a_golden_store_have_the_bounds_java_reports(
    golden_case: Callable[[str, str], GoldenCase], release: str, case_name: str
) -> None:
    case = golden_case(release, case_name)
    found = Layout.of(str(case.root))
    assert found.queues is not None
    expected = {
        # Java counts units of deleted messages, too.
        (line["topic"], line["queueId"]): (
            line["minOffset"] + line.get("expiredEntries", 0),
            line["maxOffset"],
        )
        for line in case.expected_of("queue")
    }
    assert {
        (each.topic, each.queue_id): (each.start, each.end) for each in found.queues
    } == expected
    assert max(each.log_end for each in found.queues) == found.end


def test_epochs_are_those_of_the_file_or_of_its_copy(
    golden_case: Callable[[str, str], GoldenCase],
) -> None:
    case = golden_case("5.3.3", "epoch-checkpoint")
    path = case.root / "epochFileCheckpoint"
    (case.root / "epochFileCheckpoint.bak").write_text("1\n0\n1-0\n")
    assert [each.epoch for each in Layout.of(str(case.root)).epochs] == [1, 2, 5, 12]
    path.write_text(path.read_text().replace("4\n", "5\n", 1))
    assert Layout.of(str(case.root)).epochs == (EpochEntry(1, 0),)
    (case.root / "epochFileCheckpoint.bak").unlink()
    assert Layout.of(str(case.root)).epochs == ()


# ---- ends ----


def test_a_torn_end_of_a_log_in_use_is_left_out(root: Path) -> None:
    *_, last, end = borders(root)
    crashed(root)
    for cut in (1, 4, 40, end - last - 1):
        overwrite(root, last + cut, bytes(end - last - cut))
        found = Layout.of(str(root), up_to="max")
        assert (found.end, found.readable_end) == (last, last)


def test_a_torn_end_of_a_closed_log_is_for_the_read_to_meet(root: Path) -> None:
    *_, last, end = borders(root)
    overwrite(root, last + 40, bytes(end - last - 40))
    for path in (root, root / "commitlog"):
        found = Layout.of(str(path))
        assert found.end == last
        assert last < found.readable_end <= end


def test_a_hole_near_the_end_hides_nothing_behind_it_in_a_closed_log(root: Path) -> None:
    *_, victim, last, end = borders(root)
    assert last // FILE_BYTES == victim // FILE_BYTES
    overwrite(root, victim, bytes(last - victim))
    for path in (root, root / "commitlog"):
        found = Layout.of(str(path))
        assert (found.end, found.readable_end) == (end, end)


def test_a_wrong_record_near_the_end_hides_nothing_behind_it(root: Path) -> None:
    *_, victim, last, end = borders(root)
    assert last // FILE_BYTES == victim // FILE_BYTES
    crashed(root)
    overwrite(root, victim + 8, b"\xff\xff\xff\xff")
    assert Layout.of(str(root / "commitlog"), up_to="max").readable_end == end
    overwrite(root, victim, b"\xff\xff\xff\xff\xff\xff\xff\xff")
    assert Layout.of(str(root / "commitlog"), up_to="max").readable_end == end


def test_a_preallocated_file_adds_nothing(root: Path) -> None:
    known = Layout.of(str(root))
    for number in (1, 2):
        start = known.files[-1].start + number * FILE_BYTES
        (root / "commitlog" / f"{start:020d}").write_bytes(bytes(FILE_BYTES * (2 - number)))
    found = Layout.of(str(root))
    assert (found.end, found.readable_end) == (known.end, known.readable_end)


def test_the_mark_of_a_writer_bounds_what_is_confirmed(root: Path) -> None:
    known = borders(root)
    crashed(root)
    for mark in (known[-2], known[-2] + 7, known[40] + 1, known[40], known[1] - 1, 0):
        (root / "checkpoint").write_bytes(Checkpoint(flushed_offset=mark).encode())
        for path in (root, root / "commitlog"):
            found = Layout.of(str(path))
            at_file_end = [each.start for each in found.files if each.start <= mark]
            assert found.readable_end == max(each for each in known if each <= mark), (mark, path)
            assert Layout.of(str(path), up_to="max").readable_end == known[-1]
            assert at_file_end
    (root / "abort").unlink()
    assert Layout.of(str(root)).readable_end == known[-1]


def test_a_mark_with_a_wrong_crc_bounds_nothing(root: Path) -> None:
    known = borders(root)
    crashed(root)
    data = bytearray(Checkpoint(flushed_offset=known[3]).encode())
    data[0] ^= 1
    (root / "checkpoint").write_bytes(data)
    assert Layout.of(str(root)).readable_end == known[-1]


def test_the_confirm_offset_bounds_a_replica_without_a_mark(root: Path) -> None:
    known = borders(root)
    crashed(root)
    (root / "checkpoint").write_bytes(Checkpoint(confirm_offset=known[20] + 3).encode())
    assert Layout.of(str(root)).readable_end == known[-1]
    (root / "epochFileCheckpoint").write_text(format_epochs([EpochEntry(1, 0)]))
    assert Layout.of(str(root)).readable_end == known[20]
    assert Layout.of(str(root), up_to="max").readable_end == known[-1]


def test_what_is_written_meanwhile_is_found_again_without_queues(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        put(store, 20)
        found = Layout.of(str(root), up_to="max")
        assert found.end == store.end_offset
        for first in (20, 45, 70):
            put(store, 25, first=first)
            found = found.again(up_to="max")
            assert found.queues is None
            assert (found.end, found.readable_end) == (store.end_offset, store.end_offset)
        last = found
        spin_until(lambda: last.again().readable_end == store.end_offset, "the durable end follows")
        store.truncate_to(borders(root)[33])
        assert found.again(up_to="max").end == store.end_offset


def test_a_store_that_is_empty_has_nothing_to_read(tmp_path: Path) -> None:
    with open_store(tmp_path / "store"):
        pass
    (tmp_path / "commitlog").mkdir()
    for path in (tmp_path / "store", tmp_path / "store" / "commitlog", tmp_path / "commitlog"):
        found = Layout.of(str(path))
        assert found.start == found.end == found.readable_end
        assert not found.queues


# ---- files ----


def test_deleted_head_files_move_the_start(root: Path) -> None:
    before = Layout.of(str(root))
    for file in before.files[:2]:
        os.unlink(file.path)
    found = Layout.of(str(root))
    assert found.start == before.files[2].start
    assert (found.end, found.readable_end) == (before.end, before.readable_end)
    for each in found.queues or ():
        assert 0 < each.start <= each.end
        assert each.end == queue(before, each.topic, each.queue_id).end


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_file_that_is_too_large_is_refused_with_another_one(root: Path, number: int) -> None:
    victim = Layout.of(str(root)).files[number]
    os.truncate(victim.path, FILE_BYTES + 1)
    with pytest.raises(CorruptionError, match="have one size") as caught:
        Layout.of(str(root))
    assert f"{victim.path} has {FILE_BYTES + 1} bytes" in str(caught.value)
    assert f"has {FILE_BYTES} and the files" in str(caught.value)


def test_a_cut_last_file_ends_the_log(root: Path) -> None:
    known = borders(root)
    last = Layout.of(str(root)).files[-1]
    inside = [each for each in known if each > last.start]
    os.truncate(last.path, inside[1] - last.start)
    found = Layout.of(str(root))
    assert (found.end, found.readable_end) == (inside[1], inside[1])


def test_what_is_no_store_is_told_from_what_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("no log")
    with pytest.raises(NotFoundError, match="other is not a store"):
        Layout.of(str(tmp_path / "other"))
    with pytest.raises(NotFoundError, match="nowhere does not exist"):
        Layout.of(str(tmp_path / "nowhere"))
    with pytest.raises(NotFoundError, match=r"notes.txt is a file; give the directory"):
        Layout.of(str(tmp_path / "other" / "notes.txt"))


def test_a_head_file_that_vanishes_during_the_look_is_looked_for_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Layout.of(str(root))
    list_files = layout._log_files
    calls: list[str] = []

    def list_then_delete(folder: str) -> Sequence[layout.LogFile]:
        found = list_files(folder)
        if not calls:
            os.unlink(found[0].path)
        calls.append(folder)
        return found

    monkeypatch.setattr(layout, "_log_files", list_then_delete)
    crashed(root)  # the first file's time is looked at
    (root / "checkpoint").write_bytes(bytes(48))
    found = Layout.of(str(root))
    assert len(calls) == 2
    assert found.start == known.files[1].start
    assert found.end == known.end


def test_a_refusal_of_the_system_names_the_folder(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def refuse(path: str) -> object:
        if path.endswith("commitlog"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DiskError, match="commitlog: Permission denied"):
        Layout.of(str(root))


# ---- queues ----


def test_queues_in_rocksdb_are_as_good_as_none(root: Path) -> None:
    (root / "consumequeue" / "CURRENT").write_text("MANIFEST-000004\n")
    assert Layout.of(str(root)).queues is None
    (root / "consumequeue" / "CURRENT").unlink()
    assert Layout.of(str(root)).queues
    (root / "consumequeue_rocksdb").mkdir()
    (root / "consumequeue_rocksdb" / "CURRENT").write_text("MANIFEST-000004\n")
    assert Layout.of(str(root)).queues is None


def test_a_topic_with_a_missing_queue_file_is_doubtful(root: Path) -> None:
    known = Layout.of(str(root))
    assert known.doubtful == frozenset()
    assert known.topics == {"orders", "payments"}
    (root / "consumequeue" / "orders" / "0" / f"{200:020d}").unlink()
    found = Layout.of(str(root))
    assert found.doubtful == {"orders"}
    assert found.readable_end == known.readable_end


def test_units_left_behind_the_end_of_a_queue_are_left_out(root: Path) -> None:
    """RocketMQ leaves them when it cuts the log; later records may lie where they point."""
    known = queue(Layout.of(str(root)), "payments", 0)
    path = root / "consumequeue" / "payments" / "0" / f"{known.end // 10 * 200:020d}"
    places = borders(root)
    with path.open("r+b") as file:
        file.seek(known.end % 10 * 20)
        for place, following in pairwise(places[50:54]):
            file.write(consume_queue.Unit(place, following - place, 0).encode())
    found = queue(Layout.of(str(root)), "payments", 0)
    assert (found.start, found.end) == (known.start, known.end)


def test_fill_units_at_the_front_are_no_messages(root: Path) -> None:
    """A queue that was rebuilt behind deleted messages begins with them."""
    known = queue(Layout.of(str(root)), "orders", 1)
    path = root / "consumequeue" / "orders" / "1" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(consume_queue.FILL.encode() * 7 + data[140:])
    found = queue(Layout.of(str(root)), "orders", 1)
    assert (found.start, found.end) == (7, known.end)


def test_queues_that_lag_behind_leave_the_rest_to_the_log(root: Path) -> None:
    known = Layout.of(str(root))
    places = borders(root)

    for topic in ("orders", "payments"):
        for number in "01":
            for path in sorted((root / "consumequeue" / topic / number).iterdir()):
                units = consume_queue.decode(path.read_bytes())
                kept = [unit.encode() for unit in units if unit.physical_offset < places[30]]
                path.write_bytes(b"".join(kept).ljust(200, b"\0"))

    found = Layout.of(str(root))
    assert found.dispatched_end == places[30]
    assert (found.end, found.readable_end) == (known.end, known.readable_end)

    shutil.rmtree(root / "consumequeue" / "orders")
    shutil.rmtree(root / "consumequeue" / "payments")
    found = Layout.of(str(root))
    assert found.queues == ()
    assert found.dispatched_end == found.start
    assert found.end == known.end


def test_queues_of_a_crashed_store_are_trusted_as_far_as_the_checkpoint_goes(root: Path) -> None:
    known = Layout.of(str(root))
    crashed(root)
    with Log(known.files) as log:
        times = [fact.store_timestamp for file in known.files if (fact := log.record(file.start))]

    for reached, expected in (
        (times[-1] + 3000, known.files[-1].start),
        (
            times[0] + 3000,
            max(f.start for f, t in zip(known.files, times, strict=True) if t <= times[0]),
        ),
        (times[0] + 2999, known.start),
        (0, known.start),
    ):
        data = Checkpoint(physic_timestamp=reached, logics_timestamp=reached + 1).encode()
        (root / "checkpoint").write_bytes(data)
        assert Layout.of(str(root)).dispatched_end == expected

    (root / "abort").unlink()
    assert Layout.of(str(root)).dispatched_end == known.end


def test_queues_of_a_store_that_is_held_are_trusted_whole(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_store(root) as store:
        put(store, 60)
        store.wait_dispatched()
        assert liveness.is_held(str(root / "lock"))
        assert Layout.of(str(root)).dispatched_end == store.end_offset
    assert not liveness.is_held(str(root / "lock"))
    assert not liveness.is_held(str(root / "nowhere"))


# ---- what is read again ----


@pytest.fixture
def bytes_read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the sizes of all reads from here on."""
    sizes: list[int] = []

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def read(file: files.RangeFile, offset: int, what: Any) -> Any:
            found = call(file, offset, what)
            sizes.append(found if isinstance(found, int) else len(found))
            return found

        return read

    for name in ("read", "read_into"):
        monkeypatch.setattr(files.RangeFile, name, counted(getattr(files.RangeFile, name)))
    return sizes


@pytest.fixture
def zeroed(tmp_path: Path) -> Path:
    """Return a closed store whose last file ends in 16 MiB of zeros that are no hole."""
    root = tmp_path / "zeroed"
    with open_store(root, commit_log_file_size_bytes=16 << 20) as store:
        put(store, 20)
        end = store.end_offset
    with (root / "commitlog" / NAME).open("r+b") as file:
        file.seek(end)
        file.write(bytes((16 << 20) - end))
    return root


NAME = f"{0:020d}"


def test_zeros_at_the_end_of_a_closed_log_are_read_once(
    zeroed: Path, bytes_read: list[int]
) -> None:
    first = Layout.of(str(zeroed))
    assert sum(bytes_read) > 15 << 20
    for look in (lambda: Layout.of(str(zeroed)), first.again, first.afresh):
        bytes_read.clear()
        assert look().end == first.end
        assert sum(bytes_read) < 3 << 20


def test_what_is_written_into_these_zeros_is_found(zeroed: Path) -> None:
    known = Layout.of(str(zeroed))
    with rmqstore.open(zeroed) as store:
        put(store, 5)
        end = store.end_offset
    assert known.again().end == Layout.of(str(zeroed)).end == end

    with (zeroed / "commitlog" / NAME).open("r+b") as file:
        file.seek(9 << 20)
        file.write(b"damage")
    assert Layout.of(str(zeroed)).readable_end == (9 << 20) + 6


def test_a_record_at_the_end_is_found_though_the_state_of_its_file_is_the_same(
    zeroed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.RangeFile, "state", lambda file: (0,))
    log = str(zeroed / "commitlog")
    known = Layout.of(log)
    with rmqstore.open(zeroed) as store:
        put(store, 1)
        end = store.end_offset
    assert known.again().end == Layout.of(log).end == end


# ---- a log in several folders ----


@pytest.fixture
def spread(root: Path) -> tuple[str, str]:
    """Return the folders of the log of `root`, whose files take turns in them."""
    folders = (root.parent / "disk-a", root.parent / "disk-b")
    for folder in folders:
        folder.mkdir()
    for number, file in enumerate(sorted((root / "commitlog").iterdir())):
        file.rename(folders[number % 2] / file.name)
    (root / "commitlog").rmdir()
    return str(folders[0]), str(folders[1])


def test_a_log_in_several_folders_is_one_log(root: Path, request: pytest.FixtureRequest) -> None:
    whole = Layout.of(str(root))
    spread = request.getfixturevalue("spread")
    found = Layout.of(str(root), log_folders=spread)
    assert [(each.start, each.size) for each in found.files] == [
        (each.start, each.size) for each in whole.files
    ]
    assert {os.path.dirname(each.path) for each in found.files} == {*spread}
    for name in ("end", "readable_end", "dispatched_end", "topics", "epochs", "was_closed"):
        assert getattr(found, name) == getattr(whole, name)
    assert found.again().end == found.afresh().end == whole.end
    assert found.afresh().queues == found.queues


def test_a_store_without_a_log_is_answered_with_the_option_for_its_folders(
    root: Path, spread: tuple[str, str]
) -> None:
    with pytest.raises(NotFoundError, match="in the option storePathCommitLog"):
        Layout.of(str(root))


def test_a_folder_of_the_log_that_is_gone_is_named(root: Path, spread: tuple[str, str]) -> None:
    shutil.rmtree(spread[1])
    with pytest.raises(NotFoundError, match=f"{spread[1]}: does not exist"):
        Layout.of(str(root), log_folders=spread)


def test_one_file_in_two_folders_is_not_one_log(root: Path, spread: tuple[str, str]) -> None:
    shutil.copy(f"{spread[0]}/{NAME}", spread[1])
    with pytest.raises(CorruptionError, match=f"{NAME} are the same part of a log"):
        Layout.of(str(root), log_folders=spread)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_log_without_files_beside_a_checkpoint_of_messages_is_not_mounted(
    root: Path, is_there: bool
) -> None:
    shutil.rmtree(root / "commitlog")
    if is_there:
        (root / "commitlog").mkdir()
    told = r"commitlog: host .* mount the log" if is_there else "is not a store"
    with pytest.raises(NotFoundError, match=told):
        Layout.of(str(root))


# ---- behind a URL ----


@pytest.fixture
def url(root: Path) -> Iterator[str]:
    fsspec = pytest.importorskip("fsspec", reason="URLs need it: pip install rmqstore[spark]")
    memory = fsspec.filesystem("memory")
    place = f"/layout-{os.getpid()}"
    memory.put(str(root), place, recursive=True)
    yield f"memory:/{place}"
    memory.rm(place, recursive=True)


def test_a_store_behind_a_url_has_the_layout_of_the_local_one(root: Path, url: str) -> None:
    local, remote = Layout.of(str(root)), Layout.of(url + "/")
    assert remote.name == url
    assert [files.join(str(root), each.path.removeprefix(f"{url}/")) for each in remote.files] == [
        each.path for each in local.files
    ]
    ends = ("start", "end", "readable_end", "dispatched_end", "was_closed", "topics", "epochs")
    assert [getattr(remote, name) for name in ends] == [getattr(local, name) for name in ends]
    assert remote.queues is not None
    for each in remote.queues:
        own = queue(local, each.topic, each.queue_id)
        assert (each.start, each.end, each.log_end) == (own.start, own.end, own.log_end)
    bare = Layout.of(f"{url}/commitlog")
    assert (bare.end, bare.queues) == (local.end, None)
