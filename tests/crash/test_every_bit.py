"""Each bit of a small store turned in turn: told with its place, or harmless; never a wrong answer.

The short form turns a sample of the bits, another one in every file and test; the long form turns
them all.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreError
from rmqstore.check import Kind, repair, verify
from rmqstore.message import Boundary
from tests.crash.small_store import (
    BATCH_TOPIC,
    CLOCK_MS,
    PARTS,
    SIZES,
    Heard,
    SmallStore,
    is_told,
    listen,
    names_place,
)
from tests.reference import checkpoint
from tests.support.effort import rounds
from tests.support.native_store import set_clock

UNUSED_BYTES = 40
"""Behind what was written, this many bytes of each file are turned too."""


@pytest.fixture(scope="module", params=[True, False], ids=["all CRCs", "body CRCs"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    root = tmp_path_factory.mktemp("small") / "store"
    if request.param:
        return SmallStore(root, has_crc=True)
    return SmallStore(root, has_crc=False, compatibility="5.5")


class Flip:
    """One bit of one file."""

    def __init__(self, small: SmallStore, name: Path, bit: int) -> None:
        self.name = name
        self.at = bit // 8
        data = bytearray(small.files[name])
        data[self.at] ^= 1 << bit % 8
        self.data = bytes(data)
        self.is_log = name.parts[0] == "commitlog"
        start = int(name.name) + self.at if self.is_log else None
        self.hit = small.record_in(start) if start is not None else None
        """The record that was hit, by its physical offset."""

    def __repr__(self) -> str:
        return f"{self.name} byte {self.at}"


def flips(small: SmallStore, part: str, *, step: int) -> Iterator[Flip]:
    """Yield every bit, or in the short form each *step*-th, of the files of a part."""
    number = 0
    for name, data in small.part(part).items():
        used = min(len(data.rstrip(b"\0")) + UNUSED_BYTES, len(data))
        stride = rounds(step, 1)
        for bit in range(number % stride, used * 8, stride):
            yield Flip(small, name, bit)
        number += used


def lacks_more(small: SmallStore, flip: Flip, heard: Heard | StoreError) -> bool:
    """Whether anything is missing beyond what no CRC covers.

    With body CRCs alone, a record that was hit before or behind its body may have become another
    one, with the same body: its keys, say, are others now.
    """
    if isinstance(heard, StoreError) or heard.errors:
        return True
    if flip.hit is None:
        return bool(heard.missing)
    if small.has_crc:
        assert flip.hit in heard.missing, (flip, "is not noticed")
        return True
    return bool(heard.missing - {flip.hit})


@pytest.mark.parametrize("part", PARTS)
def test_reader_never_gets_a_wrong_answer_and_verify_finds_what_it_lacks(
    part: str, small: SmallStore, tmp_path: Path
) -> None:
    root = small.copy(tmp_path / "store")
    for flip in flips(small, part, step=193):
        path = root / flip.name
        path.write_bytes(flip.data)
        heard = listen(small, root, read_only=True)
        if lacks_more(small, flip, heard):
            assert is_told(root), (flip, heard)
        path.write_bytes(small.files[flip.name])
    assert listen(small, root, read_only=True) == Heard()
    report = verify(root, full=True)
    assert report.is_sound, report.damage


@pytest.mark.parametrize("abort", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("part", PARTS)
def test_writer_refuses_with_the_place_or_goes_on_without_a_wrong_answer(
    abort: bool, part: str, small: SmallStore, tmp_path: Path
) -> None:
    for flip in flips(small, part, step=139):
        root = small.copy(tmp_path / "store")
        (root / flip.name).write_bytes(flip.data)
        if abort:
            (root / "abort").write_bytes(b"1")
        before = {name: (root / name).read_bytes() for name in small.files}
        heard = listen(small, root, read_only=False)
        if isinstance(heard, StoreError):
            assert names_place(root, heard), (flip, heard)
            log = {name: data for name, data in before.items() if name.parts[0] == "commitlog"}
            assert all((root / name).read_bytes() == data for name, data in log.items()), flip
        else:
            check_writable(small, root, flip, heard)
        shutil.rmtree(root)


def check_writable(small: SmallStore, root: Path, flip: Flip, heard: Heard) -> None:
    """The store goes on; what it lacks lies in the record that was hit, or aside."""
    with rmqstore.open(root) as store:
        again = store.put("orders", b"again", keys=["again"])
        assert store.get("orders", offset=again.queue_offset).body == b"again", flip
    lacks = heard.missing - {flip.hit}
    if lacks:
        assert is_told(root) or (root / "cut").exists(), (flip, heard)


@pytest.mark.parametrize("part", PARTS)
def test_repair_brings_back_all_messages_but_the_one_that_was_hit(
    part: str, small: SmallStore, tmp_path: Path
) -> None:
    for flip in flips(small, part, step=211):
        root = small.copy(tmp_path / "store")
        (root / flip.name).write_bytes(flip.data)
        try:
            plan = repair.plan(root)
        except StoreError as error:
            # Settings that contradict themselves are named, and are the user's to mend.
            assert str(root) in str(error), flip  # noqa: PT017 - either outcome is right
            shutil.rmtree(root)
            continue
        assert all([*plan.losses, *(action.text for action in plan.actions)]), flip
        if any(finding.kind is Kind.CONFIG for finding in plan.report.damage):
            assert any(flip.name.name in finding.text for finding in plan.report.damage)
            (root / flip.name).unlink()
        if plan.obstacles:
            with pytest.raises(StoreError, match="cannot be repaired"):
                repair.apply(plan)
        else:
            outcome = repair.apply(plan)
            with rmqstore.open(root) as store:
                heard = small.listen(store)
            if flip.hit is None or small.has_crc:
                assert outcome.report.is_sound, (flip, outcome.report.damage)
                assert heard.missing <= {flip.hit}, (flip, heard)
        shutil.rmtree(root)


def test_search_by_time_finds_messages_beside_a_gap(tmp_path: Path) -> None:
    root = tmp_path / "store"

    with rmqstore.open(root, **SIZES) as store:
        receipts = []
        for number in range(12):
            set_clock(store, CLOCK_MS + number * 1000)
            receipts.append(store.put("orders", b"message %d" % number))

    for harmed in receipts[3:8]:
        path = root / "commitlog" / f"{harmed.physical_offset // 1024 * 1024:020}"
        data = bytearray(path.read_bytes())
        data[harmed.physical_offset % 1024 + 90] ^= 1
        path.write_bytes(data)

    repair.apply(repair.plan(root))

    with rmqstore.open(root) as store:
        queue = store.queue("orders")
        for number in range(12):
            later = number if number not in range(3, 8) else 8
            earlier = number if number not in range(3, 8) else 2
            time_ms = CLOCK_MS + number * 1000
            assert queue.offset_at(time_ms) == later
            assert queue.offset_at(time_ms, Boundary.UPPER) == earlier


def test_batch_unit_with_another_count_or_offset_is_damage(
    small: SmallStore, tmp_path: Path
) -> None:
    """Bytes 28 to 36 of a unit are its queue offset, and the two after them its count."""
    for at in (35, 37):
        root = Path(shutil.copytree(small.root, tmp_path / str(at)))
        path = next(
            each for each in sorted((root / "batchconsumequeue").rglob("*")) if each.is_file()
        )
        data = bytearray(path.read_bytes())
        data[at] ^= 1
        path.write_bytes(data)
        with rmqstore.open(root, read_only=True) as store, pytest.raises(StoreError):
            store.get(BATCH_TOPIC, queue=0, offset=data[35])


def test_extension_of_another_size_is_found(small: SmallStore, tmp_path: Path) -> None:
    root = Path(shutil.copytree(small.root, tmp_path / "store"))
    path = next(each for each in sorted((root / "consumequeue_ext").rglob("*")) if each.is_file())
    path.write_bytes(path.read_bytes() + b"\0")
    assert any(each.place == str(path) for each in verify(root).findings)


def test_repair_leaves_no_negative_offset_in_the_checkpoint(
    small: SmallStore, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(small.root, tmp_path / "store"))
    path = root / "checkpoint"
    data = bytearray(path.read_bytes())
    data[32:40] = (-5).to_bytes(8, signed=True)
    path.write_bytes(data)
    repair.apply(repair.plan(root))
    assert checkpoint.decode(path.read_bytes()).confirm_offset >= -1
