"""Which elections have to keep a put that was acknowledged with two copies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, cast

from rmqstore.epochs import EpochEntry
from rmqstore.sim.disk import ModelLog
from rmqstore.sim.losses import Losses
from rmqstore.sim.promises import Promise, Promises


@dataclass
class Stub:
    """A replica that stands still."""

    log: ModelLog = field(default_factory=lambda: ModelLog(file_size=1024))
    is_up: bool = True
    number: int = 0


def group(*puts: int, lost: tuple[int, ...] = ()) -> tuple[dict[int, Stub], Promises, Promise]:
    """Return replicas with so many puts each, and the promise of the first one's last."""
    replicas = {number: Stub(number=number) for number in range(1, len(puts) + 1)}
    for replica, count in zip(replicas.values(), puts, strict=True):
        replica.log.epochs = (EpochEntry(1, 0),)
        for number in range(count):
            replica.log.put(number=number, epoch=1, queue=0, size=9, wall_ms=0)
    log = replicas[1].log
    start = log.last_record_start
    data = log.read(start, log.end_offset - start)
    promise = Promise(puts[0] - 1, start, data, copies=2, electorate=set(replicas))
    losses = Losses()
    losses.distrusted.update(lost)
    promises = Promises(cast(Any, replicas), losses)
    promises.add(promise)
    return replicas, promises, promise


def test_best_of_enough_that_lacks_it_breaks_it() -> None:
    replicas, promises, promise = group(3, 2, 2)
    replicas[1].is_up = False
    assert promises.elected(2) is promise


def test_any_one_breaks_it_that_lacks_what_all_had() -> None:
    replicas, promises, promise = group(3, 2, 3)
    promise.is_of_all = True
    assert promises.elected(2) is promise
    replicas[3].log.epochs = (EpochEntry(1, 0), EpochEntry(2, 132))
    assert promises.elected(2) is promise, "the best or not"


def test_the_best_of_those_asked_breaks_it_where_they_are_enough() -> None:
    _, promises, promise = group(3, 2, 2)
    assert promises.elected(2, asked={2, 3}) is promise
    assert promises.elected(2, asked={2}) is None, "too few"


def test_one_that_holds_it_keeps_it() -> None:
    replicas, promises, _ = group(3, 3, 2)
    replicas[1].is_up = False
    assert promises.elected(2) is None
    assert promises.elected(3) is None, "not the best"
    assert promises.confirmed(bytes(1000)) is None, "given up"


def test_of_too_few_nothing_is_expected() -> None:
    replicas, promises, _ = group(3, 3, 2)
    replicas[1].is_up = replicas[2].is_up = False
    assert promises.elected(3) is None


def test_one_that_left_the_set_is_to_be_asked_and_one_that_lost_its_disk_is_not() -> None:
    lost: tuple[int, ...]
    for lost in ((), (2,)):
        replicas, promises, promise = group(3, 2, 2, lost=lost)
        replicas[1].is_up = False
        promises.let_in({1, 3})
        assert promises.elected(3) is (None if lost else promise)


def test_another_in_its_place_breaks_it_and_itself_lets_it_go() -> None:
    replicas, promises, promise = group(3, 3)
    log = replicas[1].log
    assert promises.confirmed(log.read(0, promise.start)) is None
    assert promises.confirmed(log.read(0, promise.start) + bytes(len(promise.data))) is promise
    assert promises.confirmed(log.read(0, log.end_offset)) is None
