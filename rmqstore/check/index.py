"""The key index compared with the log: files by their headers, lookups by sample or all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rmqstore._native.core import Record
from rmqstore.check.findings import Finding, Kind, Level
from rmqstore.errors import StoreError
from rmqstore.index_layout import INDEX_HEADER, entry_at
from rmqstore.message import SysFlag, TransactionType
from rmqstore.regular_file import open_regular
from rmqstore.store import Store
from rmqstore.store.directory import Directory

__all__ = ["IndexCheck"]

_TRANSACTION = int(SysFlag.TRANSACTION_MASK)
_REBUILT = "repair rebuilds the index from the log"
_SAMPLE_EVERY = 97
_LOOKUP_MAX = 4096
_FINDINGS_MAX = 20
_NAME_SIZE = 17


class IndexCheck:
    """Looks keys up as records are walked; `findings` is the outcome.

    Made before the view is opened, so that a writer beside this is never behind what is expected.
    """

    def __init__(self, folder: Path, facts: Directory, *, full: bool) -> None:
        self._folder = folder
        self._facts = facts
        self._every = 1 if full else _SAMPLE_EVERY
        self._seen = 0
        self._lost: list[Finding] = []
        self._behind_at = -1
        """The first record looked at that has keys and is after the last one in the index."""
        self.keys = 0
        """Keys looked up."""

        self._files = list(self._headers())
        whole = [header for _, header in self._files if header is not None]
        self._begin = min((header[2] for header in whole), default=None)
        self._end = max((header[3] for header in whole), default=-1)

        if not facts.was_closed:
            self._end -= 1  # not all keys of the last record may be there
        self._is_usable = bool(whole) and facts.has_index and facts.index_slot_count is not None

    def _headers(self) -> Iterator[tuple[Path, tuple[int, ...] | None]]:
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.iterdir()):
            if _is_index_name(path.name) and path.is_file():
                with open_regular(path) as file:
                    head = file.read(INDEX_HEADER.size)
                fields = INDEX_HEADER.unpack(head) if len(head) == INDEX_HEADER.size else None
                yield path, fields if fields and fields[5] > 1 else None

    def see(self, record: Record, view: Store) -> None:
        """Look up the keys of *record* in *view*, when it is its turn."""
        if record.sys_flag & _TRANSACTION == TransactionType.ROLLBACK:
            return
        self._seen += 1
        if self._seen % self._every:
            return
        unique = record.unique_key
        keys = ([unique] if unique else []) + record.keys
        if keys and record.physical_offset > self._end:
            if self._behind_at < 0:
                self._behind_at = record.physical_offset
        elif self._is_usable and self._begin is not None and record.physical_offset >= self._begin:
            for key in keys:
                self._look_up(record, key, view)

    def _look_up(self, record: Record, key: str, view: Store) -> None:
        self.keys += 1

        time_ms = record.store_timestamp
        try:
            found = view.find(
                record.topic, key, begin_ms=time_ms, end_ms=time_ms, max_count=_LOOKUP_MAX
            )
        except StoreError as error:
            self._lose(record, key, f"cannot be looked up: {error}")
            return

        places = {each.physical_offset for each in found}
        if record.physical_offset not in places and len(found) < _LOOKUP_MAX:
            self._lose(record, key, "is not found")

    def _lose(self, record: Record, key: str, text: str) -> None:
        place = f"{record.topic}#{key}"
        self._lost.append(
            Finding(
                Kind.INDEX,
                place,
                f"the record at {record.physical_offset} {text}",
                _REBUILT,
                offset=record.physical_offset,
            )
        )

    def findings(self, *, built_to: int, log_end: int, was_cut: bool) -> Iterator[Finding]:
        """Yield what is wrong, after the last record was seen.

        The keys of records below *built_to* should be in the index. RocketMQ leaves the keys of
        what it cut in its index, and enters no key of a record before the last of them.
        """
        if was_cut and self._end >= log_end:
            text = (
                f"has keys up to {self._end} of what RocketMQ cut, and lacks those put in its place"
            )
            cure = "opening for writing builds the index again"
            yield Finding(Kind.INDEX, str(self._folder), text, cure, Level.NOTE, self._end)
            return

        is_behind = self._behind_at >= 0
        if not self._files and is_behind:
            text = "does not exist, though records have keys: these cannot be looked up"
            cure = "repair --rebuild builds one"
            yield Finding(Kind.INDEX, str(self._folder), text, cure, Level.NOTE)
        elif self._is_usable and is_behind and self._behind_at < built_to:
            text = f"ends at {self._end}, though records after that have keys"
            yield Finding(Kind.INDEX, str(self._folder), text, _REBUILT, offset=self._end)

        if not self._folder.is_dir():
            return
        yield from self._file_findings(log_end)

        yield from self._lost[:_FINDINGS_MAX]
        if len(self._lost) > _FINDINGS_MAX:
            yield Finding(
                Kind.INDEX,
                str(self._folder),
                f"{len(self._lost) - _FINDINGS_MAX} more keys are not found",
                _REBUILT,
            )

    def _file_findings(self, log_end: int) -> Iterator[Finding]:
        for path in sorted(self._folder.iterdir()):
            if path.is_file() and not _is_index_name(path.name):
                cure = "repair moves it to cut/"
                yield Finding(Kind.INDEX, str(path), "is not an index file", cure, fault="foreign")

        size = self._size()
        if self._files and size is None:
            yield Finding(
                Kind.INDEX,
                str(self._folder),
                "no file shows how many slots it has, so that it cannot be used",
                "give the broker's configuration (--config), else repair builds the index again "
                "with RocketMQ's default of slots",
            )

        last = self._files[-1][0] if self._files else None
        for path, header in self._files:
            actual = path.stat().st_size
            if size is not None and actual != size and not (path == last and actual == 0):
                text = f"has {actual} bytes instead of {size}"
                yield Finding(Kind.INDEX, str(path), text, _REBUILT)
            elif header is None and path != last:
                yield Finding(Kind.INDEX, str(path), "tells of no entries", _REBUILT)
            elif header is not None and not self._is_sane(header):
                yield Finding(Kind.INDEX, str(path), "its header contradicts itself", _REBUILT)
            elif header is not None and header[3] >= log_end:
                level = Level.DAMAGE if self._facts.was_closed else Level.NOTE
                text = f"has entries up to {header[3]}, but the log ends at {log_end}"
                yield Finding(Kind.INDEX, str(path), text, _REBUILT, level, header[3])

    def _is_sane(self, header: tuple[int, ...]) -> bool:
        begin_ms, end_ms, begin, end, used_slots, next_entry = header
        slots, entries = self._facts.index_slot_count, self._facts.index_entry_count
        return (
            0 <= begin_ms <= end_ms
            and 0 <= begin <= end
            and 0 < used_slots < next_entry
            and (slots is None or used_slots <= slots)
            and (entries is None or next_entry <= entries)
        )

    def _size(self) -> int | None:
        if self._facts.index_slot_count is None or self._facts.index_entry_count is None:
            return None
        return entry_at(self._facts.index_entry_count, slot_count=self._facts.index_slot_count)


def _is_index_name(name: str) -> bool:
    return len(name) == _NAME_SIZE and name.isdecimal()
