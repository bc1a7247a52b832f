"""The exception tree and the map from the statuses of the C core."""

from __future__ import annotations

import errno
import inspect
import pickle
import re
from pathlib import Path

import pytest

from rmqstore import errors
from rmqstore.errors import STATUS, StoreError, for_status

STATUS_HEADER = Path(__file__).parents[2] / "csrc" / "base" / "status.h"


def make(name: str, *, detail: str = "", os_errno: int = 0, at_offset: int = -1) -> StoreError:
    return for_status(STATUS[name], f"text of {name}", detail, os_errno, at_offset)


def test_status_table_equals_the_c_header() -> None:
    rows = re.findall(r"\bX\((\w+), (\d+), \"", STATUS_HEADER.read_text())
    assert {name: int(code) for name, code in rows} == dict(STATUS)


@pytest.mark.parametrize(
    ("name", "expected", "builtin"),
    [
        ("NOT_FOUND", errors.NotFoundError, LookupError),
        ("INVALID", errors.ArgumentError, ValueError),
        ("NO_MEMORY", errors.StoreMemoryError, MemoryError),
        ("IO", errors.DiskError, OSError),
        ("NO_SPACE", errors.NotWritable, Exception),
        ("CORRUPT", errors.CorruptionError, Exception),
        ("LOCKED", errors.StoreLockedError, Exception),
        ("CLOSED", errors.StoreClosedError, ValueError),
        ("READ_ONLY", errors.NotWritable, Exception),
        ("OUT_OF_RANGE", errors.OffsetOutOfRange, IndexError),
        ("MESSAGE_ILLEGAL", errors.MessageRejected, ValueError),
        ("PROPERTIES_TOO_LARGE", errors.MessageRejected, ValueError),
        ("NOT_WRITABLE", errors.NotWritable, Exception),
        ("PAGE_CACHE_BUSY", errors.PageCacheBusy, Exception),
        ("FLUSH_TIMEOUT", errors.FlushTimeout, TimeoutError),
        ("TIMEOUT", errors.StoreTimeout, TimeoutError),
        ("BUSY", errors.ViewsOpenError, BufferError),
        ("UNSUPPORTED", errors.UnsupportedStoreError, Exception),
        ("FORKED", errors.StoreClosedError, ValueError),
    ],
)
def test_each_status_raises_its_class_and_its_builtin(
    name: str, expected: type[StoreError], builtin: type[Exception]
) -> None:
    error = make(name, detail="queue orders/0")
    assert type(error) is expected
    assert isinstance(error, builtin)
    assert f"text of {name}: queue orders/0" in str(error)


def test_every_status_but_ok_has_an_exception() -> None:
    for name in STATUS.keys() - {"OK"}:
        assert isinstance(make(name), StoreError)


def test_full_disk_in_a_system_call_keeps_its_errno() -> None:
    error = make("NO_SPACE", os_errno=errno.ENOSPC)
    assert isinstance(error, errors.DiskError)
    assert error.errno == errno.ENOSPC


def test_put_refused_for_a_full_disk_was_not_stored() -> None:
    error = make("NO_SPACE")
    assert isinstance(error, errors.NotWritable)
    assert error.stored is False


def test_failed_call_without_errno_counts_as_input_output_error() -> None:
    error = make("IO")
    assert isinstance(error, errors.DiskError)
    assert error.errno == errno.EIO


def test_corruption_names_its_offset_once() -> None:
    error = make("CORRUPT", detail="record at 4711 has no magic", at_offset=4711)
    assert isinstance(error, errors.CorruptionError)
    assert error.physical_offset == 4711
    assert str(error).count("4711") == 1
    assert error.suggested_command


def test_offset_missing_from_the_detail_is_added() -> None:
    assert "(offset 12)" in str(make("OUT_OF_RANGE", detail="queue a/0", at_offset=12))


def test_flush_timeout_tells_that_the_message_is_stored() -> None:
    error = make("FLUSH_TIMEOUT")
    assert isinstance(error, errors.FlushTimeout)
    assert (error.stored, error.retriable, error.status) == (True, True, "FLUSH_DISK_TIMEOUT")


def test_properties_too_large_carries_its_own_put_status() -> None:
    error = make("PROPERTIES_TOO_LARGE")
    assert isinstance(error, errors.MessageRejected)
    assert error.status == "PROPERTIES_SIZE_EXCEEDED"


def test_unknown_status_is_still_a_store_error() -> None:
    assert type(for_status(999, "odd", "", 0, -1)) is StoreError


def test_config_error_lists_every_violation() -> None:
    error = errors.ConfigError(["a: too small", "b: unknown"], source="broker.conf")
    assert str(error) == "2 configuration mistakes in broker.conf:\n  a: too small\n  b: unknown"


@pytest.mark.parametrize(
    "error",
    [
        errors.ConfigError(["a"], source="x"),
        errors.CorruptionError("bad", path="p", physical_offset=5, kind="k"),
        errors.DiskError(errno.EIO, "failed"),
        errors.Fenced("old", epoch=3, master="m"),
        errors.FlushTimeout("late", receipt=(1, 2)),
        errors.MessageRejected("long", status="PROPERTIES_SIZE_EXCEEDED"),
        errors.OffsetOutOfRange("off", start=1, end=9, nearest=1),
        errors.RemotingError("no", code=4, remark="r"),
        errors.StoreLockedError("held", process_id=77),
    ],
)
def test_errors_survive_pickling(error: StoreError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__


def test_exported_names_are_sorted_and_complete() -> None:
    public = {
        name
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, StoreError)
    }
    makers = {
        name
        for name, value in vars(errors).items()
        if inspect.isfunction(value) and value.__module__ == errors.__name__ and name[0] != "_"
    }
    assert set(errors.__all__) == public | makers | {"STATUS"}


def test_number_of_a_descriptor_is_not_shown_as_the_path() -> None:
    with pytest.raises(errors.DiskError) as caught, errors.disk_errors("saving"):
        raise OSError(errno.ENOSPC, "No space left on device", 12)
    assert str(caught.value) == "[Errno 28] saving failed: No space left on device"
