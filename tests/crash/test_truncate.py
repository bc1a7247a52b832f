"""What is cut off a log stays cut off, whatever happens afterwards."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import Message, OffsetOutOfRange, Receipt
from tests.support.agreement import FILES, check_agreement
from tests.support.effort import rounds

COUNT = 60
TRUNCATE_AND_DIE = """
import os, signal, sys
import rmqstore
from tests.support.agreement import FILES
store = rmqstore.open(sys.argv[1], **FILES)
store.put("orders", b"first", keys=["k"])
for _ in range(40):
    store.put("orders", bytes(5000))
store.truncate_to(store.get("orders", offset=1).physical_offset)
os.kill(os.getpid(), signal.SIGKILL)
"""


def fill(store: rmqstore.Store) -> list[Receipt]:
    """Put records of several sizes to several queues, over five files."""
    return [
        store.put(
            Message("orders", bytes((i,)) * (i * 150), queue=i % 3, keys=(f"k{i}", "all"), tags="A")
        )
        for i in range(COUNT)
    ]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Receipt]]:
    directory = tmp_path_factory.mktemp("filled") / "store"
    with rmqstore.open(directory, **FILES) as store:
        receipts = fill(store)
        assert len(store._files()) >= 4
    return directory, receipts


def copy(original: Path, tmp_path: Path) -> Path:
    directory = tmp_path / "store"
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(original, directory)
    return directory


@pytest.mark.parametrize("how", ["closed", "abandoned"])
def test_cut_at_every_border_stays_cut_after_reopening(
    how: str, filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = filled
    for number, receipt in enumerate(receipts):
        directory = copy(original, tmp_path)
        store = rmqstore.open(directory)
        store.truncate_to(receipt.physical_offset)
        assert store.end_offset == receipt.physical_offset
        assert len(check_agreement(store)) == number
        if how == "closed":
            store.close()
        else:
            store.abandon()
        with rmqstore.open(directory) as store:
            assert store.recovery.cut_bytes == 0
            assert store.end_offset == receipt.physical_offset
            assert len(check_agreement(store)) == number
            again = store.put("orders", b"again", queue=receipt.queue, keys=["again"])
            assert again.queue_offset == receipt.queue_offset
            assert len(check_agreement(store)) == number + 1


def test_cut_at_a_file_border_leaves_the_blank_and_no_further_file(
    filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = filled
    size = FILES["commit_log_file_size_bytes"]
    for border in range(size, receipts[-1].physical_offset, size):
        directory = copy(original, tmp_path)
        store = rmqstore.open(directory)
        store.truncate_to(border)
        assert store.end_offset == border
        store.abandon()
        with rmqstore.open(directory) as store:
            assert store.end_offset == border
            assert len(check_agreement(store)) == sum(
                each.end_offset <= border for each in receipts
            )
            assert store.put("orders", b"next").physical_offset == border


def test_cut_inside_a_record_is_refused_and_names_the_offset(
    filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = filled
    with rmqstore.open(copy(original, tmp_path)) as store:
        for receipt in receipts[1::7]:
            for inside in (1, receipt.size // 2, receipt.size - 1):
                place = receipt.physical_offset + inside
                with pytest.raises(OffsetOutOfRange, match=str(place)):
                    store.truncate_to(place)
        assert len(check_agreement(store)) == COUNT


def test_cut_below_the_start_is_refused_and_names_the_bounds(
    filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, _ = filled
    with rmqstore.open(copy(original, tmp_path)) as store:
        store.expire_files(1)
        for place in (0, 65535, -1):
            with pytest.raises(OffsetOutOfRange, match=str(store.start_offset)):
                store.truncate_to(place)
        assert store.start_offset == FILES["commit_log_file_size_bytes"]
        check_agreement(store)


def test_cut_at_the_start_leaves_an_empty_log_that_goes_on_there(
    filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, _ = filled
    directory = copy(original, tmp_path)
    store = rmqstore.open(directory)
    store.truncate_to(0)
    assert check_agreement(store) == []
    store.abandon()
    with rmqstore.open(directory, **FILES) as store:
        assert check_agreement(store) == []
        receipt = store.put("orders", b"first")
        assert (receipt.physical_offset, receipt.queue_offset) == (0, 0)


def test_cut_at_the_end_changes_nothing_and_past_the_end_is_refused(
    filled: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, _ = filled
    with rmqstore.open(copy(original, tmp_path)) as store:
        end = store.end_offset
        store.truncate_to(end)
        with pytest.raises(OffsetOutOfRange, match=f"{end + 1}.*ends at {end}"):
            store.truncate_to(end + 1)
        assert store.end_offset == end
        assert len(check_agreement(store)) == COUNT


def test_process_killed_right_after_a_cut_over_several_files_opens_again(tmp_path: Path) -> None:
    """The file made ahead of the writer must not outlive the files before it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    for number in range(5):
        directory = tmp_path / str(number)
        done = subprocess.run(
            [sys.executable, "-c", TRUNCATE_AND_DIE, str(directory)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        with rmqstore.open(directory) as store:
            assert [each.body for each in check_agreement(store)] == [b"first"]


@pytest.mark.parametrize("gap", [0, 1, 2])
def test_issue_10666_truncated_tail_stays_gone_when_new_data_ends_at_an_old_record(
    gap: int, tmp_path: Path
) -> None:
    """Hazard (a) of store.md 21: what follows the new data must not be taken for its sequel."""
    directory = tmp_path / "store"
    store = rmqstore.open(directory, **FILES)
    old = [store.put("orders", b"old %d" % i, keys=["old"]) for i in range(10)]
    store.truncate_to(old[4].physical_offset)
    for i in range(gap):
        new = store.put("orders", b"new %d" % i, keys=["old"])
        assert new.end_offset == old[5 + i].physical_offset
    store.wait_flushed()
    store.abandon()
    with rmqstore.open(directory) as store:
        bodies = [each.body for each in check_agreement(store)]
        assert bodies == [b"old %d" % i for i in range(4)] + [b"new %d" % i for i in range(gap)]


def test_issue_10666_cut_store_reads_zeros_behind_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, **FILES) as store:
        old = [store.put("orders", b"old") for _ in range(10)]
        store.truncate_to(old[4].physical_offset)
    data = (directory / "commitlog" / f"{0:020}").read_bytes()
    assert not any(data[old[4].physical_offset :])


def test_rounds_of_flushing_beside_many_cuts_name_nothing_that_is_gone(tmp_path: Path) -> None:
    """A round that took the end of the log from before a cut must not go on with it afterwards."""
    eager: dict[str, Any] = {
        "flush_commit_log_interval_ms": 1,
        "flush_commit_log_thorough_interval_ms": 1,
        "flush_consume_queue_interval_ms": 1,
        "flush_consume_queue_thorough_interval_ms": 1,
    }

    directory = tmp_path / "store"
    store = rmqstore.open(directory, compatibility="5.5", **FILES, **eager)
    store.put("orders", b"first")

    for _ in range(rounds(200, 5000)):
        receipts = [store.put("orders", bytes(2000)) for _ in range(20)]
        store.truncate_to(receipts[5].physical_offset)
        end = store.end_offset
        assert store._checkpoint()["logics_physical_offset"] < end
        assert store.failure is None
        store.truncate_to(receipts[0].physical_offset)

    store.abandon()
    with rmqstore.open(directory) as store:
        assert [each.body for each in check_agreement(store)] == [b"first"]
