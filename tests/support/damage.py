"""Harm done to a store on purpose, one kind each, and what stays unharmed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.golden import GoldenCase


@dataclass(frozen=True, slots=True)
class Damage:
    """Does something to a case and returns the places of the records it harmed."""

    do: Callable[[GoldenCase], set[int]]
    is_log: bool = False


def _logs(case: GoldenCase) -> list[Path]:
    return sorted((case.root / "commitlog").iterdir())


def _in(case: GoldenCase, path: Path) -> set[int]:
    size = path.stat().st_size
    places = (line["phyOffset"] for line in case.manifest)
    return {place for place in places if int(path.name) <= place < int(path.name) + size}


def _flip(path: Path, at: int, count: int = 1) -> None:
    data = bytearray(path.read_bytes())
    for index in range(at, at + count):
        data[index] ^= 0x55
    path.write_bytes(data)


def _record(case: GoldenCase, number: int) -> tuple[Path, int, int]:
    """File, place in it, and physical offset of a record, counted as in the manifest."""
    place = case.manifest[number]["phyOffset"]
    file = [path for path in _logs(case) if int(path.name) <= place][-1]
    return file, place - int(file.name), place


def _flip_record(number: int, at: int) -> Damage:
    def do(case: GoldenCase) -> set[int]:
        file, start, place = _record(case, number)
        _flip(file, start + at)
        return {place}

    return Damage(do, is_log=True)


def _cut_record(kept: int) -> Damage:
    """Zeros from a byte of the last record on."""

    def do(case: GoldenCase) -> set[int]:
        file, start, place = _record(case, -1)
        size = file.stat().st_size
        with file.open("r+b") as data:
            data.truncate(start + kept)
            data.truncate(size)
        return {place}

    return Damage(do, is_log=True)


def _zero_records(first: int, last: int) -> Damage:
    def do(case: GoldenCase) -> set[int]:
        harmed = set()
        for number in range(first, last + 1):
            file, start, place = _record(case, number)
            with file.open("r+b") as data:
                data.seek(start)
                data.write(bytes(case.manifest[number]["size"]))
            harmed.add(place)
        return harmed

    return Damage(do, is_log=True)


def _resize_log(index: int, size: int) -> Damage:
    def do(case: GoldenCase) -> set[int]:
        path = _logs(case)[index]
        harmed = {
            line["phyOffset"]
            for line in case.manifest
            if line["phyOffset"] in _in(case, path)
            and line["phyOffset"] + line["size"] > int(path.name) + size
        }
        os.truncate(path, size)
        return harmed

    return Damage(do, is_log=True)


def _drop_log(index: int) -> Damage:
    def do(case: GoldenCase) -> set[int]:
        path = _logs(case)[index]
        harmed = _in(case, path)
        path.unlink()
        return harmed

    return Damage(do, is_log=True)


def _to(pattern: str, act: Callable[[Path], object]) -> Damage:
    """Does something to the first file that fits; no record is harmed by it."""

    def do(case: GoldenCase) -> set[int]:
        act(sorted(case.root.glob(pattern))[0])
        return set()

    return Damage(do)


def _shorten(size: int) -> Callable[[Path], object]:
    return lambda path: os.truncate(path, size)


def _beside(path: Path) -> None:
    (path.parent / "notes.txt").write_text("not mine")


_UNITS = "consumequeue/*/*/0*"
_INDEX = "index/*"

DAMAGES: Mapping[str, Damage] = {
    "body of a record in the middle": _flip_record(150, 90),
    "size of a record in the middle": _flip_record(150, 0),
    "magic of a record in the middle": _flip_record(150, 5),
    "first record": _flip_record(0, 100),
    "place of the last record": _flip_record(-1, 30),
    "last record, all but its first byte": _cut_record(1),
    "last record, all but its head": _cut_record(60),
    "last record, half": _cut_record(120),
    "several records zeroed": _zero_records(120, 123),
    "first log file cut": _resize_log(0, 1000),
    "log file in the middle empty": _resize_log(1, 0),
    "log file in the middle cut": _resize_log(1, 40_000),
    "log file too long": _resize_log(2, 100_000),
    "last log file empty": _resize_log(-1, 0),
    "last log file cut": _resize_log(-1, 10_000),
    "log file in the middle missing": _drop_log(2),
    "last log file missing": _drop_log(-1),
    "foreign file in the log": _to("commitlog/0*", _beside),
    "queue empty": _to(_UNITS, _shorten(0)),
    "queue cut": _to(_UNITS, _shorten(333)),
    "queue flipped": _to(_UNITS, lambda path: _flip(path, 45, 3)),
    "queue zeroed in the middle": _to(
        _UNITS,
        lambda path: path.write_bytes(
            b"".join((path.read_bytes()[:60], bytes(40), path.read_bytes()[100:]))
        ),
    ),
    "queue missing": _to("consumequeue/*/*", shutil.rmtree),
    "foreign file in a queue": _to(_UNITS, _beside),
    "index empty": _to(_INDEX, _shorten(0)),
    "index cut": _to(_INDEX, _shorten(50)),
    "index header flipped": _to(_INDEX, lambda path: _flip(path, 30, 3)),
    "index entries flipped": _to(_INDEX, lambda path: _flip(path, 600, 400)),
    "foreign file in the index": _to(_INDEX, _beside),
    "checkpoint empty": _to("checkpoint", _shorten(0)),
    "checkpoint cut": _to("checkpoint", _shorten(30)),
    "checkpoint flipped": _to("checkpoint", lambda path: _flip(path, 1)),
}
