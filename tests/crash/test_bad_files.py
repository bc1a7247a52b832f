"""Files of a store that are damaged, missing, foreign, or of another size."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, StoreError, UnsupportedStoreError
from rmqstore.check import verify
from rmqstore.spark.read.layout import Layout
from tests.support.agreement import FILES, check_agreement

COUNT = 24
CRC: dict[str, Any] = {"append_property_crc": True, "force_verify_property_crc": True}


def body_of(number: int) -> bytes:
    return f"message {number}".encode() * 9


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with two queues, several files of each kind but the index."""
    directory = tmp_path_factory.mktemp("original") / "store"
    sizes = {**FILES, "commit_log_file_size_bytes": 2048, "consume_queue_file_size_bytes": 100}
    with rmqstore.open(directory, message_size_bytes_max=1000, **CRC, **sizes) as store:
        for number in range(COUNT):
            store.put("orders", body_of(number), queue=number % 2, tags="A", keys=[f"k{number}"])
        check_agreement(store)
    return directory


@pytest.fixture
def directory(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "store"))


def files_below(directory: Path, part: str) -> list[Path]:
    return sorted(path for path in (directory / part).rglob("*") if path.is_file())


def check_answers(store: rmqstore.Store) -> int:
    """Every get gives the right record or fails; return how many are right."""
    right = 0
    for number in range(COUNT):
        try:
            record = store.get("orders", queue=number % 2, offset=number // 2)
        except StoreError:
            continue
        assert record.body == body_of(number), number
        assert record.keys == [f"k{number}"]
        right += 1
    return right


def check_found(store: rmqstore.Store) -> None:
    for number in range(COUNT):
        found = [each.body for each in store.find("orders", f"k{number}")]
        assert found in ([], [body_of(number)])


def flips(data: bytes, *, step: int = 1) -> Iterator[tuple[int, bytes]]:
    """Yield *data* with one bit turned, a different one at each place that holds something."""
    rng = random.Random(len(data))
    used = len(data.rstrip(b"\0"))
    for at in range(0, used, step):
        turned = bytearray(data)
        turned[at] ^= 1 << rng.randrange(8)
        yield at, bytes(turned)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("abort", [False, True], ids=["closed", "crashed"])
def test_consume_queue_with_a_turned_bit_never_gives_a_wrong_record(
    abort: bool, read_only: bool, original: Path, tmp_path: Path
) -> None:
    for path in files_below(original, "consumequeue"):
        name = path.relative_to(original)
        for at, turned in flips(path.read_bytes(), step=3):
            directory = Path(shutil.copytree(original, tmp_path / "store"))
            (directory / name).write_bytes(turned)
            if abort:
                (directory / "abort").write_bytes(b"1")
            try:
                with rmqstore.open(directory, read_only=read_only) as store:
                    right = check_answers(store)
                    assert right >= COUNT - 1 or not abort or read_only, (name, at, right)
            except CorruptionError as error:
                assert not abort, (name, at, error)  # noqa: PT017 - either outcome is right
            shutil.rmtree(directory)


def test_index_with_a_turned_bit_never_gives_a_wrong_record(
    original: Path, directory: Path
) -> None:
    for path in files_below(original, "index"):
        copy = directory / path.relative_to(original)
        for _, turned in flips(path.read_bytes(), step=2):
            copy.write_bytes(turned)
            with rmqstore.open(directory, read_only=True) as store:
                check_found(store)


def test_checkpoint_with_a_turned_bit_loses_nothing(original: Path, tmp_path: Path) -> None:
    data = (original / "checkpoint").read_bytes()
    for at in range(48):
        for bit in (0, 6, 7):
            directory = Path(shutil.copytree(original, tmp_path / "store"))
            turned = bytearray(data)
            turned[at] ^= 1 << bit
            (directory / "checkpoint").write_bytes(turned)
            (directory / "abort").write_bytes(b"1")
            try:
                with rmqstore.open(directory, **CRC) as store:
                    assert len(check_agreement(store)) == COUNT, (at, bit)
            except CorruptionError as error:
                assert "commit log" in str(error), (at, bit)  # noqa: PT017 - as above
            shutil.rmtree(directory)


def test_commit_log_with_a_turned_bit_is_noticed(original: Path, directory: Path) -> None:
    """Property CRCs cover every byte of a record but their own name."""
    for path in files_below(original, "commitlog"):
        copy = directory / path.relative_to(original)
        data = path.read_bytes()
        for at, turned in flips(data, step=5):
            copy.write_bytes(turned)
            with rmqstore.open(directory, read_only=True) as store:
                assert check_answers(store) >= COUNT - 1, (path.name, at)
        copy.write_bytes(data)


@pytest.mark.parametrize("part", ["consumequeue", "index", "checkpoint"])
@pytest.mark.parametrize("size", [0, 1, 47, 99])
@pytest.mark.parametrize("abort", [False, True], ids=["closed", "crashed"])
def test_cut_file_beside_the_log_is_refused_by_name_or_built_again(
    abort: bool, size: int, part: str, directory: Path
) -> None:
    paths = files_below(directory, part) or [directory / part]
    for path in paths[-1:]:
        path.write_bytes(path.read_bytes()[:size])
        if abort:
            (directory / "abort").write_bytes(b"1")
        try:
            with rmqstore.open(directory, **FILES_AS_WRITTEN) as store:
                assert check_answers(store) == COUNT, path
                check_found(store)
        except CorruptionError as error:
            assert path.name in str(error)  # noqa: PT017 - either outcome is right
            assert str(size) in str(error)  # noqa: PT017


FILES_AS_WRITTEN: dict[str, Any] = {
    **FILES,
    "commit_log_file_size_bytes": 2048,
    "consume_queue_file_size_bytes": 100,
    "message_size_bytes_max": 1000,
}


def test_zero_length_last_log_file_is_dropped(directory: Path) -> None:
    start = 2048 * len(files_below(directory, "commitlog"))
    (directory / "commitlog" / f"{start:020}").write_bytes(b"")
    with rmqstore.open(directory) as store:
        assert len(check_agreement(store)) == COUNT


@pytest.mark.parametrize("size", [1, 2047, 2049, 4096])
def test_log_file_of_another_size_is_refused_with_both_sizes(size: int, directory: Path) -> None:
    path = files_below(directory, "commitlog")[1]
    path.write_bytes(path.read_bytes().ljust(size, b"\0")[:size])
    with pytest.raises(CorruptionError) as caught:
        rmqstore.open(directory)
    assert f"{path} has {size} bytes, expected 2048" in str(caught.value)


def test_damaged_last_record_of_a_closed_store_is_not_passed_over(directory: Path) -> None:
    with rmqstore.open(directory, read_only=True) as store:
        *_, last = store.scan_log()
        path, start, _ = next(
            each for each in store._files() if each[1] <= last.physical_offset < sum(each[1:])
        )
        at, end = last.physical_offset, store.end_offset
    with Path(path).open("r+b") as file:
        file.seek(at - start + 8)  # the body's CRC
        file.write(b"\xff\xff\xff\xff")
    with rmqstore.open(directory, read_only=True) as store:
        assert store.end_offset == end
        with pytest.raises(CorruptionError, match=str(at)):
            list(store.scan_log())
        with pytest.raises(CorruptionError, match=str(at)):
            store.get(last.topic, queue=last.queue, offset=last.queue_offset)


@pytest.mark.parametrize("kind", ["FIFO", "/dev/zero"])
def test_special_file_in_place_of_the_last_log_file_is_named_by_every_reader(
    kind: str, directory: Path
) -> None:
    path = files_below(directory, "commitlog")[-1]
    path.unlink()
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(kind)
    with pytest.raises(CorruptionError, match=f"{path} is not a regular file"):
        rmqstore.open(directory, read_only=True)
    with pytest.raises((CorruptionError, UnsupportedStoreError), match=str(path)):
        rmqstore.open(directory)
    with pytest.raises(CorruptionError, match="is not a regular file"):
        Layout.of(str(directory))
    assert [each.place for each in verify(directory).damage if "regular" in each.text] == [
        str(path)
    ]


@pytest.mark.parametrize("folder", ["commitlog", "consumequeue/orders/0", "index"])
def test_foreign_file_is_refused_by_name(folder: str, directory: Path) -> None:
    path = directory / folder / "notes.txt"
    path.write_text("keep out")
    with pytest.raises(CorruptionError, match=r"move it away") as caught:
        rmqstore.open(directory)
    assert str(path) in str(caught.value)
    path.unlink()
    with rmqstore.open(directory) as store:
        assert len(check_agreement(store)) == COUNT


def test_missing_middle_log_file_is_named_and_the_rest_still_read(directory: Path) -> None:
    path = files_below(directory, "commitlog")[1]
    path.unlink()
    with pytest.raises(CorruptionError, match=rf"{path.name} is missing before .*bring it back"):
        rmqstore.open(directory)
    with rmqstore.open(directory, read_only=True) as store:
        right = check_answers(store)
    assert 0 < right < COUNT


def test_missing_log_beside_queues_is_refused(directory: Path) -> None:
    shutil.rmtree(directory / "commitlog")
    with pytest.raises(CorruptionError, match="storePathCommitLog"):
        rmqstore.open(directory, **FILES_AS_WRITTEN)


@pytest.mark.parametrize(
    ("cut", "reason"),
    [
        (lambda data: bytes(len(data)), "byte 0 is NUL"),
        (lambda data: b"", "has no end"),
        (lambda data: data[:-3], "has no end"),
        (lambda data: data[: len(data) // 2], "unknown key"),
    ],
    ids=["nuls", "empty", "cut in the last line", "cut in half"],
)
def test_damaged_settings_are_named_with_their_cure(
    cut: Callable[[bytes], bytes], reason: str, directory: Path
) -> None:
    path = directory / "config" / "rmqstore.properties"
    path.write_bytes(cut(path.read_bytes()))
    for read_only in (True, False):
        with pytest.raises(CorruptionError, match=f"{reason}.*or move it away and give") as caught:
            rmqstore.open(directory, read_only=read_only)
        assert caught.value.path == str(path)
        assert "\0" not in str(caught.value)

    path.unlink()
    with rmqstore.open(directory, **CRC) as store:
        assert check_answers(store) == COUNT


@pytest.mark.parametrize(
    ("setting", "size", "word"),
    [
        ("commit_log_file_size_bytes", 4096, "2048"),
        ("consume_queue_file_size_bytes", 200, "100"),
        ("index_slot_count", 65, "10296"),
    ],
)
def test_store_opened_with_other_file_sizes_is_refused_with_both_sizes(
    setting: str, size: int, word: str, directory: Path
) -> None:
    settings = {**FILES_AS_WRITTEN, setting: size}
    expected = "10300" if setting == "index_slot_count" else str(size)
    with pytest.raises(CorruptionError) as caught:
        rmqstore.open(directory, **settings)
    assert word in str(caught.value)
    assert expected in str(caught.value)
    with rmqstore.open(directory) as store:
        assert len(check_agreement(store)) == COUNT
