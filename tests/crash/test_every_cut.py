"""Each file of a small store ending at each byte of what was written to it: cut off there, or
reading as zeros from there on. Told with its place, or harmless; never a wrong answer.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import rmqstore
from rmqstore import StoreError
from rmqstore.check import Kind, repair, verify
from tests.crash.small_store import PARTS, Heard, SmallStore, is_told, listen, names_place
from tests.support.effort import rounds


@pytest.fixture(scope="module", params=[True, False], ids=["all CRCs", "body CRCs"])
def small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SmallStore:
    root = tmp_path_factory.mktemp("small") / "store"
    if request.param:
        return SmallStore(root, has_crc=True)
    return SmallStore(root, has_crc=False, compatibility="5.5")


class Cut:
    """A file that ends too early."""

    def __init__(self, small: SmallStore, name: Path, size: int, *, zeros: bool) -> None:
        whole = small.files[name]
        self.name = name
        self.size = size
        self.zeros = zeros
        self.data = whole[:size].ljust(len(whole) if zeros else 0, b"\0")
        self.is_log = name.parts[0] == "commitlog"
        start = int(name.name) if self.is_log else 0
        self.hit = {
            offset
            for offset, raw in small.raw.items()
            if self.is_log
            and start <= offset < start + len(whole)
            and offset + len(raw) > start + size
        }
        """The records that lost bytes, by their physical offsets."""

    def __repr__(self) -> str:
        return f"{self.name} {'zeros from' if self.zeros else 'cut to'} {self.size}"


def cuts(small: SmallStore, part: str, *, step: int) -> Iterator[Cut]:
    """Yield every cut, or in the short form each *step*-th, of the files of a part."""
    number = 0
    for name, data in small.part(part).items():
        used = len(data.rstrip(b"\0"))
        sizes = sorted({*range(used + 1), len(data) - 1} - {len(data)})
        stride = rounds(step, 1)
        for size in sizes[number % stride :: stride]:
            yield Cut(small, name, size, zeros=False)
            if size < used:
                yield Cut(small, name, size, zeros=True)
        number += len(sizes)


def is_harmless(heard: Heard | StoreError) -> bool:
    return isinstance(heard, Heard) and heard.is_complete


@pytest.mark.parametrize("part", PARTS)
def test_reader_never_gets_a_wrong_answer_and_verify_finds_what_it_lacks(
    part: str, small: SmallStore, tmp_path: Path
) -> None:
    root = small.copy(tmp_path / "store")
    for cut in cuts(small, part, step=31):
        path = root / cut.name
        path.write_bytes(cut.data)
        heard = listen(small, root, read_only=True)
        if not is_harmless(heard):
            assert is_told(root), (cut, heard)
        if isinstance(heard, Heard):
            assert not small.has_crc or cut.hit <= heard.missing, (cut, heard)
        path.write_bytes(small.files[cut.name])
    assert listen(small, root, read_only=True) == Heard()
    assert verify(root, full=True).is_sound


@pytest.mark.parametrize("abort", [False, True], ids=["closed", "crashed"])
@pytest.mark.parametrize("part", PARTS)
def test_writer_refuses_or_goes_on_without_a_wrong_answer(
    abort: bool, part: str, small: SmallStore, tmp_path: Path
) -> None:
    for cut in cuts(small, part, step=53):
        root = small.copy(tmp_path / "store")
        (root / cut.name).write_bytes(cut.data)
        if abort:
            (root / "abort").write_bytes(b"1")
        before = [
            (root / name).read_bytes() for name in small.files if name.parts[0] == "commitlog"
        ]
        heard = listen(small, root, read_only=False)
        if isinstance(heard, StoreError):
            assert names_place(root, heard), (cut, heard)
            after = [
                (root / name).read_bytes() for name in small.files if name.parts[0] == "commitlog"
            ]
            assert after == before, cut
        else:
            with rmqstore.open(root) as store:
                again = store.put("orders", b"again", keys=["again"])
                assert store.get("orders", offset=again.queue_offset).body == b"again", cut
            if heard.missing - cut.hit:
                assert is_told(root) or (root / "cut").exists(), (cut, heard)
        shutil.rmtree(root)


@pytest.mark.parametrize("part", PARTS)
def test_repair_brings_back_all_messages_but_those_that_lost_bytes(
    part: str, small: SmallStore, tmp_path: Path
) -> None:
    for cut in cuts(small, part, step=97):
        root = small.copy(tmp_path / "store")
        (root / cut.name).write_bytes(cut.data)
        try:
            plan = repair.plan(root)
        except StoreError as error:
            assert str(root) in str(error), cut  # noqa: PT017 - either outcome is right
            shutil.rmtree(root)
            continue
        if any(finding.kind is Kind.CONFIG for finding in plan.report.damage):
            assert any(cut.name.name in finding.text for finding in plan.report.damage)
            (root / cut.name).unlink()
        if plan.obstacles:
            with pytest.raises(StoreError, match="cannot be repaired"):
                repair.apply(plan)
        else:
            outcome = repair.apply(plan)
            assert outcome.report.is_sound, (cut, outcome.report.damage)
            with rmqstore.open(root) as store:
                heard = small.listen(store)
            assert heard.missing <= cut.hit, (cut, heard)
        shutil.rmtree(root)
