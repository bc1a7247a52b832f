"""The recording twin of the file system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.c.test_vfs import CREATE, WRITE, Door
from tests.support.disk_model import Effect, Kind, Recorder


class RecordingDoor(Door):
    """A door whose effects are read back; paths are relative to its folder."""

    def __init__(self, core: Any, root: Path) -> None:
        self.recorder = Recorder(core, root)
        super().__init__(core, self.recorder.vfs)

    def taken(self) -> list[Effect]:
        """Return the effects, mapped stores up to now among them, without the marks."""
        self.recorder.mark()
        return [each for each in self.recorder.effects() if each.kind is not Kind.MARK]


@pytest.fixture
def door(core: Any, tmp_path: Path) -> Iterator[RecordingDoor]:
    made = RecordingDoor(core, tmp_path)
    yield made
    made.recorder.free()


def test_effects_are_kept_in_their_order(door: RecordingDoor, tmp_path: Path) -> None:
    door.check("make_directory", tmp_path / "d" / "e")
    door.check("make_unsynced_directory", tmp_path / "d" / "u")
    fd = door.open(tmp_path / "d" / "f")
    door.check("resize", fd, 1000)
    door.check("write", fd, b"abc", 3, 7)
    door.check("zero", fd, 8, 100)
    door.check("sync", fd)
    door.check("close", fd)
    door.check("rename", tmp_path / "d" / "f", tmp_path / "d" / "g")
    door.check("sync_directory", tmp_path / "d")
    door.check("unlink", tmp_path / "d" / "g")
    door.check("remove_directory", tmp_path / "d" / "e")

    assert door.taken() == [
        Effect(Kind.MAKE_DIRECTORY, path="d/e"),
        Effect(Kind.MAKE_UNSYNCED_DIRECTORY, path="d/u"),
        Effect(Kind.CREATE, 0, path="d/f"),
        Effect(Kind.RESIZE, 0, size=1000),
        Effect(Kind.STORE, 0, at=7, size=3, data=b"abc"),
        Effect(Kind.ZERO, 0, at=8, size=100),
        Effect(Kind.SYNC, 0, size=1000),
        Effect(Kind.RENAME, path="d/f", other_path="d/g"),
        Effect(Kind.SYNC_DIRECTORY, path="d"),
        Effect(Kind.UNLINK, path="d/g"),
        Effect(Kind.REMOVE_DIRECTORY, path="d/e"),
    ]


def test_calls_that_failed_leave_no_effect(door: RecordingDoor, tmp_path: Path) -> None:
    fd = door.ffi.new("int *")
    assert door.call("open", tmp_path / "missing", WRITE, fd) == door.lib.RMQ_NOT_FOUND
    assert door.call("unlink", tmp_path / "missing") == door.lib.RMQ_NOT_FOUND
    assert door.taken() == []


def test_mapped_stores_come_before_the_effect_that_follows_them(
    door: RecordingDoor, tmp_path: Path
) -> None:
    fd = door.open(tmp_path / "f")
    door.check("resize", fd, 8192)
    base = door.map(fd, 8192, writable=True)
    base[5] = 1
    base[8] = 2
    door.check("sync_map", base + 4096, 1)
    base[511] = base[512] = 3
    door.check("unmap", base, 8192)
    door.check("close", fd)
    assert door.taken()[2:] == [
        Effect(Kind.STORE, 0, at=5, size=4, data=b"\1\0\0\2"),
        Effect(Kind.SYNC, 0, at=4096, size=4096),
        Effect(Kind.STORE, 0, at=511, size=1, data=b"\3"),
        Effect(Kind.STORE, 0, at=512, size=1, data=b"\3"),
    ]


def test_what_the_door_itself_does_to_a_mapped_file_is_recorded_once(
    door: RecordingDoor, tmp_path: Path
) -> None:
    fd = door.open(tmp_path / "f")
    door.check("resize", fd, 4096)
    base = door.map(fd, 4096, writable=True)
    door.check("write", fd, b"abc", 3, 0)
    door.check("zero", fd, 1, 100)
    assert bytes(door.ffi.buffer(base, 3)) == b"a\0\0"
    door.check("unmap", base, 4096)
    door.check("close", fd)
    assert [each.kind for each in door.taken()[2:]] == [Kind.STORE, Kind.ZERO]


def test_stores_to_an_unlinked_file_and_to_the_next_of_its_name_are_told_apart(
    door: RecordingDoor, tmp_path: Path
) -> None:
    first = door.open(tmp_path / "f")
    door.check("write", first, b"a", 1, 0)
    door.check("unlink", tmp_path / "f")
    second = door.open(tmp_path / "f")
    door.check("write", second, b"b", 1, 0)
    door.check("write", first, b"c", 1, 0)
    door.check("close", first)
    door.check("close", second)
    again = door.open(tmp_path / "f", WRITE | CREATE)
    door.check("close", again)
    effects = [each for each in door.taken() if each.kind in (Kind.STORE, Kind.OPEN)]
    stored = [(each.file, each.data) for each in effects]
    assert stored == [(0, b"a"), (1, b"b"), (0, b"c"), (1, b"")]
