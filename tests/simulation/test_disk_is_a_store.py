"""The model disk answers and changes as a real store does, whatever is done to both."""

from __future__ import annotations

import struct
from bisect import bisect_left
from pathlib import Path
from random import Random

import pytest

from rmqstore import Store
from rmqstore.epochs import EpochEntry, EpochList
from rmqstore.replication.protocol.events import (
    Append,
    Effect,
    FlushLog,
    Restart,
    SaveEpochs,
    SetConfirm,
    TruncateTo,
)
from rmqstore.replication.runtime.log import StoreLog
from rmqstore.sim.disk import ModelLog
from rmqstore.store.replica_view import ReplicaView
from tests.scenarios.store_logs import FILE_SIZE, open_store, put_all_kinds
from tests.support.effort import rounds

BLANK_MAGIC = 0xCBD43194


class RealRecords(ModelLog):
    """The model over records of a store."""

    def _magic_at(self, border: int) -> int:
        magic: int = struct.unpack_from(">I", self._data, border - self.start_offset + 4)[0]
        return 0 if magic == BLANK_MAGIC else 0x52454344

    def _size_at(self, border: int) -> int | None:
        begin = border - self.start_offset
        if len(self._data) - begin < 8:
            return None
        size: int = struct.unpack_from(">I", self._data, begin)[0]
        return size if begin + size <= len(self._data) else None

    def _count_queues(self) -> None:
        pass


class Both:
    """A store and the model, to which the same is done."""

    def __init__(self, path: Path, source: bytes, borders: list[int], rng: Random) -> None:
        self.path = path
        self.source = source
        self.borders = borders
        self.rng = rng
        self.store = open_store(path)
        self.log = StoreLog(ReplicaView(self.store))
        self.model = RealRecords(file_size=FILE_SIZE)

    def close(self) -> None:
        self.store.abandon()

    def do(self, *effects: Effect) -> None:
        for effect in effects:
            self.log.carry_out(effect)
            self.model.carry_out(effect)
        assert self.log.check() == self.model.check()
        self.compare()

    def compare(self) -> None:
        log, model = self.log, self.model
        for name in ("start_offset", "end_offset", "whole_end", "epochs", "confirm_offset"):
            assert getattr(log, name) == getattr(model, name), name
        for name in ("last_file_start", "last_record_start"):
            assert getattr(log, name) == getattr(model, name), name
        assert model.flushed_offset <= log.flushed_offset <= log.end_offset
        start, end = model.start_offset, model.end_offset
        for _ in range(5):
            near = self.rng.choice([self.rng.randint(start, end), *self.borders])
            if start <= near <= end:
                assert log.is_border(near) == model.is_border(near), near
                size = min(end - near, 100)
                assert log.read(near, size) == model.read(near, size)
            assert log.file_end(near) == model.file_end(near)

    def append(self) -> None:
        at = self.model.end_offset
        size = min(self.rng.choice((5, 700, 20_000)), self.model.file_end(at) - at)
        size = min(self.rng.randint(1, size), len(self.source) - at)
        if size > 0:
            self.do(Append(at, self.source[at : at + size]))

    def cut(self) -> None:
        model = self.model
        first = bisect_left(self.borders, model.start_offset)
        last = bisect_left(self.borders, model.whole_end)
        if first >= last:
            return
        offset = self.borders[self.rng.randrange(first, last)]
        effects: list[Effect] = [TruncateTo(offset)]
        if model.confirm_offset > offset:
            effects.insert(0, SetConfirm(offset))
        kept = EpochList(tuple(model.epochs)).truncate_to(offset)
        self.do(*effects, SaveEpochs(kept.entries))

    def begin_epoch(self) -> None:
        last = self.model.epochs[-1].epoch if self.model.epochs else 0
        entry = EpochEntry(last + self.rng.randint(1, 3), self.model.end_offset)
        self.do(SaveEpochs((*self.model.epochs, entry)))

    def confirm(self) -> None:
        confirm, whole = self.model.confirm_offset, self.model.whole_end
        if confirm < whole:
            self.do(SetConfirm(self.rng.randint(confirm, whole)))

    def flush(self) -> None:
        self.do(FlushLog())

    def restart(self) -> None:
        offset = self.rng.randrange(len(self.source) // FILE_SIZE) * FILE_SIZE
        if offset > self.model.end_offset:
            self.do(Restart(offset), SaveEpochs((EpochEntry(1, offset),)))

    def crash(self) -> None:
        model = self.model
        if model.end_offset - model.whole_end >= 8 and model._magic_at(model.whole_end) == 0:
            # Of a blank a store needs the first eight bytes; zeros follow in its file anyway.
            model._data += bytes(model.file_end(model.whole_end) - model.end_offset)
        self.store.abandon()
        self.model.crash()
        self.store = open_store(self.path)
        self.log = StoreLog(ReplicaView(self.store))
        self.model.recover()
        # How much of it the checkpoint names is a matter of time in a store.
        assert self.log.confirm_offset <= self.model.end_offset
        self.model.confirm_offset = self.log.confirm_offset
        self.compare()


@pytest.fixture
def source(tmp_path: Path) -> tuple[bytes, list[int]]:
    with open_store(tmp_path / "source") as store:
        put_all_kinds(store)
        data = store._log_bytes(0, store.end_offset)
        return data, borders_of(store, data)


def borders_of(store: Store, data: bytes) -> list[int]:
    log = RealRecords(file_size=FILE_SIZE)
    log.carry_out(Append(0, data))
    assert log.check() is None
    assert log.whole_end == store.end_offset
    return [*log._borders, store.end_offset]


@pytest.mark.parametrize("seed", range(rounds(4, 100)))
def test_store_and_model_agree_after_every_step(
    seed: int, tmp_path: Path, source: tuple[bytes, list[int]]
) -> None:
    rng = Random(seed)
    both = Both(tmp_path / "store", *source, rng)
    steps = [both.append] * 12 + [both.flush, both.confirm, both.confirm, both.cut]
    steps += [both.begin_epoch, both.crash]
    try:
        for number in range(120):
            rng.choice(steps)()
            if number == 60:
                both.restart()
    finally:
        both.close()
