"""The consume queue extension: units by address."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden import GoldenCases, every_case
from tests.reference import consume_queue_ext as reference
from tests.reference.consume_queue_ext import ADDRESS_BASE, Unit

FILE_SIZE = 128


class Extension:
    """One open extension; leaving the block closes it without a flush, as a crash would."""

    def __init__(
        self, core: Any, path: Path, *, file_size: int = FILE_SIZE, read_only: bool = False
    ) -> None:
        self.ffi, self.lib = core
        self.ext = self.ffi.new("struct rmq_consume_queue_ext *")
        self.error = self.ffi.new("struct rmq_error *")
        self.check(
            self.lib.rmq_consume_queue_ext_open(
                self.ext, self.lib.rmq_vfs_posix(), bytes(path), file_size, read_only, self.error
            )
        )

    def __enter__(self) -> Extension:
        return self

    def __exit__(self, *_: object) -> None:
        self.lib.rmq_consume_queue_ext_close(self.ext)

    def check(self, status: int) -> None:
        assert status == 0, (status, self.ffi.string(self.error.detail))

    def put(self, unit: Unit) -> tuple[int, int]:
        bitmap = self.ffi.from_buffer("uint8_t[]", unit.bitmap)
        address = self.ffi.new("int64_t *")
        native = self.ffi.new(
            "struct rmq_ext_unit *",
            {
                "bitmap": bitmap,
                "tags_code": unit.tags_code,
                "store_timestamp": unit.store_timestamp,
                "bitmap_size": len(unit.bitmap),
            },
        )
        status = self.lib.rmq_consume_queue_ext_append(self.ext, native, address, self.error)
        return status, address[0]

    def append(self, unit: Unit) -> int:
        status, address = self.put(unit)
        self.check(status)
        return address

    def recover(self) -> int:
        self.check(self.lib.rmq_consume_queue_ext_recover(self.ext, self.error))
        return int(self.ext.files.end_offset)

    def truncate(self, last: int) -> int:
        """Keep the units up to and including the one at address *last*."""
        end = self.ffi.new("int64_t *")
        status: int = self.lib.rmq_consume_queue_ext_end_of(self.ext, last, end, self.error)
        if status == 0:
            self.cut(end[0])
        return status

    def cut(self, end: int) -> None:
        self.check(self.lib.rmq_consume_queue_ext_truncate(self.ext, end, self.error))

    def expire(self, first: int) -> None:
        self.check(self.lib.rmq_consume_queue_ext_expire(self.ext, first, self.error))

    def get(self, address: int) -> Unit | None:
        buffer = self.ffi.new("uint8_t[]", 32767)
        unit = self.ffi.new("struct rmq_ext_unit *")
        status = self.lib.rmq_consume_queue_ext_read(self.ext, address, buffer, unit, self.error)
        if status == self.lib.RMQ_NOT_FOUND:
            return None
        self.check(status)
        bitmap = self.ffi.buffer(unit.bitmap, unit.bitmap_size)[:]
        return Unit(unit.tags_code, unit.store_timestamp, bitmap)


def units_of(*sizes: int) -> list[Unit]:
    return [Unit(n - 1, 1_700_000_000_000 + n, bytes(range(size))) for n, size in enumerate(sizes)]


def run_of_files(path: Path) -> bytes:
    found = sorted(path.iterdir())
    assert [int(file.name) for file in found] == [n * FILE_SIZE for n in range(len(found))]
    return b"".join(file.read_bytes() for file in found)


@given(st.lists(st.integers(0, FILE_SIZE - 24), max_size=20))
def test_appended_units_are_the_bytes_of_the_reference(
    core: Any, tmp_path_factory: pytest.TempPathFactory, sizes: list[int]
) -> None:
    path = tmp_path_factory.mktemp("ext")
    units = units_of(*sizes)
    addresses, data = reference.encode(units, file_size=FILE_SIZE)
    with Extension(core, path) as ext:
        assert [ext.append(unit) for unit in units] == addresses
        assert [ext.get(address) for address in addresses] == units
        end = ext.ext.files.end_offset
    assert run_of_files(path) == data
    with Extension(core, path) as ext:
        assert ext.recover() == end
        assert [ext.get(address) for address in addresses] == units
    assert run_of_files(path) == data


@pytest.mark.parametrize(("file_size", "limit"), [(FILE_SIZE, 104), (1 << 20, 32747)])
def test_bitmap_over_the_limit_is_refused(
    core: Any, tmp_path: Path, file_size: int, limit: int
) -> None:
    with Extension(core, tmp_path, file_size=file_size) as ext:
        status, _ = ext.put(Unit(1, 2, bytes(limit + 1)))
        assert status == ext.lib.RMQ_INVALID
        assert str(limit).encode() in ext.ffi.string(ext.error.detail)
        address = ext.append(Unit(1, 2, bytes(limit)))
        assert ext.get(address) == Unit(1, 2, bytes(limit))


def test_file_size_too_small_for_a_unit_is_refused(core: Any, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="file size 23 is not in 24"):
        Extension(core, tmp_path, file_size=23)


@pytest.mark.parametrize(
    "address", [0, -1, -2147483648, ADDRESS_BASE + 1, ADDRESS_BASE + 30, ADDRESS_BASE + 5000]
)
def test_value_that_leads_to_no_unit_is_not_found(core: Any, tmp_path: Path, address: int) -> None:
    with Extension(core, tmp_path) as ext:
        assert ext.get(address) is None
        assert ext.append(units_of(10)[0]) == ADDRESS_BASE
        assert ext.get(address) is None


@pytest.mark.parametrize("keep", range(8))
def test_truncate_keeps_units_up_to_the_last_address(core: Any, tmp_path: Path, keep: int) -> None:
    units = units_of(8, 30, 30, 70, 4, 0, 90, 20)
    with Extension(core, tmp_path) as ext:
        addresses = [ext.append(unit) for unit in units]
        assert ext.truncate(addresses[keep]) == 0
        assert [ext.get(at) for at in addresses[: keep + 1]] == units[: keep + 1]
        assert [ext.get(at) for at in addresses[keep + 1 :]] == [None] * (7 - keep)
    assert run_of_files(tmp_path) == reference.encode(units[: keep + 1], file_size=FILE_SIZE)[1]
    with Extension(core, tmp_path) as ext:
        ext.recover()
        assert [ext.append(unit) for unit in units[keep + 1 :]] == addresses[keep + 1 :]


def test_truncate_to_no_address_drops_everything(core: Any, tmp_path: Path) -> None:
    with Extension(core, tmp_path) as ext:
        for unit in units_of(60, 60, 60):
            ext.append(unit)
        assert ext.truncate(2567159) == 0
    assert list(tmp_path.iterdir()) == []


def test_truncate_to_an_address_without_unit_changes_nothing(core: Any, tmp_path: Path) -> None:
    with Extension(core, tmp_path) as ext:
        addresses = [ext.append(unit) for unit in units_of(60, 60)]
        assert ext.truncate(addresses[0] + 1) == ext.lib.RMQ_NOT_FOUND
        assert ext.truncate(addresses[1] + 4000) == ext.lib.RMQ_NOT_FOUND
        assert [ext.get(at) for at in addresses] == units_of(60, 60)


def test_expiry_unlinks_files_before_the_first_address(core: Any, tmp_path: Path) -> None:
    units = units_of(60, 60, 60, 60)
    with Extension(core, tmp_path) as ext:
        addresses = [ext.append(unit) for unit in units]
        ext.expire(7)
        assert len(list(tmp_path.iterdir())) == 4
        ext.expire(addresses[2])
        assert [ext.get(at) for at in addresses] == [None, None, *units[2:]]
        assert sorted(file.name for file in tmp_path.iterdir()) == [f"{256:020d}", f"{384:020d}"]
    with Extension(core, tmp_path) as ext:
        assert ext.recover() == 464
        assert [ext.get(at) for at in addresses[2:]] == units[2:]


@pytest.mark.parametrize("cut", range(1, 80))
def test_recovery_ends_after_the_last_whole_unit_for_every_torn_byte(
    core: Any, tmp_path: Path, cut: int
) -> None:
    units = units_of(20, 60)
    whole, _ = reference.encode(units[:1], file_size=FILE_SIZE)

    with Extension(core, tmp_path) as ext:
        addresses = [ext.append(unit) for unit in units]

    file = tmp_path / ("0" * 20)
    data = bytearray(file.read_bytes())
    data[40 + cut : 120] = bytes(80 - cut)
    file.write_bytes(data)

    with Extension(core, tmp_path) as ext:
        # From byte 20 on the sizes agree and only the bitmap is torn, which nothing can tell.
        end = 120 if cut >= 20 else 40
        assert ext.recover() == end
        assert ext.get(addresses[0]) == units[0]
        assert (ext.get(addresses[1]) is None) == (end == 40)
        assert file.read_bytes() == data
        ext.cut(end)

    assert whole == [ADDRESS_BASE]
    assert file.read_bytes()[end:] == bytes(FILE_SIZE - end)


@pytest.mark.parametrize(
    "head", [b"\x7f\xff", b"\x80\x00", b"\x00\x13", b"\x00\x14" + bytes(16) + b"\x7f\xff"]
)
def test_hostile_sizes_end_the_walk(core: Any, tmp_path: Path, head: bytes) -> None:
    (tmp_path / ("0" * 20)).write_bytes((b"\x00\x14" + bytes(18) + head).ljust(FILE_SIZE, b"\1"))
    with Extension(core, tmp_path) as ext:
        assert ext.recover() == 20
        assert ext.get(ADDRESS_BASE) == Unit(0, 0, b"")
        assert ext.get(ADDRESS_BASE + 20) is None


def test_read_only_recovery_changes_no_file(core: Any, tmp_path: Path) -> None:
    with Extension(core, tmp_path) as ext:
        address = ext.append(units_of(30)[0])
    file = tmp_path / ("0" * 20)
    before = file.read_bytes()[:60] + b"stray" + bytes(FILE_SIZE - 65)
    file.write_bytes(before)
    with Extension(core, tmp_path, read_only=True) as ext:
        assert ext.recover() == 50
        assert ext.get(address) == units_of(30)[0]
    assert file.read_bytes() == before


@every_case("cq-ext")
def test_golden_extension_is_read_and_written_again_byte_for_byte(
    core: Any, golden_cases: GoldenCases, tmp_path: Path, release: str, case_name: str
) -> None:
    case = golden_cases.copy(release, case_name, into=tmp_path)
    file_size = case.spec["store"]["mappedFileSizeConsumeQueueExt"]

    units: dict[tuple[str, int], dict[int, Unit]] = {}
    for line in case.manifest:
        for entry in line["consumeQueues"]:
            bitmap = bytes.fromhex(entry["bitMap"])
            unit = Unit(entry["tagsCode"], line["storeTimestamp"], bitmap)
            units.setdefault((entry["topic"], entry["queueId"]), {})[entry["extAddress"]] = unit

    assert len(units) == 3

    for (topic, queue_id), by_address in units.items():
        path = case.root / "consumequeue_ext" / topic / str(queue_id)
        before = {file.name: file.read_bytes() for file in path.iterdir()}
        with Extension(core, path, file_size=file_size) as ext:
            ext.recover()
            assert {address: ext.get(address) for address in by_address} == by_address
        assert {file.name: file.read_bytes() for file in path.iterdir()} == before

        again = tmp_path / "again" / topic / str(queue_id)
        with Extension(core, again, file_size=file_size) as ext:
            assert [ext.append(unit) for unit in by_address.values()] == list(by_address)
        assert {file.name: file.read_bytes() for file in again.iterdir()} == before
