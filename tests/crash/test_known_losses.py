"""Losses that stores of this format have had, each named after the thread that reports it.

Numbers are those of the Apache RocketMQ issue tracker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, Message, StoreError
from tests.c import library, store_calls
from tests.crash.disk import fill_up, small_tmpfs
from tests.support.agreement import FILES, check_agreement, check_keys, walk_log
from tests.support.effort import rounds

FILE_SIZE = FILES["commit_log_file_size_bytes"]
BODY_WITH_CRC_ZERO = b"\x9d\x0a\xd9\x6d"


def fill(store: rmqstore.Store, count: int = 60) -> None:
    """Put records to two topics with two queues each, over several log, queue and index files."""
    for i in range(count):
        store.put(f"topic{i % 2}", bytes(3000), queue=i // 2 % 2, keys=[f"k{i}", f"j{i}"])


def crashed_store(directory: Path, count: int = 60) -> None:
    store = rmqstore.open(directory, **FILES)
    fill(store, count)
    store.wait_dispatched()
    store.abandon()


def last_log_file(directory: Path) -> Path:
    return max((directory / "commitlog").iterdir())


def test_issue_10017_stale_record_behind_the_end_is_not_taken(tmp_path: Path) -> None:
    """A record of another place is whole and sums up; only its physical offset gives it away."""
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **FILES)
    first = store.put("orders", b"first")
    second = store.put("orders", b"again")
    store.abandon()
    path = directory / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[second.end_offset : second.end_offset + first.size] = data[: first.size]
    path.write_bytes(data)
    with rmqstore.open(directory) as store:
        assert [each.body for each in check_agreement(store)] == [b"first", b"again"]
        assert store.end_offset == second.end_offset


def test_issue_10038_records_behind_a_blank_survive_a_crash(tmp_path: Path) -> None:
    """A blank names no place, so that the check of places must let it pass."""
    directory = tmp_path / "store"
    crashed_store(directory)
    with rmqstore.open(directory) as store:
        assert len(store._files()) > 2
        assert len(check_agreement(store)) == 60


def test_issue_7437_whole_body_before_zero_properties_is_a_torn_tail(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **FILES)
    store.put("orders", b"whole", keys=["k"])
    torn = store.put("orders", b"torn", keys=["k"], properties={"a": "b" * 50})
    store.abandon()
    path = directory / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[torn.end_offset - 40 : torn.end_offset] = bytes(40)
    path.write_bytes(data)
    with rmqstore.open(directory) as store:
        assert [each.body for each in check_agreement(store)] == [b"whole"]


@pytest.mark.parametrize("body", [b"", BODY_WITH_CRC_ZERO])
def test_issue_9121_body_whose_crc_is_zero_survives_a_crash(body: bytes, tmp_path: Path) -> None:
    assert zlib.crc32(body) == 0
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **FILES)
    store.put("orders", body, keys=["k"])
    store.put("orders", b"behind it")
    store.abandon()
    with rmqstore.open(directory) as store:
        assert [each.body for each in check_agreement(store)] == [body, b"behind it"]
        assert store.get("orders", offset=0).body_crc == 0


@pytest.mark.parametrize(
    "lost", ["consumequeue", "index", "consumequeue/topic0", "consumequeue/topic1/0", "checkpoint"]
)
def test_issue_1434_what_was_not_dispatched_at_the_crash_is_dispatched_again(
    lost: str, tmp_path: Path
) -> None:
    """Also #405 and #467: the walk begins where the oldest of queues and index ends."""
    directory = tmp_path / "store"
    crashed_store(directory)
    path = directory / lost
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    with rmqstore.open(directory) as store:
        assert len(check_agreement(store, key_count=200)) == 60


@pytest.mark.parametrize("lost", ["consumequeue", "index"])
def test_issue_405_lost_queues_and_index_of_a_closed_store_are_built_again(
    lost: str, tmp_path: Path
) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, **FILES) as store:
        fill(store)
    shutil.rmtree(directory / lost)
    with rmqstore.open(directory, **FILES) as store:
        assert len(check_agreement(store, key_count=200)) == 60


def test_issue_678_checkpoint_never_names_what_is_not_durable(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, compatibility="5.5", **FILES) as store:
        for i in range(50):
            store.put("orders", bytes(3000), keys=[f"k{i}"])
            checkpoint = store._checkpoint()
            assert checkpoint["logics_physical_offset"] <= store.flushed_offset
        store.wait_dispatched()
        store.flush()
        checkpoint = store._checkpoint()
        assert 0 < checkpoint["logics_physical_offset"] < store.flushed_offset


def test_issue_1456_store_fed_by_a_master_moves_its_checkpoint(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "master", **FILES) as master:
        fill(master, 600)
        copy = rmqstore.open(tmp_path / "copy", **FILES)
        while data := master.read_raw(copy.end_offset, 10_000):
            copy.append_raw(copy.end_offset, data)
        assert copy.end_offset == master.end_offset
        copy.wait_dispatched()
        copy.flush()
        assert copy._checkpoint()["logics_physical_offset"] > 0
        copy.abandon()
        with rmqstore.open(tmp_path / "copy") as copy:
            assert copy.recovery.start_offset > 0
            assert len(check_agreement(copy)) == 600
            assert walk_log(copy)[-1].raw == walk_log(master)[-1].raw


def test_issue_8007_index_is_whole_after_every_one_of_many_crashes(tmp_path: Path) -> None:
    """Also #7539: starting over and over makes no index files beyond those the keys need."""
    directory = tmp_path / "store"
    counts = []

    for round_number in range(8):
        store = rmqstore.open(directory, compatibility="5.5", **FILES)

        # What the checkpoint vouches for spans log files that the index file began before.
        for part in range(4):
            body = bytes(FILE_SIZE // 3)
            store.put("orders", body, keys=[f"round{round_number}-{part}"])

        store.wait_dispatched()
        store.flush()
        store.put("orders", b"x", keys=[f"round{round_number}"])
        store.wait_dispatched()
        store.abandon()

        with rmqstore.open(directory) as store:
            check_keys(store, walk_log(store), 100)
        counts.append(len(list((directory / "index").iterdir())))

    assert max(counts) == 1


def file_names(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_issue_7539_opening_that_fails_over_and_over_makes_no_files(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, **FILES) as store:
        fill(store)
    damaged = directory / "commitlog" / f"{FILE_SIZE:020}"
    damaged.write_bytes(bytes(FILE_SIZE))
    last_log_file(directory).write_bytes(bytes(FILE_SIZE))
    shutil.rmtree(directory / "index")
    names: list[list[str]] = []
    for _ in range(10):
        with pytest.raises(CorruptionError):
            rmqstore.open(directory, **FILES)
        names.append(file_names(directory))
    assert names == [names[0]] * 10


def test_issue_7539_opening_on_a_full_disk_over_and_over_makes_no_files(tmp_path: Path) -> None:
    with small_tmpfs(tmp_path / "disk", 1 << 20) as disk:
        store = rmqstore.open(disk / "store", **FILES)
        store.put("orders", b"x", keys=["k"])
        store.wait_dispatched()
        store.abandon()
        fill_up(disk / "ballast")
        for _ in range(10):
            with contextlib.suppress(StoreError):
                rmqstore.open(disk / "store", **FILES).abandon()
            assert len(file_names(disk / "store" / "index")) <= 1
        (disk / "ballast").unlink()
        with rmqstore.open(disk / "store", **FILES) as store:
            assert [each.body for each in check_agreement(store)] == [b"x"]


def test_issue_5091_store_of_many_queues_holds_no_descriptor_for_each(tmp_path: Path) -> None:
    """200,000 queue files took minutes to load; here a queue costs no descriptor."""
    count = rounds(60, 5000)
    directory = tmp_path / "store"
    before = len(os.listdir("/proc/self/fd"))

    with rmqstore.open(directory, **FILES) as store:
        for number in range(count):
            assert store.put(f"t{number // 50}", b"%d" % number, queue=number % 50)
        store.wait_dispatched(timeout=600)

    for how in ("closed", "abandoned"):
        store = rmqstore.open(directory, **FILES)
        assert len(os.listdir("/proc/self/fd")) < before + 20
        assert len(store.queues()) == count

        for number in range(0, count, 7):
            queue = store.queue(f"t{number // 50}", number % 50)
            assert queue.get(0).body == b"%d" % number
            assert queue.end == (1 if how == "closed" or number else 2)

        assert store.put("t0", b"again").queue_offset == (1 if how == "closed" else 2)
        store.abandon()


def test_issue_6609_nothing_behind_the_confirm_offset_is_dispatched_at_a_restart(
    tmp_path: Path,
) -> None:
    """Of a replicated log, what the other copies may lack stays unseen, a crash or a stop apart."""
    core: Any = library.load()
    store = store_calls.Calls(core, tmp_path)

    puts = [store.put(b"%08d" % number) for number in range(20)]
    confirmed = puts[12].physical_offset
    store.set_confirm_offset(confirmed)
    store.flush()
    store.abandon()

    for turn in range(3):
        store = store_calls.Calls(core, tmp_path, keep_confirm_offset=True)
        assert store.read(0, 11) == (puts[11].physical_offset, puts[11].body)
        with pytest.raises(LookupError):
            store.read(0, 12)
        assert store.find(b"k" + puts[12].body) == []
        assert store.end_offset == puts[-1].end_offset

        # Their places are taken nevertheless.
        after = store.put(b"%08d" % (20 + turn))
        assert after.queue_offset == len(puts)
        puts.append(after)

        if turn == 1:
            store.close()
        else:
            store.abandon()

    store = store_calls.Calls(core, tmp_path, keep_confirm_offset=True)
    store.set_confirm_offset(store.end_offset)
    store.check_holds(puts)
    store.close()


@pytest.mark.parametrize("kept", [0, 1, 5])
def test_issue_6703_confirm_offset_names_nothing_behind_a_log_that_lost_its_tail(
    kept: int, tmp_path: Path
) -> None:
    directory = tmp_path / "store"
    store = rmqstore.open(directory, compatibility="5.5", **FILES)
    receipts = [store.put("orders", b"%d" % number) for number in range(10)]

    store._set_confirm_offset(store.end_offset)
    store.abandon()

    fields = bytearray(4096)
    if (directory / "checkpoint").exists():
        fields[:] = (directory / "checkpoint").read_bytes()
    fields[32:40] = receipts[-1].end_offset.to_bytes(8)
    (directory / "checkpoint").write_bytes(fields)

    path = directory / "commitlog" / f"{0:020}"
    end = receipts[kept].physical_offset
    path.write_bytes(path.read_bytes()[:end].ljust(FILE_SIZE, b"\0"))

    with rmqstore.open(directory) as store:
        assert store.end_offset == end
        assert store._checkpoint()["confirm_offset"] <= end
        assert store.put("orders", b"new").queue_offset == kept
        assert len(check_agreement(store)) == kept + 1


def test_issue_7689_no_queue_offset_is_given_twice_after_a_crash(tmp_path: Path) -> None:
    """Records that were not dispatched when the process died hold their queue offsets."""
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **FILES)
    store.put("orders", b"0")
    store.wait_dispatched()
    store._set_confirm_offset(store.end_offset)
    for i in range(1, 10):
        assert store.put("orders", b"%d" % i).queue_offset == i
    assert store.queue("orders").end == 1
    store.abandon()
    with rmqstore.open(directory, **FILES) as store:
        assert store.put("orders", b"10").queue_offset == 10
        assert [each.body for each in check_agreement(store)] == [b"%d" % i for i in range(11)]


def test_issue_7689_no_queue_offset_is_given_twice_after_a_cut(tmp_path: Path) -> None:
    with rmqstore.open(tmp_path / "store", enable_multi_dispatch=True, **FILES) as store:
        store.put("orders", b"0")
        store.wait_dispatched()
        store._set_confirm_offset(store.end_offset)
        light = {"INNER_MULTI_DISPATCH": "%LMQ%a,%LMQ%b"}
        for i in range(1, 10):
            receipt = store.put(Message("orders", b"%d" % i, properties=light))
            assert receipt.queue_offset == i
        store.truncate_to(receipt.physical_offset)
        again = store.put(Message("orders", b"again", properties=light))
        assert again.queue_offset == 9
        store._set_confirm_offset(2**62)
        check_queues_and_light(store)


def check_queues_and_light(store: rmqstore.Store) -> None:
    store.wait_dispatched()
    log = walk_log(store)
    assert [each.queue_offset for each in store.queue("orders").records()] == list(range(len(log)))
    for light in ("%LMQ%a", "%LMQ%b"):
        found = [each.physical_offset for each in store.queue(light).records()]
        assert found == [each.physical_offset for each in log[1:]]


def test_hazard_b_blank_at_the_end_of_the_last_file_stays_one(tmp_path: Path) -> None:
    """The next file is gone, the blank is not: a replica may hold it, so nothing replaces it."""
    directory = tmp_path / "store"
    with rmqstore.open(directory, **FILES) as store:
        while len(store._files()) < 2:
            store.put("orders", bytes(9000))
        count = sum(each.physical_offset < FILE_SIZE for each in walk_log(store))
        store.truncate_to(FILE_SIZE)
    assert last_log_file(directory).name == f"{0:020}"
    with rmqstore.open(directory, **FILES) as store:
        assert store.end_offset == FILE_SIZE
        assert store.put("orders", b"short").physical_offset == FILE_SIZE
        assert len(check_agreement(store)) == count + 1


def test_checkpoint_keeps_up_with_puts_however_fast_they_come(tmp_path: Path) -> None:
    """RocketMQ 5.5 walks back over ten log files: recovery and index must begin within them."""
    directory = tmp_path / "store"
    sizes = {**FILES, "commit_log_file_size_bytes": 8192, "index_entry_count": 4000}
    store = rmqstore.open(directory, **sizes)
    try:
        for _ in range(4):
            store.put_many(
                [Message("orders", bytes(300), keys=[f"k{number}"]) for number in range(200)]
            )
            data = (directory / "checkpoint").read_bytes()
            covered = int.from_bytes(data[40:48], "big")
            files = sorted(int(path.name) for path in (directory / "commitlog").iterdir())
            assert sum(start > covered for start in files) <= 9, (covered, files)
    finally:
        store.abandon()
