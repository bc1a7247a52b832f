"""The journals of topics and groups: what is in them counts, whatever happens to the file."""

from __future__ import annotations

import errno
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rmqstore.broker.metadata.changes import ChangeLog
from rmqstore.broker.metadata.large_file import LargeTableFile
from rmqstore.broker.metadata.shared_groups import SharedGroups
from rmqstore.broker.metadata.shared_table import LargeTable, Versions
from rmqstore.broker.metadata.shared_topics import SharedTopics
from rmqstore.data_version import DataVersion
from rmqstore.errors import CorruptionError, DiskError
from rmqstore.store.metadata import GroupConfig, GroupTable, TopicConfig, TopicTable
from rmqstore.store.metadata.journal import (
    Change,
    change_line,
    changes_after,
    file_line,
    name_of,
)
from tests.support.virtual import VirtualProcess

VERSION = DataVersion(counter=3, state_version=1, timestamp_ms=70)


def change(name: str, value: object = None) -> Change:
    return Change([("topic", name, value)], VERSION)


def line(value: dict[str, Any]) -> bytes:
    """A line of a journal, as its docstring has it."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return f"{zlib.crc32(text):08x} ".encode() + text + b"\n"


# -- the format


def test_lines_have_a_checksum_and_name_files_by_their_content() -> None:
    assert file_line(name_of(b"{}")) == line({"file": [2, zlib.crc32(b"{}")]})
    assert file_line((5, 7), has=2) == line({"file": [5, 7], "has": 2})
    version = {"counter": 3, "stateVersion": 1, "timestamp": 70}
    entries = [["topic", "a", {"perm": 6}], ["topic", "b", None]]
    found = change_line(Change([("topic", "a", {"perm": 6}), ("topic", "b", None)], VERSION))
    assert found == line({"entries": entries, "version": version})


def test_changes_of_a_journal_that_is_cut_are_those_before_the_cut() -> None:
    head, lines = file_line((5, 7)), [change_line(change(name)) for name in "abc"]
    whole = head + b"".join(lines)
    for end in range(len(whole) + 1):
        # A line counts with its last byte, be its newline missing or not.
        ends = [len(head) + sum(map(len, lines[:count])) - 1 for count in range(1, 4)]
        held = sum(end >= each for each in ends) if end >= len(head) - 1 else 0
        assert changes_after((5, 7), whole[:end]) == [change(name) for name in "abc"[:held]]


def test_a_file_that_is_named_later_lacks_the_later_changes() -> None:
    journal = file_line((5, 7)) + b"".join(change_line(change(name)) for name in "ab")
    journal += file_line((6, 8), has=1) + change_line(change("c"))
    assert changes_after((5, 7), journal) == [change(name) for name in "abc"]
    assert changes_after((6, 8), journal) == [change(name) for name in "bc"]
    assert changes_after((9, 9), journal) == []


def test_a_line_that_is_damaged_before_others_is_an_error() -> None:
    journal = bytearray(file_line((5, 7)) + change_line(change("a")) + change_line(change("b")))
    journal[len(file_line((5, 7))) + 20] ^= 1
    with pytest.raises(ValueError, match="line 2 is damaged"):
        changes_after((5, 7), bytes(journal))


# -- on a disk


class Disk:
    """Files, and what a loss of power leaves: the states before, within and after each change."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.is_full = self.refuses_appends = False
        self.states: list[tuple[dict[str, bytes], frozenset[str]]] = []
        self.kept: set[str] = set()
        """What each state that follows must have."""

    def note(self, **files: bytes) -> None:
        self.states.append(({**self.files, **files}, frozenset(self.kept)))

    def place(self, name: str) -> str:
        return name

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def replace(self, name: str, data: bytes) -> None:
        self._refuse()
        self.note()
        self.files[name] = data
        self.note()

    def append(self, name: str, data: bytes) -> None:
        for size in range(0, len(data), 7):
            self.note(**{name: self.files[name] + data[:size]})
        if self.is_full or self.refuses_appends:
            self.files[name] += data[: len(data) // 2]
            raise OSError(errno.ENOSPC, "no room")
        self.files[name] += data
        self.note()

    def rename(self, name: str, to: str) -> None:
        self.files[to] = self.files.pop(name)

    def remove(self, name: str) -> None:
        # A removal is not synced: the file may come back.
        self.note()
        self.files.pop(name, None)
        self.note()

    def has(self, name: str) -> bool:
        return name in self.files

    def _refuse(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "no room")


@pytest.fixture
def disk() -> Disk:
    return Disk()


def opened(disk: Disk, table: LargeTable, process: VirtualProcess) -> LargeTableFile:
    table.attach(ChangeLog(frozenset()), Versions(lambda: 77))
    made: list[LargeTableFile] = []
    process.loop.run(lambda: made.append(LargeTableFile(disk, table, process.runtime)))
    made[0].load()
    return made[0]


class Owner:
    """A process with topics on a disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.topics = SharedTopics()
        self.process = VirtualProcess()
        self.file = opened(disk, self.topics, self.process)

    def set(self, name: str, queues: int = 4) -> None:
        self.topics.set(TopicConfig(name, queues, queues))
        self.process.run(self.file.save())

    def write_behind(self) -> None:
        self.process.run(self.file.write_behind())


def test_every_topic_that_was_saved_is_there_after_any_loss_of_power(disk: Disk) -> None:
    owner = Owner(disk)

    async def keep(name: str) -> None:
        owner.topics.set(TopicConfig(name))
        await owner.file.save()
        disk.kept.add(name)

    async def story() -> None:
        tasks = owner.process.runtime.tasks("changes")
        for number in range(12):
            await keep(f"topic-{number}")
            if number % 3 == 2:
                tasks.start(owner.file.write_behind(), name="file")
                await owner.process.runtime.sleep(0.001 * (number // 3))
        await tasks.join()

    owner.process.run(story())
    assert len(disk.states) > 200
    for files, kept in disk.states:
        after = Disk()
        after.files = files
        assert kept <= TopicTable.load(after).topics.keys()
    after = Disk()
    after.files = dict(disk.files)
    found = TopicTable.load(after)
    assert found == owner.topics.whole()


def test_a_change_of_a_large_table_writes_little(disk: Disk) -> None:
    owner = Owner(disk)
    for number in range(500):
        owner.topics.set(TopicConfig(f"topic-{number}"))
    owner.process.run(owner.file.save())
    size = len(disk.files["config/topics.json"])

    owner.set("one")
    owner.set("two")
    assert len(disk.files["config/topics.json"]) == size
    assert len(disk.files["config/topics.journal"]) < 1000
    owner.write_behind()
    assert len(disk.files["config/topics.json"]) > size
    assert "config/topics.journal" not in disk.files


def test_a_removed_topic_stays_removed_and_the_version_goes_on(disk: Disk) -> None:
    owner = Owner(disk)
    owner.set("a")
    owner.set("b")
    owner.topics.remove("a")
    owner.process.run(owner.file.save())
    found = TopicTable.load(disk)
    assert found.topics.keys() == {"b"}
    assert found.data_version == owner.topics.version


def test_groups_and_forbidden_topics_are_kept(disk: Disk) -> None:
    process, groups = VirtualProcess(), SharedGroups()
    file = opened(disk, groups, process)
    groups.set(GroupConfig("g", retries_max=3))
    process.run(file.save())
    groups.set(GroupConfig("h"))
    groups.forbid("g", "T", 4)
    groups.forbid("h", "T", 4)
    process.run(file.save())
    groups.forbid("h", "T", 0)
    groups.remove("h")
    process.run(file.save())
    found = GroupTable.load(disk)
    assert found == groups.whole()
    assert (found.groups["g"].retries_max, found.forbidden) == (3, {"g": {"T": 4}})


@pytest.mark.parametrize("is_journal_left", [True, False])
def test_a_file_that_another_wrote_counts_without_the_journal(
    disk: Disk, is_journal_left: bool
) -> None:
    owner = Owner(disk)
    owner.set("a")
    owner.set("b")
    other = Disk()
    other.files = disk.files if is_journal_left else {}
    TopicTable({"c": TopicConfig("c")}).save(other)
    assert TopicTable.load(other).topics.keys() == {"c"}

    owner = Owner(other)
    owner.set("d")
    assert TopicTable.load(other).topics.keys() == {"c", "d"}


def test_a_full_disk_refuses_a_change_that_the_next_save_keeps(disk: Disk) -> None:
    owner = Owner(disk)
    for name in "ab":
        owner.set(name)
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(DiskError, match="no room"):
            owner.set("c")
    assert owner.file.has_failed
    disk.is_full = False
    owner.set("d")
    assert TopicTable.load(disk).topics.keys() == set("abcd")
    assert not owner.file.has_failed


def test_a_full_disk_keeps_the_journal_whose_changes_the_file_lacks(disk: Disk) -> None:
    owner = Owner(disk)
    for name in "ab":
        owner.set(name)
    disk.is_full = True
    with pytest.raises(DiskError, match="no room"):
        owner.write_behind()
    assert TopicTable.load(disk).topics.keys() == set("ab")
    disk.is_full = False
    owner.write_behind()
    assert TopicTable.load(disk).topics.keys() == set("ab")
    assert b'"b"' in disk.files["config/topics.json"]


def test_a_change_that_fails_while_the_file_is_written_is_kept_by_the_next_save(
    disk: Disk,
) -> None:
    owner = Owner(disk)
    for name in "ab":
        owner.set(name)

    async def story() -> None:
        tasks = owner.process.runtime.tasks("file")
        tasks.start(owner.file.write_behind(), name="file")
        while b'"has"' not in disk.files["config/topics.journal"]:
            await owner.process.runtime.sleep(0.0001)
        disk.refuses_appends = True
        owner.topics.set(TopicConfig("c"))
        with pytest.raises(DiskError, match="no room"):
            await owner.file.save()
        await tasks.join()
        await owner.file.save()

    owner.process.run(story())
    assert TopicTable.load(disk).topics.keys() == set("abc")


def test_a_journal_that_a_killed_process_left_is_taken_into_the_file(disk: Disk) -> None:
    owner = Owner(disk)
    for name in "ab":
        owner.set(name)
    disk.files["config/topics.journal"] += b"0123 torn"
    owner = Owner(disk)
    owner.write_behind()
    assert b'"b"' in disk.files["config/topics.json"]
    owner.set("c")
    assert TopicTable.load(disk).topics.keys() == set("abc")


def _flip(journal: bytes) -> bytes:
    at = journal.index(b"\n") + 30
    return journal[:at] + bytes([journal[at] ^ 1]) + journal[at + 1 :]


@pytest.mark.parametrize(
    "damage",
    [
        _flip,
        lambda journal: journal + line({"entries": 5, "version": {}}),
        lambda journal: journal + line({"entries": [["topic", "x", {"perm": "x"}]], "version": {}}),
        lambda journal: journal + line({"neither": 1}),
    ],
)
def test_a_damaged_journal_is_named(disk: Disk, damage: Callable[[bytes], bytes]) -> None:
    owner = Owner(disk)
    for name in "abc":
        owner.set(name)
    journal = disk.files["config/topics.journal"]
    disk.files["config/topics.journal"] = damage(journal)
    with pytest.raises(CorruptionError, match=r"topics\.journal.*move it away to go on"):
        TopicTable.load(disk)
