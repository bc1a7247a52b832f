"""Folders of small files: one on the disk, one of the simulator's machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqstore.errors import DiskError
from rmqstore.sim.disk import ModelLog
from rmqstore.sim.machine_folder import MachineFolder
from rmqstore.store.folder import DiskFolder, Folder
from rmqstore.store.metadata import TopicConfig, TopicTable


def _machine_folder() -> MachineFolder:
    return MachineFolder({}, ModelLog(file_size=4096), lambda change: change())


@pytest.fixture(params=("disk", "machine"))
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return DiskFolder(tmp_path) if request.param == "disk" else _machine_folder()


def test_files_are_replaced_renamed_and_removed(folder: Folder) -> None:
    assert not folder.has("config/a")
    with pytest.raises(FileNotFoundError):
        folder.read("config/a")
    folder.replace("config/a", b"1")
    folder.replace("config/a", b"2")
    assert folder.read("config/a") == b"2"
    folder.rename("config/a", "config/b")
    assert (folder.has("config/a"), folder.read("config/b")) == (False, b"2")
    folder.remove("config/b")
    folder.remove("config/b")
    assert not folder.has("config/b")


def test_a_damaged_table_gives_way_to_its_predecessor_and_is_kept_aside(folder: Folder) -> None:
    first, second = TopicTable({"a": TopicConfig("a")}), TopicTable({"b": TopicConfig("b")})
    first.save(folder)
    second.save(folder)
    assert TopicTable.load(folder) == second
    folder.replace("config/topics.json", b"{")
    assert TopicTable.load(folder) == first
    second.save(folder)
    assert TopicTable.load(folder) == second
    assert folder.read("config/topics.json.damaged") == b"{"


def test_a_full_disk_of_a_machine_refuses_and_changes_nothing() -> None:
    log, files = ModelLog(file_size=4096), dict[str, bytes]()

    def change(work: object) -> None:
        raise DiskError(28, "No space left on device")

    folder = MachineFolder(files, log, change)
    with pytest.raises(DiskError):
        TopicTable().save(folder)
    assert files == {}
