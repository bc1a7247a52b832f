"""What a store directory holds, found out from its files alone: sizes, release, and what is left
alone.

RocketMQ does not write its settings down. The sizes of commit log and queue files are the files'
own; the slots of an index file follow from its size and its entries. Nothing here opens a store or
changes a file.
"""

from __future__ import annotations

import os
import sys
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rmqstore.errors import NotFoundError, UnsupportedStoreError, disk_errors
from rmqstore.index_layout import INDEX_ENTRY, INDEX_HEADER, INDEX_SLOT, entry_at, slot_at
from rmqstore.regular_file import open_regular

__all__ = ["EPOCH_FILE", "EPOCH_STATE_FILE", "PROMISE_FILE", "Directory"]

EPOCH_FILE = "epochFileCheckpoint"
EPOCH_STATE_FILE = "epochState"
"""The epoch list of a replica, under the root; its copy has the suffix .bak."""
PROMISE_FILE = "promisedOffset"
"""Up to where a replica's log was promised, under the root."""

_DLEDGER_DOC = '(docs/operations.md, "From DLedger")'
_ROCKSDB_QUEUES = "consume queues in RocksDB"

_DEFAULT_SLOTS, _DEFAULT_ENTRIES = 5_000_000, 20_000_000
_SAMPLE = 64
_INDEX_READ_BYTES = 64 << 20
# What a store writes under its root, up to the first dot of the name.
_WRITTEN = frozenset(
    (
        "abort",
        "batchconsumequeue",
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "consumequeue_ext",
        "cut",
        "index",
        "lock",
        "queueEnds",
        "removedQueues",
        EPOCH_FILE,
    )
)


@dataclass(frozen=True, slots=True)
class Directory:
    """The facts about a store's directory.

    A size of None: no file shows it.
    """

    path: Path
    commit_log_file_size: int | None = None
    consume_queue_file_size: int | None = None
    batch_consume_queue_file_size: int | None = None
    ext_file_size: int | None = None
    index_slot_count: int | None = None
    index_entry_count: int | None = None
    has_index: bool = False
    was_closed: bool = True
    release: str | None = None
    """"5.5" when that release has written here, "5.3" for a store without such traces, None for no
    store."""

    has_epochs: bool = False
    """Whether the store is a replica: it has an epoch list."""

    dledger_folder: str = ""
    """The folder of a DLedger log, under the root; "" without one."""

    left_alone: tuple[str, ...] = field(default=())
    """Parts of the store that are recognised and not read, in words."""

    @property
    def is_store(self) -> bool:
        """Whether there is a commit log."""
        return self.commit_log_file_size is not None

    @classmethod
    @disk_errors("looking at the store's files")
    def inspect(
        cls, path: str | os.PathLike[str], *, commit_log_paths: tuple[str, ...] = ()
    ) -> Directory:
        """Return the facts about *path*; all empty when it does not exist.

        A directory that is itself a `commitlog` is taken as the log of the store around it.
        """
        root = Path(path)
        logs = [Path(each) for each in commit_log_paths] or [root / "commitlog"]
        index = _index_counts(root / "index")
        log_size = next((size for log in logs for size in _sizes(log)), None)

        return cls(
            path=root,
            commit_log_file_size=log_size,
            consume_queue_file_size=_queue_size(root / "consumequeue"),
            batch_consume_queue_file_size=_queue_size(root / "batchconsumequeue"),
            ext_file_size=_queue_size(root / "consumequeue_ext"),
            index_slot_count=index[0] if index else None,
            index_entry_count=index[1] if index else None,
            has_index=next(_sizes(root / "index"), None) is not None,
            was_closed=not (root / "abort").exists(),
            release=None if log_size is None else _release(root),
            has_epochs=any((root / f"{EPOCH_FILE}{suffix}").exists() for suffix in ("", ".bak")),
            dledger_folder=_dledger_folder(root),
            left_alone=tuple(_left_alone(root)),
        )

    @property
    def has_file_queues(self) -> bool:
        """Whether the queues are in files, not in RocksDB."""
        return not any(part.startswith(_ROCKSDB_QUEUES) for part in self.left_alone)

    @disk_errors("looking at the store's files")
    def require_store(self) -> None:
        """Raise NotFoundError unless there is a commit log here, UnsupportedStoreError for what
        cannot be read."""
        if self.is_store:
            return
        if (self.path / "00000000000000000000").exists() or self.path.name == "commitlog":
            raise NotFoundError(f"{self.path} is only a commit log; open the folder it is in")
        if not self.path.exists():
            raise NotFoundError(
                f"{self.path} does not exist; give the folder that holds commitlog/"
            )
        if self.dledger_folder:
            raise UnsupportedStoreError(self._of_dledger())
        raise NotFoundError(
            f"{self.path} is not a store: it has no files under commitlog/; for a log elsewhere "
            "give the broker's file with its storePathCommitLog (config=, or --config FILE)"
        )

    def require_inside(self, log_paths: Iterable[str], *, named: Iterable[str]) -> None:
        """Raise UnsupportedStoreError when writing to the store would lead out of its directory.

        *log_paths* are the configured places of the commit log, *named* those that the caller
        named. The directory itself may be a link.
        """
        root = os.path.realpath(self.path)
        allowed = {os.path.realpath(each) for each in named}
        for each in log_paths:
            if os.path.realpath(each) not in allowed and not _is_inside(each, root):
                raise UnsupportedStoreError(
                    f"{self.path / 'config'} names {each} as a place of the commit log, out of the "
                    "store: a store writes below its own directory; name that place in this call "
                    "(commit_log_paths, storePathCommitLog), or open it read-only"
                )

        for link in _links(self.path):
            if os.path.realpath(link) not in allowed and not _is_inside(link, root):
                raise UnsupportedStoreError(
                    f"{link} is a link out of the store, to {os.path.realpath(link)}: a store "
                    "writes below its own directory; move the files there, name another place of "
                    "the commit log in this call (commit_log_paths), or open it read-only"
                )

    def require_epochs_at(self, path: str) -> None:
        """Raise UnsupportedStoreError when *path* (storePathEpochFile) is not that of the epoch
        list of this store: the list there would be neither read nor continued."""
        own = self.path / EPOCH_FILE
        if os.path.realpath(path) != os.path.realpath(own):
            raise UnsupportedStoreError(
                f"storePathEpochFile is {path}, but only {own} is read and continued; move the "
                "file there, with its .bak, and leave storePathEpochFile out"
            )

    def require_writable_parts(
        self, store_type: str = "default", *, is_dledger_enabled: bool = False
    ) -> None:
        """Raise UnsupportedStoreError where a writer could not keep every part up to date.

        The reasons are queues in RocksDB, a log of DLedger, and settings that request them:
        *store_type* and *is_dledger_enabled* (enableDLegerCommitLog).
        """
        if store_type != "default":
            raise UnsupportedStoreError(
                f"{self.path}: storeType is {store_type}, and queues in RocksDB are not written; "
                "set it to default for queues in files, or open the store read-only"
            )
        if is_dledger_enabled:
            raise UnsupportedStoreError(
                f"{self.path}: enableDLegerCommitLog is true, and logs of DLedger are not written; "
                f"set it to false for a plain log, in a directory without dledger-*/ {_DLEDGER_DOC}"
            )
        if self.dledger_folder:
            raise UnsupportedStoreError(self._of_dledger())
        if not self.has_file_queues:
            (queues,) = (part for part in self.left_alone if part.startswith(_ROCKSDB_QUEUES))
            raise UnsupportedStoreError(
                f"{self.path} keeps its {queues}; it can be opened read-only, and its commit log "
                "read"
            )

    def _of_dledger(self) -> str:
        return (
            f"{self.path} keeps messages in a log of DLedger ({self.dledger_folder}/), which is "
            "neither read nor written here; leave it to RocketMQ, and begin with an empty "
            f"directory {_DLEDGER_DOC}"
        )


def _is_inside(path: str | os.PathLike[str], root: str) -> bool:
    """Whether *path* leads to *root* or below it; *root* has no links in it."""
    real = os.path.realpath(path)
    return real == root or real.startswith(root.rstrip("/") + "/")


def _links(root: Path) -> list[str]:
    """The symbolic links among the files and folders that a store writes, wherever they lead."""
    links: list[str] = []
    folders = [os.fspath(root)]

    while folders:
        folder = folders.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if folder == os.fspath(root) and entry.name.split(".")[0] not in _WRITTEN:
                        continue
                    if entry.is_symlink():
                        links.append(entry.path)
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except (FileNotFoundError, NotADirectoryError):
            continue

    return links


def _sizes(folder: Path) -> Iterator[int]:
    """Sizes of the folder's non-empty store files, in the order of their names.

    Files and folders may go while they are looked at: a writer may be at work.
    """
    try:
        names = sorted(
            entry.name for entry in os.scandir(folder) if entry.name.isdecimal() and entry.is_file()
        )
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        try:
            size = (folder / name).stat().st_size
        except FileNotFoundError:
            continue
        if size:
            yield size


def _queue_size(folder: Path) -> int | None:
    try:
        topics = sorted(entry.path for entry in os.scandir(folder) if entry.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return None
    for topic in topics:
        try:
            queues = sorted(entry.path for entry in os.scandir(topic) if entry.is_dir())
        except FileNotFoundError:
            continue
        for queue in queues:
            for size in _sizes(Path(queue)):
                return size
    return None


def _release(root: Path) -> str:
    # RocketMQ 5.5 makes this folder in every store it opens. Byte 40 of the checkpoint shows no
    # release: rmqstore writes it for both.
    return "5.5" if (root / "rocksdbstore").is_dir() else "5.3"


def _dledger_folder(root: Path) -> str:
    """The folder of a DLedger log under *root*: it has the name of the node, and files."""
    return next(
        (each.name for each in sorted(root.glob("dledger-*")) if any(each.glob("*"))),
        "",
    )


def _left_alone(root: Path) -> Iterator[str]:
    if dledger := _dledger_folder(root):
        yield f"messages in a log of DLedger ({dledger}/)"
    for folder in ("consumequeue", "consumequeue_rocksdb"):
        if (root / folder / "CURRENT").exists():
            yield f"{_ROCKSDB_QUEUES} ({folder}/)"
            break
    if any((root / "compaction").glob("compactionLog/*")):
        yield "compacted topics (compaction/)"
    if any((root / "rocksdbstore").glob("*.sst")):
        yield "RocksDB index, timer or transaction tables (rocksdbstore/)"


def _index_counts(folder: Path) -> tuple[int, int] | None:
    """Slot and entry counts of the index files, None if no index file shows them."""
    try:
        files = sorted(Path(entry.path) for entry in os.scandir(folder) if entry.name.isdecimal())
    except (FileNotFoundError, NotADirectoryError):
        return None
    for path in files:
        try:
            found = _counts_of(path)
        except FileNotFoundError:
            continue
        if found:
            return found
    return None


def _counts_of(path: Path) -> tuple[int, int] | None:
    size = path.stat().st_size
    if size == entry_at(_DEFAULT_ENTRIES, slot_count=_DEFAULT_SLOTS):
        return _DEFAULT_SLOTS, _DEFAULT_ENTRIES

    with open_regular(path) as file:
        data = file.read(min(size, _INDEX_READ_BYTES))
    if len(data) < 64:
        return None

    _, _, begin, end, _, next_entry = INDEX_HEADER.unpack_from(data)
    # A full file has used every entry but number 0, which is never used.
    full = (size - entry_at(next_entry, slot_count=0)) / INDEX_SLOT.size
    if (
        next_entry > 1
        and full >= 1
        and full == int(full)
        and _entries_fit(data, int(full), begin, end, next_entry)
    ):
        return int(full), next_entry

    for slots in _slots_before(data, next_entry):
        entries, rest = divmod(size - entry_at(0, slot_count=slots), INDEX_ENTRY.size)
        if rest == 0 and entries > next_entry and _entries_fit(data, slots, begin, end, next_entry):
            return slots, entries
    return None


def _slots_before(data: bytes, next_entry: int) -> list[int]:
    """The numbers of slots that the file may have, however large it is: a few.

    A slot holds the number of an entry, so a word that is not such a number is in an entry, and the
    first one nearly always in one of the first entries.
    """
    if next_entry <= 1:
        return []

    words = array("I", data[40 : len(data) // 4 * 4])
    if sys.byteorder == "little":
        words.byteswap()

    step = 1 << 16
    for at in range(0, len(words), step):
        chunk = words[at : at + step]
        if max(chunk) >= next_entry:
            first = at + next(i for i, word in enumerate(chunk) if word >= next_entry)
            # Five words are an entry, and entry 0 is never used.
            found = (
                first - field - 5 * number for number in range(1, _SAMPLE) for field in range(5)
            )
            return sorted({slots for slots in found if slots >= 1})
    return []


def _entries_fit(data: bytes, slots: int, begin: int, end: int, next_entry: int) -> bool:
    """Whether the first entries make sense with so many slots."""
    if next_entry <= 1:
        return False

    sample: list[int] = [*range(1, min(next_entry, _SAMPLE)), next_entry - 1]
    for number in sample:
        at = entry_at(number, slot_count=slots)
        if at + INDEX_ENTRY.size > len(data):
            return number >= _SAMPLE
        key_hash, offset, seconds, previous = INDEX_ENTRY.unpack_from(data, at)
        if key_hash < 0 or not begin <= offset <= end or seconds < 0 or not 0 <= previous < number:
            return False

        (newest,) = INDEX_SLOT.unpack_from(data, slot_at(key_hash % slots))
        if not number <= newest < next_entry:
            return False
        # The header names the first entry's record. Zeros would pass for entries of a log that
        # begins at 0.
        if (number == 1 and offset != begin) or not (key_hash or offset or seconds or previous):
            return False
    return True
