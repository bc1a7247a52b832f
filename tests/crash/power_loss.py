"""Stores whose power goes: what they were told to do, and what must be left of it."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.c.store_calls import Failed
from tests.crash.driven_store import QUEUES, TOPIC, Driven, Record, Seen
from tests.support.disk_model import Disk, Effect, Kind, Recorder, State

HEAD_SIZE = 88
"""Bytes of a record before its body."""


@dataclass(slots=True)
class Act:
    """Something done to a store, with the number of effects before it and behind it."""

    began: int
    ended: int = -1
    """-1 while it lasts."""
    puts: list[Record] = field(default_factory=list)
    cut_at: int | None = None
    starts_at: int | None = None
    """The start of the log once files were expired."""
    removed_until: int | None = None
    """The log offset up to which queues were removed."""
    flushes: bool = False
    """Everything put before is durable when it ends."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a store must and may show after a crash."""

    chain: tuple[Record, ...]
    """All it may show, in order."""
    needed: int
    """How many of the chain it must show."""
    starts: frozenset[int]
    """Where the log may begin."""
    removed: frozenset[int] = frozenset({0})
    """Up to where in the log queues with records may have been removed."""

    def check(self, seen: Seen) -> None:
        assert seen.start_offset in self.starts or not seen.records, (
            seen.start_offset,
            self.starts,
        )

        chain = [each for each in self.chain if each.physical_offset >= seen.start_offset]
        needed = self.needed - (len(self.chain) - len(chain))
        shown = len(seen.records)

        assert list(seen.records) == chain[:shown], (
            "shown is what was not put",
            _difference(list(seen.records), chain),
        )
        assert shown >= needed, f"{shown} of {needed} messages known to be durable are there"

        expired = len(self.chain) - len(chain)
        for queue_id, found in enumerate(seen.next_offsets):
            # What expired before it was durable may have left a trace in its queue, or none.
            low = self._next_offset(queue_id, expired + shown if shown else self.needed)
            high = self._next_offset(queue_id, expired + shown)
            assert low <= found <= high, f"queue {queue_id} goes on at {found}, not at {high}"

        for queue_id, until in enumerate(seen.removed_until):
            may_be_unknown = not any(
                each.queue_id == queue_id and each.physical_offset < min(self.removed)
                for each in self.chain[:shown]
            )
            assert until in self.removed or (may_be_unknown and until == 0), (until, self.removed)

    def _next_offset(self, queue_id: int, count: int) -> int:
        offsets = [each.queue_offset for each in self.chain[:count] if each.queue_id == queue_id]
        return offsets[-1] + 1 if offsets else 0

    def having_seen(self, seen: Seen) -> Expected:
        """Return what must be shown ever after a store that showed *seen*."""
        before = sum(each.physical_offset < seen.start_offset for each in self.chain)
        count = before + len(seen.records)
        removed = frozenset(seen.removed_until)
        return Expected(self.chain[:count], count, frozenset({seen.start_offset}), removed)


def _difference(found: list[Record], chain: list[Record]) -> str:
    for number, record in enumerate(found):
        if number == len(chain) or record != chain[number]:
            wanted = chain[number] if number < len(chain) else None
            return f"number {number} is {record}, put was {wanted}"
    return "none"


class Workload:
    """Runs steps on a store behind a recorder and keeps what each promised.

    A step is a letter: p put, l put a message with long properties, r put one that fills the file,
    m put three by one call, b put 150 by one call, d put and wait for the disk, f wait for the
    disk, q flush everything, c close and open, k kill (nothing is flushed, the page cache stays)
    and open, t truncate to half of the records, e expire a file, a append bytes of another log in
    two pieces, x remove the queues of a deleted topic, y the same with half of the records.
    """

    def __init__(self, core: Any, root: Path, **settings: Any) -> None:
        self.core, self.root, self.settings = core, root, settings
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(parents=True)
        self.recorder = Recorder(core, root)
        self.acts: list[Act] = []
        self.numbers = 0
        self.chain: list[Record] = []
        self.store = self._open()

    def _open(self) -> Driven:
        return Driven(self.core, self.root, self.recorder.vfs, **self.settings)

    def finish(self) -> None:
        """End the recording; the store is dropped."""
        self.recorder.mark()
        self.recorder.effects()
        self.store.abandon()
        self.recorder.free()

    def forget(self, kind: Kind) -> None:
        """Take the effects of a kind out of the recording, as if the disk had ignored them."""
        for number, effect in enumerate(self.recorder.effects()):
            if effect.kind is kind:
                self.recorder.effects()[number] = Effect(Kind.MARK)

    def step(self, letter: str) -> None:
        act = Act(self.recorder.mark())
        self.acts.append(act)
        STEPS[letter](self, act)
        act.ended = self.recorder.mark()

    @property
    def _file_size(self) -> int:
        return int(self.store.store.log.files.options.file_size)

    def _content(self, size: int, *, long: bool = False) -> tuple[int, bytes, bytes]:
        self.numbers += 1
        number = self.numbers
        body = b"%06d" % number + bytes((1 + number % 255,)) * size
        extra = b"\x02note\x01" + b"n" * 900 if long else b""
        return number, body, b"KEYS\x01k%d all%s\x02" % (number, extra)

    def put(self, act: Act, contents: list[tuple[int, bytes, bytes]]) -> None:
        act.puts = self.store.put_messages(contents)
        self.chain += act.puts

    def put_small(self, act: Act) -> None:
        self.put(act, [self._content(self.numbers * 37 % 300)])

    def put_long(self, act: Act) -> None:
        self.put(act, [self._content(10, long=True)])

    def put_rolling(self, act: Act) -> None:
        room = -self.store.end_offset % self._file_size
        self.put(act, [self._content(min(max(room - 100, 200), 1900))])

    def put_many(self, act: Act) -> None:
        self.put(act, [self._content(size) for size in (5, 250, 90)])

    def put_bulk(self, act: Act) -> None:
        self.put(act, [self._content(number % 7) for number in range(150)])

    def put_durable(self, act: Act) -> None:
        self.put_small(act)
        self.store.wait_flushed(self.store.end_offset)
        act.flushes = True

    def wait_flushed(self, act: Act) -> None:
        self.store.wait_flushed(max(self.store.end_offset, 0))
        act.flushes = True

    def flush(self, act: Act) -> None:
        self.store.wait_dispatched(self.store.end_offset)
        self.store.flush()
        act.flushes = True

    def close_and_open(self, act: Act) -> None:
        self.store.close()
        self.store = self._open()
        act.flushes = True

    def kill_and_open(self, act: Act) -> None:
        self.store.abandon()
        self.store = self._open()
        act.flushes = True

    def truncate(self, act: Act) -> None:
        kept = [each for each in self.chain if each.physical_offset >= self.store.start_offset]
        if not kept:
            return
        act.cut_at = kept[len(kept) // 2].physical_offset
        self.store.truncate(act.cut_at)
        self.chain = [each for each in self.chain if each.physical_offset < act.cut_at]

    def expire(self, act: Act) -> None:
        before = self.store.start_offset
        self.store.expire(1)
        if self.store.start_offset != before:
            act.starts_at = self.store.start_offset
            act.flushes = True

    def remove_queues(self, act: Act) -> None:
        # Without a queue nothing is remembered, and appended bytes have theirs once dispatched.
        if self.chain or self.store.end_offset > 0:
            self.store.wait_flushed(self.store.end_offset)
            self.store.wait_dispatched(self.store.end_offset)
            self._remove_until(act, self.store.end_offset)

    def remove_queues_of_half(self, act: Act) -> None:
        # The other half are records of a topic that was made again meanwhile.
        if len(self.chain) > 1:
            self.store.wait_flushed(self.store.end_offset)
            self.store.wait_dispatched(self.store.end_offset)
            self._remove_until(act, self.chain[len(self.chain) // 2].physical_offset)

    def _remove_until(self, act: Act, offset: int) -> None:
        act.removed_until = offset
        self.store.remove_queues(offset)
        act.flushes = True

    def append_raw(self, act: Act) -> None:
        # Bytes of another log bring their queue offsets along, and these follow what is dispatched.
        self.store.wait_flushed(max(self.store.end_offset, 0))
        self.store.wait_dispatched(self.store.end_offset)

        number, body, properties = self._content(120)
        size = HEAD_SIZE + len(body) + 1 + len(TOPIC) + 2 + len(properties)
        end = max(self.store.end_offset, 0)
        left = self._file_size - end % self._file_size

        blank = b""
        if size > left - 8:
            blank = left.to_bytes(4, "big") + 0xCBD43194.to_bytes(4, "big") + bytes(left - 8)

        at, queue_id = end + len(blank), number % QUEUES
        record = Record(at, size, queue_id, self.store.next_offset(queue_id), body, properties)
        data = blank + self.store.encode(record, number)
        assert len(data) == len(blank) + size
        middle = len(blank) + size // 2

        act.puts = [record]
        self.store.append_raw(end, data[:middle])
        self.recorder.mark()
        self.store.append_raw(end + middle, data[middle:])

        if self.settings.get("dispatch.limit_to_flushed"):
            # A put waits until such bytes are dispatched, and those wait for the disk.
            self.store.wait_flushed(self.store.end_offset)
            act.flushes = True

        self.chain.append(record)

    # ---- what follows from it ----

    def expected(self, moment: int) -> Expected:
        """Return what must be there when the power goes after *moment* effects."""
        chain: list[Record] = []
        needed, starts, removed = 0, {-1, 0}, {0}

        for act in self.acts:
            if act.began >= moment:
                break
            is_over = 0 <= act.ended <= moment

            if act.starts_at is not None:
                starts = {act.starts_at} if is_over else starts | {act.starts_at}

            if act.removed_until is not None:
                removed = {act.removed_until} if is_over else removed | {act.removed_until}

            if act.cut_at is not None:
                lowered = {min(each, act.cut_at) for each in removed}
                removed = lowered if is_over else removed | lowered
                kept = sum(each.physical_offset < act.cut_at for each in chain)
                needed = min(needed, kept)
                if is_over:
                    del chain[kept:]

            chain += act.puts
            if act.flushes and is_over:
                needed = len(chain)

        return Expected(tuple(chain), needed, frozenset(starts), frozenset(removed))

    def moments(self, since: int) -> list[int]:
        """Return the moments after effect *since* that matter: before something becomes durable,
        and where an act ends.

        Between them what may be lost only grows, and what must be there stays.
        """
        durable = (Kind.SYNC, Kind.SYNC_DIRECTORY, Kind.MAKE_DIRECTORY)
        effects = self.recorder.effects()
        found = {n for n, effect in enumerate(effects) if n >= since and effect.kind in durable}
        found |= {act.ended for act in self.acts if act.ended >= since}
        return sorted(found)


STEPS: dict[str, Callable[[Workload, Act], None]] = {
    "p": Workload.put_small,
    "l": Workload.put_long,
    "r": Workload.put_rolling,
    "m": Workload.put_many,
    "b": Workload.put_bulk,
    "d": Workload.put_durable,
    "f": Workload.wait_flushed,
    "q": Workload.flush,
    "c": Workload.close_and_open,
    "k": Workload.kill_and_open,
    "t": Workload.truncate,
    "e": Workload.expire,
    "a": Workload.append_raw,
    "x": Workload.remove_queues,
    "y": Workload.remove_queues_of_half,
}


# ---- the test of one state ----


class PowerLost(AssertionError):
    """A crash state that a store did not survive as it must."""


class Verifier:
    """Opens stores in crash states. Equal states are opened once."""

    def __init__(self, core: Any, folder: Path, chance: random.Random, **settings: Any) -> None:
        self.core, self.folder, self.chance, self.settings = core, folder, chance, settings
        self.seen: dict[bytes, Seen] = {}
        self.state: State = {}
        """The state last looked at."""

    def verify(self, state: State, expected: Expected, *, again: int = 0) -> None:
        """Open a store in *state* and compare; crash *again* many times while it recovers."""
        key = digest(state)
        self.state = state
        seen = self.seen.get(key)
        if seen is None or again:
            root = self.folder / "state"
            materialise(state, root)
            recorder = Recorder(self.core, root)
            seen, opened, effects = self._open_twice(root, recorder, is_read=again > 0)
            self.seen[key] = seen
            expected.check(seen)
            if again:
                self._crash_again(state, effects, opened, expected, seen, again)
        else:
            expected.check(seen)

    def _open(self, root: Path, recorder: Recorder) -> Driven:
        return Driven(self.core, root, recorder.vfs, **self.settings)

    def _open_twice(
        self, root: Path, recorder: Recorder, *, is_read: bool
    ) -> tuple[Seen, int, list[Effect]]:
        """Return what a store shows, how many effects its opening had and, if *is_read*, the
        effects until it was closed."""
        store = self._open(root, recorder)
        opened = recorder.mark()

        try:
            seen = store.look()
        finally:
            closes = self.chance.random() < 0.5
            store.close() if closes else store.abandon()

        effects = list(recorder.effects()) if is_read else []
        store = self._open(root, recorder)

        try:
            assert store.look() == seen, "a second opening shows something else"
            properties = b"KEYS\x01after all\x02"
            number = 2 * len(seen.records)
            (after,) = store.put_messages([(number, b"after", properties)])
            assert after.queue_offset == seen.next_offsets[number % QUEUES], after
            assert after.physical_offset >= seen.end_offset, after
            store.flush()
            assert store.look().records == (*seen.records, after)
        finally:
            store.close()
            recorder.free()

        return seen, opened, effects

    def _crash_again(
        self,
        state: State,
        effects: list[Effect],
        opened: int,
        expected: Expected,
        seen: Seen,
        count: int,
    ) -> None:
        moments = sorted(self.chance.sample(range(len(effects) + 1), min(count, len(effects) + 1)))
        disk, done = Disk(state), 0
        for moment in moments:
            for effect in effects[done:moment]:
                disk.apply(effect)
            done = moment
            wanted = expected.having_seen(seen) if moment >= opened else expected
            for each in disk.crash_states(2, self.chance):
                self.verify(each, wanted)


def digest(state: State) -> bytes:
    """Return what tells states apart; names of index files follow the clock and count by order."""
    found = hashlib.blake2b(digest_size=16)
    index_files = 0
    for path, content in sorted(state.items()):
        name = path
        if path.startswith("index/"):
            index_files += 1
            name = f"index/{index_files}"
        found.update(b"%s\0%d\0" % (name.encode(), -1 if content is None else len(content)))
        found.update(content or b"")
    return found.digest()


def materialise(state: State, root: Path) -> None:
    """Write a state as files and folders."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for path, content in state.items():
        if content is None:
            (root / path).mkdir()
        else:
            (root / path).write_bytes(content)


def crash(
    workload: Workload,
    verifier: Verifier,
    *,
    since: int = 0,
    states: int,
    again: float = 0.0,
) -> None:
    """Let the power go at every moment of a recording from effect *since* on.

    *states* is how many states of each moment are tried at most, *again* the share of them whose
    recovery is itself interrupted.
    """
    chance = verifier.chance
    disk, done = Disk(), 0
    effects = workload.recorder.effects()
    for moment in workload.moments(since):
        for effect in effects[done:moment]:
            disk.apply(effect)
        done = moment
        expected = workload.expected(moment)
        for state in disk.crash_states(states, chance):
            try:
                verifier.verify(state, expected, again=3 if chance.random() < again else 0)
            except (AssertionError, Failed, LookupError) as failure:
                raise PowerLost(f"power lost after {moment} effects: {failure}") from failure
