"""A run of mapped files: names, rolling, cutting, expiring, and what loading refuses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.c.store_calls import Failed

SIZE = PAGE = 4096


class Files:
    """One struct rmq_file_queue."""

    def __init__(
        self,
        core: Any,
        directories: list[Path],
        *,
        size: int = SIZE,
        read_only: bool = False,
        gaps: bool = False,
    ) -> None:
        self.ffi, self.lib = core
        self.error = self.ffi.new("struct rmq_error *")
        self.kept = [self.ffi.new("char[]", bytes(path)) for path in directories]
        self.names = self.ffi.new("char *[]", self.kept)
        options = self.ffi.new("struct rmq_file_queue_options *")
        options.vfs = self.lib.rmq_vfs_posix()
        options.directories, options.directory_count = self.names, len(directories)
        options.file_size, options.window = size, size
        options.read_only, options.allow_gaps = read_only, gaps
        options.keep_descriptor = True
        self.queue = self.ffi.new("struct rmq_file_queue *")
        self.check(self.lib.rmq_file_queue_open(self.queue, options, self.error))

    def check(self, status: int) -> None:
        if status != self.lib.RMQ_OK:
            detail = bytes(self.ffi.string(self.error.detail)).decode()
            raise Failed(status, detail, self.error.os_errno)

    def append(self, data: bytes) -> None:
        """Append bytes as a replica does: across files, rolling where one is full."""
        while data:
            last = self.queue.last
            if last == self.ffi.NULL or last.wrote == last.size:
                self.check(self.lib.rmq_file_queue_roll(self.queue, 0, self.ffi.NULL, self.error))
                last = self.queue.last
            part = data[: last.size - last.wrote]
            self.ffi.memmove(last.base + last.wrote, part, len(part))
            wrote = last.wrote + len(part)
            last.wrote = wrote
            self.queue.end_offset = last.start + wrote
            data = data[len(part) :]

    def truncate(self, offset: int) -> None:
        self.check(self.lib.rmq_file_queue_truncate(self.queue, offset, self.error))

    def flush(self) -> None:
        self.check(self.lib.rmq_file_queue_flush(self.queue, self.error))

    def delete_head(self, count: int) -> None:
        self.check(self.lib.rmq_file_queue_delete_head(self.queue, count, self.error))

    def pin(self, offset: int) -> Any:
        out = self.ffi.new("struct rmq_mapped_file **")
        self.check(self.lib.rmq_file_queue_pin(self.queue, offset, out, self.error))
        return out[0]

    @property
    def bounds(self) -> tuple[int, int, int]:
        queue = self.queue
        return int(queue.start_offset), int(queue.flushed_offset), int(queue.end_offset)

    def close(self) -> None:
        self.lib.rmq_file_queue_close(self.queue)


@pytest.fixture
def files(core: Any, tmp_path: Path) -> Iterator[Files]:
    made = Files(core, [tmp_path])
    yield made
    made.close()


def name(start: int) -> str:
    return f"{start:020}"


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_empty_queue_has_no_start_and_ends_at_zero(files: Files, tmp_path: Path) -> None:
    assert files.bounds == (-1, 0, 0)
    assert names(tmp_path) == []


def test_files_are_named_after_their_first_byte(files: Files, tmp_path: Path) -> None:
    files.append(b"x" * (2 * SIZE + 1))
    assert names(tmp_path) == [name(0), name(SIZE), name(2 * SIZE)]
    files.flush()
    assert files.bounds == (0, 2 * SIZE + 1, 2 * SIZE + 1)


@pytest.mark.parametrize("offset", [0, 1, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE, 3 * SIZE - 1])
def test_cut_leaves_zeros_behind_the_offset_and_no_later_file(
    offset: int, files: Files, tmp_path: Path
) -> None:
    files.append(b"x" * (3 * SIZE))
    files.flush()
    files.truncate(offset)
    left = b"".join((tmp_path / each).read_bytes() for each in names(tmp_path))
    assert left.rstrip(b"\0") == b"x" * offset
    assert len(left) == -(-offset // SIZE) * SIZE
    assert files.bounds == ((0, offset, offset) if offset else (-1, 0, 0))
    files.append(b"y" * SIZE)
    files.flush()
    left = b"".join((tmp_path / each).read_bytes() for each in names(tmp_path))
    assert left.rstrip(b"\0") == b"x" * offset + b"y" * SIZE


@pytest.fixture
def pages(core: Any, tmp_path: Path) -> Iterator[Files]:
    """Files of eight pages, and nothing in them."""
    made = Files(core, [tmp_path], size=8 * PAGE)
    yield made
    made.close()


def test_reserving_by_writing_leaves_zeros_in_written_blocks_and_stored_bytes_alone(
    pages: Files, tmp_path: Path
) -> None:
    pages.append(b"x" * 100)
    last = pages.queue.last
    last.reserved = 100
    for upto, goal in [(200, 1), (PAGE, 1), (PAGE + 1, 2), (2 * PAGE + 1, 3), (8 * PAGE, 8)]:
        pages.check(pages.lib.rmq_mapped_file_reserve_written(last, upto, 100, 64, pages.error))
        assert last.reserved == goal * PAGE
    pages.flush()
    made = tmp_path / f"{0:020}"
    assert made.read_bytes() == b"x" * 100 + bytes(8 * PAGE - 100)
    assert made.stat().st_blocks * 512 >= 8 * PAGE


def test_cut_behind_the_end_changes_nothing(files: Files) -> None:
    files.append(b"x" * (SIZE + 10))
    files.truncate(SIZE + 10)
    files.truncate(10 * SIZE)
    assert files.bounds[2] == SIZE + 10


def test_cut_at_the_start_keeps_the_place_and_below_it_nothing(
    files: Files, tmp_path: Path
) -> None:
    files.append(b"x" * (3 * SIZE))
    files.flush()
    files.delete_head(2)
    files.truncate(2 * SIZE)
    assert names(tmp_path) == [name(2 * SIZE)]
    assert files.bounds == (2 * SIZE, 2 * SIZE, 2 * SIZE)
    files.append(b"y")
    assert files.bounds[2] == 2 * SIZE + 1
    files.truncate(2 * SIZE - 1)
    assert names(tmp_path) == []
    assert files.bounds == (-1, 0, 0)


def test_deleting_from_the_head_keeps_the_last_file_and_pinned_bytes(
    files: Files, tmp_path: Path
) -> None:
    files.append(b"a" * SIZE + b"b" * SIZE + b"c" * 10)
    pinned = files.pin(5)
    files.delete_head(99)
    assert names(tmp_path) == [name(2 * SIZE)]
    assert files.bounds[0] == 2 * SIZE
    assert bytes(files.ffi.buffer(pinned.base, SIZE)) == b"a" * SIZE
    files.lib.rmq_mapped_file_unpin(pinned)
    with pytest.raises(Failed, match="no file holds offset 5"):
        files.pin(5)


def test_pin_outlives_the_queue(core: Any, tmp_path: Path) -> None:
    files = Files(core, [tmp_path])
    files.append(b"a" * 100)
    pinned = files.pin(0)
    files.close()
    assert bytes(files.ffi.buffer(pinned.base, 100)) == b"a" * 100
    files.lib.rmq_mapped_file_unpin(pinned)


def test_files_go_round_the_folders_and_are_found_again(core: Any, tmp_path: Path) -> None:
    directories = [tmp_path / "a", tmp_path / "b"]
    files = Files(core, directories)
    files.append(b"x" * (4 * SIZE))
    files.close()
    assert names(tmp_path / "a") == [name(0), name(2 * SIZE)]
    assert names(tmp_path / "b") == [name(SIZE), name(3 * SIZE)]
    files = Files(core, directories)
    assert files.bounds == (0, 4 * SIZE, 4 * SIZE)
    files.close()


@pytest.mark.parametrize("verb", ["truncate", "roll"])
def test_zero_length_last_files_stay_until_the_writer_changes_something(
    core: Any, tmp_path: Path, verb: str
) -> None:
    (tmp_path / name(0)).write_bytes(bytes(SIZE))
    (tmp_path / name(SIZE)).write_bytes(b"")
    (tmp_path / name(2 * SIZE)).write_bytes(b"")
    files = Files(core, [tmp_path])
    assert files.bounds == (0, SIZE, SIZE)
    files.close()
    assert names(tmp_path) == [name(0), name(SIZE), name(2 * SIZE)]
    files = Files(core, [tmp_path])
    if verb == "truncate":
        files.truncate(SIZE)
    else:
        files.append(b"x")
    assert names(tmp_path) == [name(0)] + [name(SIZE)] * (verb == "roll")
    assert all(file.stat().st_size == SIZE for file in tmp_path.iterdir())
    files.close()


def test_zero_length_last_file_is_left_alone_by_a_reader(core: Any, tmp_path: Path) -> None:
    (tmp_path / name(0)).write_bytes(bytes(SIZE))
    (tmp_path / name(SIZE)).write_bytes(b"")
    files = Files(core, [tmp_path], read_only=True)
    assert files.bounds == (0, SIZE, SIZE)
    files.close()
    assert names(tmp_path) == [name(0), name(SIZE)]


@pytest.mark.parametrize(
    ("contents", "complaint"),
    [
        ({name(0): 0, name(SIZE): SIZE}, "is empty, and files follow it"),
        ({name(0): SIZE, name(SIZE): SIZE - 1}, f"has {SIZE - 1} bytes, expected {SIZE}"),
        ({name(0): SIZE, name(SIZE): 2 * SIZE}, f"has {2 * SIZE} bytes, expected {SIZE}"),
        ({name(0): SIZE, name(2 * SIZE): SIZE}, f"{name(SIZE)} is missing before"),
        ({name(0): SIZE, name(SIZE + 1): SIZE}, "not a multiple of the file size"),
        ({name(0): SIZE, "notes.txt": 3}, "notes.txt is not a file of a store; move it away"),
        ({name(0): SIZE, "9" * 30: SIZE}, "is not a file of a store"),
        ({name(0): SIZE, "0": SIZE}, "hold the same offsets"),
    ],
)
def test_loading_refuses_what_was_not_written_and_names_it(
    contents: dict[str, int], complaint: str, core: Any, tmp_path: Path
) -> None:
    for each, size in contents.items():
        (tmp_path / each).write_bytes(bytes(size))
    with pytest.raises(Failed, match=complaint) as caught:
        Files(core, [tmp_path])
    assert caught.value.status == core[1].RMQ_CORRUPT
    assert str(tmp_path) in caught.value.detail
    assert names(tmp_path) == sorted(contents)


def test_reader_that_allows_gaps_opens_over_a_missing_file(core: Any, tmp_path: Path) -> None:
    for start in (0, 2 * SIZE):
        (tmp_path / name(start)).write_bytes(bytes((start % 251,)) * SIZE)
    files = Files(core, [tmp_path], read_only=True, gaps=True)
    assert files.bounds[0] == 0
    with pytest.raises(Failed, match="no file holds"):
        files.pin(SIZE)
    files.lib.rmq_mapped_file_unpin(files.pin(2 * SIZE))
    files.close()


def test_reader_sees_files_come_and_go(core: Any, files: Files, tmp_path: Path) -> None:
    files.append(b"x" * SIZE)
    reader = Files(core, [tmp_path], read_only=True)
    files.append(b"y" * SIZE)
    files.delete_head(1)
    reader.check(reader.lib.rmq_file_queue_refresh(reader.queue, reader.error))
    assert reader.bounds[0] == SIZE
    pinned = reader.pin(SIZE)
    assert bytes(reader.ffi.buffer(pinned.base, 3)) == b"yyy"
    reader.lib.rmq_mapped_file_unpin(pinned)
    reader.close()


@pytest.mark.parametrize(
    ("text", "start"),
    [
        (b"00000000000000004096", 4096),
        (b"0", 0),
        (b"9223372036854775807", 2**63 - 1),
        (b"9223372036854775808", None),
        (b"", None),
        (b"-1", None),
        (b"12a", None),
        (b" 1", None),
    ],
)
def test_file_names_are_decimal_digits_that_fit(text: bytes, start: int | None, core: Any) -> None:
    ffi, lib = core
    out = ffi.new("int64_t *")
    assert lib.rmq_file_name_parse(ffi.new("char[]", text), out) == (start is not None)
    if start is not None:
        assert out[0] == start
