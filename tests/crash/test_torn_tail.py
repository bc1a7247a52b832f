"""A log whose last record is damaged at each of its bytes, after a crash or a clean stop."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rmqstore
from rmqstore import CorruptionError, Receipt
from tests.support.agreement import FILES, check_agreement

COUNT = 8
BODY_AT = 88
CRC: dict[str, Any] = {"append_property_crc": True, "force_verify_property_crc": True}
Damage = Callable[[bytes], bytes]


def zeros(tail: bytes) -> bytes:
    return bytes(len(tail))


def garbage(tail: bytes) -> bytes:
    return bytes(byte ^ 0xA5 for byte in tail)


def body_of(number: int) -> bytes:
    return f"message {number} ".encode() * 2


def make_store(directory: Path, *, closed: bool) -> list[Receipt]:
    """Put a few messages with property CRCs, flush, and close the store or let it die."""
    store = rmqstore.open(directory, **CRC, **FILES)
    receipts = [
        store.put("orders", body_of(number), queue=number % 2, tags="A", keys=[f"k{number}"])
        for number in range(COUNT)
    ]
    if closed:
        store.close()
    else:
        store.wait_flushed()
        store.abandon()
    return receipts


def log_of(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}


def damage_log(directory: Path, start: int, end: int, damage: Damage) -> None:
    path = directory / "commitlog" / f"{0:020}"
    data = bytearray(path.read_bytes())
    data[start:end] = damage(bytes(data[start:end]))
    path.write_bytes(data)


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Receipt]]:
    directory = tmp_path_factory.mktemp("crashed") / "store"
    return directory, make_store(directory, closed=False)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Receipt]]:
    directory = tmp_path_factory.mktemp("closed") / "store"
    return directory, make_store(directory, closed=True)


@pytest.mark.parametrize("damage", [zeros, garbage])
def test_crashed_store_torn_at_any_byte_keeps_every_record_before(
    damage: Damage, crashed: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = crashed
    last = receipts[-1]
    for cut in range(last.physical_offset, last.end_offset):
        directory = tmp_path / str(cut)
        shutil.copytree(original, directory)
        damage_log(directory, cut, last.end_offset, damage)
        with rmqstore.open(directory, **CRC) as store:
            assert store.end_offset == last.physical_offset, cut
            assert [each.body for each in check_agreement(store)] == [
                body_of(number) for number in range(COUNT - 1)
            ]
            again = store.put("orders", b"again", queue=last.queue)
            assert again.physical_offset == last.physical_offset
            assert again.queue_offset == last.queue_offset
        shutil.rmtree(directory)


@pytest.mark.parametrize("damage", [zeros, garbage])
def test_closed_store_damaged_at_any_byte_is_refused_and_left_as_it_is(
    damage: Damage, closed: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = closed
    last = receipts[-1]

    directory = tmp_path / "store"
    shutil.copytree(original, directory)
    intact = log_of(directory)

    for cut in range(last.physical_offset, last.end_offset):
        damage_log(directory, cut, last.end_offset, damage)

        before = log_of(directory)
        with pytest.raises(CorruptionError, match=r"rmqstore (verify|repair)") as caught:
            rmqstore.open(directory, **CRC)
        assert caught.value.physical_offset == last.physical_offset, cut
        assert str(last.physical_offset) in str(caught.value)
        assert log_of(directory) == before, cut

        for name, data in intact.items():
            (directory / "commitlog" / name).write_bytes(data)

    with rmqstore.open(directory) as store:
        assert len(check_agreement(store)) == COUNT


@pytest.mark.parametrize("damage", [zeros, garbage])
def test_refused_store_reads_on_read_only(
    damage: Damage, closed: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = closed
    last = receipts[-1]

    # Behind the body the damage takes the CRC property along, and a record without one is legal.
    body_end = last.physical_offset + BODY_AT + len(body_of(COUNT - 1))

    for cut in range(last.physical_offset, body_end, 7):
        directory = tmp_path / str(cut)
        shutil.copytree(original, directory)
        damage_log(directory, cut, last.end_offset, damage)
        before = log_of(directory)

        with rmqstore.open(directory, read_only=True) as store:
            for number, receipt in enumerate(receipts[:-1]):
                record = store.get("orders", queue=receipt.queue, offset=receipt.queue_offset)
                assert record.body == body_of(number)
            with pytest.raises((CorruptionError, rmqstore.OffsetOutOfRange)):
                store.get("orders", queue=last.queue, offset=last.queue_offset)
        assert log_of(directory) == before


def test_record_damaged_in_the_middle_of_a_crashed_store_saves_the_whole_ones_behind_it(
    crashed: tuple[Path, list[Receipt]], tmp_path: Path
) -> None:
    original, receipts = crashed
    directory = tmp_path / "store"
    shutil.copytree(original, directory)
    middle, last = receipts[4], receipts[-1]
    damage_log(directory, middle.physical_offset, middle.end_offset, garbage)
    damaged = (directory / "commitlog" / f"{0:020}").read_bytes()
    with rmqstore.open(directory) as store:
        assert store.end_offset == middle.physical_offset
        assert store.recovery.cut_bytes == last.end_offset - middle.physical_offset
        saved = (directory / store.recovery.cut_path).read_bytes()
        assert saved == damaged[middle.physical_offset : last.end_offset]
        assert len(check_agreement(store)) == 4


def test_damage_before_what_the_checkpoint_vouches_for_is_refused_after_a_crash(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "store"
    with rmqstore.open(directory, **FILES) as store:
        receipts = [store.put("orders", bytes(5000), keys=["k"]) for _ in range(40)]
    store = rmqstore.open(directory)
    store.abandon()
    damaged = receipts[30]
    path = directory / "commitlog" / f"{damaged.physical_offset // 65536 * 65536:020}"
    data = bytearray(path.read_bytes())
    data[damaged.physical_offset % 65536 + 200] ^= 1
    path.write_bytes(data)
    before = log_of(directory)
    with pytest.raises(CorruptionError, match=str(damaged.physical_offset)):
        rmqstore.open(directory)
    assert log_of(directory) == before
