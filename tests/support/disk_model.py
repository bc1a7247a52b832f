"""What a disk may hold after the power went: built from a recording of its effects.

The file system of the model promises as little as POSIX does:

- What a sync of a file covered is there, its size too. Each block of 512 bytes stored to since then
  holds what it held at the sync or at any moment after it, whatever its neighbours hold.
- Changes of a file's size reach the disk in their order, or not at all before a sync of the file.
- Names made, renamed or removed in a folder reach the disk in their order, or not at all before
  that folder is synced. Other folders and the bytes of files do not wait for them: a file renamed
  into another folder may have both names, or none.
- Folders made by the door are synced into their parents one by one, as the door promises. A folder
  made without syncs is a name like any other.
"""

from __future__ import annotations

import enum
import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

BLOCK = 512


class Kind(enum.IntEnum):
    """enum rmq_effect_kind of tests/c/twins/recording_vfs.h."""

    CREATE = 0
    OPEN = 1
    STORE = 2
    ZERO = 3
    RESIZE = 4
    SYNC = 5
    RENAME = 6
    UNLINK = 7
    MAKE_DIRECTORY = 8
    REMOVE_DIRECTORY = 9
    SYNC_DIRECTORY = 10
    MAKE_UNSYNCED_DIRECTORY = 11
    MARK = 12


class Effect(NamedTuple):
    """One effect; paths are relative to the root of the recording, "" is the root."""

    kind: Kind
    file: int = -1
    at: int = 0
    size: int = 0
    data: bytes = b""
    path: str = ""
    other_path: str = ""


class Recorder:
    """The recording twin of the file system; free it when what was opened through it is closed."""

    def __init__(self, core: Any, root: Path) -> None:
        self.ffi, self.lib = core
        self.root = root
        self._root = str(root)
        self.vfs = self.lib.rmq_vfs_record_new(self.lib.rmq_vfs_posix())
        self._effects: list[Effect] = []

    def mark(self) -> int:
        """Note all mapped stores so far; return the number of effects."""
        self.lib.rmq_vfs_record_mark(self.vfs, 0)
        return int(self.lib.rmq_vfs_record_count(self.vfs))

    def effects(self) -> list[Effect]:
        """Return all effects so far, or until the recorder was freed."""
        if not self.vfs:
            return self._effects

        raw = self.ffi.new("struct rmq_effect *")
        for index in range(len(self._effects), self.lib.rmq_vfs_record_count(self.vfs)):
            self.lib.rmq_vfs_record_get(self.vfs, index, raw)
            data = bytes(self.ffi.buffer(raw.data, raw.size)) if raw.data else b""
            self._effects.append(
                Effect(
                    Kind(raw.kind),
                    raw.file,
                    raw.at,
                    raw.size,
                    data,
                    self._relative(raw.path),
                    self._relative(raw.other_path),
                )
            )

        return self._effects

    def free(self) -> None:
        self.lib.rmq_vfs_record_free(self.vfs)
        self.vfs = None

    def _relative(self, path: Any) -> str:
        if not path:
            return ""
        name: str = self.ffi.string(path).decode()
        if name == self._root:
            return ""
        assert name.startswith(self._root + "/"), name
        return name[len(self._root) + 1 :]


@dataclass(slots=True)
class File:
    """Content at the last sync and what happened to it since then."""

    durable: bytes = b""
    pending: list[Effect] = field(default_factory=list)
    """STORE and ZERO within one block each, and RESIZE."""
    size: int = 0
    """With everything pending."""

    def add(self, effect: Effect) -> None:
        if effect.kind is Kind.RESIZE:
            self.pending.append(effect)
            self.size = effect.size
            return
        stop = effect.at + effect.size
        if effect.kind is Kind.ZERO:
            stop = min(stop, self.size)
        elif stop > self.size:
            self.size = stop
            self.pending.append(Effect(Kind.RESIZE, size=stop))
        data = effect.data or bytes(effect.size)
        for low in range(effect.at - effect.at % BLOCK, stop, BLOCK):
            first, last = max(low, effect.at), min(low + BLOCK, stop)
            part = data[first - effect.at : last - effect.at]
            self.pending.append(Effect(Kind.STORE, at=first, size=last - first, data=part))

    def sync(self, at: int, size: int) -> None:
        """Make all changes of size and the stores of a range durable."""
        content = bytearray(self.durable)
        left: list[Effect] = []
        for effect in self.pending:
            if effect.kind is Kind.RESIZE:
                left = [each for each in left if each.at < effect.size]
                _resize(content, effect.size)
            elif at <= effect.at < at + size:
                content[effect.at : effect.at + effect.size] = effect.data
            else:
                left.append(effect)
        self.durable, self.pending = bytes(content), left

    def sizes(self) -> int:
        """Return how many changes of size are pending."""
        return sum(effect.kind is Kind.RESIZE for effect in self.pending)

    def versions(self, resizes: int) -> tuple[bytes, dict[int, list[bytes]]]:
        """Return the content without pending stores, and what each block may hold in its place.

        *resizes* is how many of the pending changes of size reached the disk. Bytes stored before a
        file was cut go with the cut; bytes stored after one that did not happen lie nowhere.
        """
        base = bytearray(self.durable)
        size, seen = len(base), 0
        stores: list[Effect] = []

        for effect in self.pending:
            if effect.kind is Kind.STORE:
                stores.append(effect)
                continue

            seen += 1
            is_cut = effect.size < size
            size = effect.size
            if seen <= resizes:
                stores = [each for each in stores if each.at < effect.size]
                _resize(base, effect.size)
            elif is_cut:
                break

        blocks: dict[int, list[bytes]] = {}
        for effect in stores:
            if effect.at >= len(base):
                continue
            low = effect.at - effect.at % BLOCK
            known = blocks.setdefault(low, [bytes(base[low : low + BLOCK])])

            block = bytearray(known[-1])
            part = effect.data[: len(base) - effect.at]
            block[effect.at - low : effect.at - low + len(part)] = part
            if block != known[-1]:
                known.append(bytes(block))

        return bytes(base), {low: known for low, known in blocks.items() if len(known) > 1}


def _resize(content: bytearray, size: int) -> None:
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


@dataclass(slots=True)
class Folder:
    """Names at the last sync of the folder and the changes since then, each a whole."""

    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[dict[str, File | Folder | None]] = field(default_factory=list)

    def names(self, changes: int | None = None) -> dict[str, File | Folder]:
        """Return what the folder holds with the first *changes* pending changes, or all."""
        found: dict[str, File | Folder | None] = dict(self.durable)
        for change in self.pending[:changes]:
            found.update(change)
        return {name: node for name, node in found.items() if node is not None}

    def sync(self) -> None:
        self.durable, self.pending = self.names(), []


State = dict[str, bytes | None]
"""Content by path; None for a folder. Parents come before what is in them."""


class Disk:
    """A disk that takes effects and tells what it may hold when the power goes now."""

    def __init__(self, state: State | None = None) -> None:
        self.root = Folder()
        self._files: dict[int, File] = {}
        for path, content in (state or {}).items():
            parent, name = self._find(path)
            parent.durable[name] = (
                Folder() if content is None else File(durable=content, size=len(content))
            )

    def apply(self, effect: Effect) -> None:
        """Take one more effect of the recording."""
        kind = effect.kind
        if kind in (Kind.STORE, Kind.ZERO, Kind.RESIZE):
            self._files[effect.file].add(effect)
        elif kind is Kind.SYNC:
            self._files[effect.file].sync(effect.at, effect.size)
        elif kind is Kind.CREATE:
            parent, name = self._find(effect.path)
            made = self._files[effect.file] = File()
            parent.pending.append({name: made})
        elif kind is Kind.OPEN:
            parent, name = self._find(effect.path)
            node = parent.names()[name]
            assert isinstance(node, File), effect
            assert self._files.get(effect.file, node) is node, effect
            self._files[effect.file] = node
        elif kind is Kind.MAKE_DIRECTORY:
            self._make_directory(effect.path)
        elif kind is Kind.MAKE_UNSYNCED_DIRECTORY:
            parent, name = self._find(effect.path)
            if name not in parent.names():
                parent.pending.append({name: Folder()})
        elif kind in (Kind.UNLINK, Kind.REMOVE_DIRECTORY):
            parent, name = self._find(effect.path)
            assert name in parent.names(), effect
            parent.pending.append({name: None})
        elif kind is Kind.RENAME:
            parent, name = self._find(effect.path)
            target, new_name = self._find(effect.other_path)
            node = parent.names()[name]
            if target is parent:
                parent.pending.append({name: None, new_name: node})
            else:
                target.pending.append({new_name: node})
                parent.pending.append({name: None})
        elif kind is Kind.SYNC_DIRECTORY:
            self._folder(effect.path).sync()

    def _make_directory(self, path: str) -> None:
        folder = self.root
        for name in path.split("/") if path else ():
            node = folder.names().get(name)
            if node is None:
                node = Folder()
                folder.pending.append({name: node})
                folder.sync()
            assert isinstance(node, Folder), path
            folder = node

    def _folder(self, path: str) -> Folder:
        folder = self.root
        for name in path.split("/") if path else ():
            node = folder.names()[name]
            assert isinstance(node, Folder), path
            folder = node
        return folder

    def _find(self, path: str) -> tuple[Folder, str]:
        parent, _, name = path.rpartition("/")
        return self._folder(parent), name

    # ---- what may be there ----

    def crash_states(self, limit: int, chance: random.Random) -> Iterator[State]:
        """Yield what may be there: all of it when that is at most *limit*, else a choice.

        The choice always holds the states with nothing and with everything that is pending; then
        come states where one thing alone was lost or alone was kept, and states at random.
        """
        points = list(self._points())
        count = prod(point.picks for point in points)
        if count <= limit:
            for picks in itertools.product(*(range(point.picks) for point in points)):
                yield self._state(dict(zip((each.key for each in points), picks, strict=True)))
            return

        nothing = {point.key: 0 for point in points}
        everything = {point.key: point.picks - 1 for point in points}
        yield self._state(nothing)
        yield self._state(everything)

        alone = [(nothing, point, point.picks - 1) for point in points]
        alone += [(everything, point, 0) for point in points]
        chance.shuffle(alone)

        for base, point, pick in alone[: (limit - 2) // 2]:
            yield self._state({**base, point.key: pick})
        for _ in range(limit - 2 - min(len(alone), (limit - 2) // 2)):
            yield self._state({point.key: chance.randrange(point.picks) for point in points})

    def _points(self) -> Iterator[_Point]:
        """Yield every place where the disk has a choice."""
        seen: set[int] = set()
        waiting: list[File | Folder] = [self.root]
        while waiting:
            node = waiting.pop()
            if id(node) in seen:
                continue
            seen.add(id(node))
            if isinstance(node, Folder):
                if node.pending:
                    yield _Point((id(node), -1), len(node.pending) + 1)
                waiting += node.durable.values()
                waiting += [
                    each for change in node.pending for each in change.values() if each is not None
                ]
                continue
            resizes = node.sizes()
            if resizes:
                yield _Point((id(node), -1), resizes + 1)
            counts: dict[int, int] = {}
            for number in range(resizes + 1):
                for low, known in node.versions(number)[1].items():
                    counts[low] = max(counts.get(low, 0), len(known))
            yield from (_Point((id(node), low), count) for low, count in counts.items())

    def _state(self, picks: dict[tuple[int, int], int]) -> State:
        state: State = {}

        def visit(folder: Folder, prefix: str) -> None:
            for name, node in sorted(folder.names(picks.get((id(folder), -1), 0)).items()):
                path = prefix + name
                if isinstance(node, Folder):
                    state[path] = None
                    visit(node, path + "/")
                else:
                    state[path] = self._content(node, picks)

        visit(self.root, "")
        return state

    @staticmethod
    def _content(file: File, picks: dict[tuple[int, int], int]) -> bytes:
        if not file.pending:
            return file.durable
        base, blocks = file.versions(picks.get((id(file), -1), 0))
        content = bytearray(base)
        for low, known in blocks.items():
            pick = min(picks.get((id(file), low), 0), len(known) - 1)
            content[low : low + BLOCK] = known[pick]
        return bytes(content)


class _Point(NamedTuple):
    """A choice of the disk: a folder or a file's size (at -1), or a block of a file."""

    key: tuple[int, int]
    picks: int
