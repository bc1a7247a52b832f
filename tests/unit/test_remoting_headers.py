"""Headers as dataclasses: fields in Java's spelling, and an error that names the field."""

from __future__ import annotations

import dataclasses

import pytest

from rmqstore.errors import InvalidFieldError
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import TopicRequestHeader


@header
class Sample(Header):
    """One field of each kind, required and not."""

    name: str = string("brokerName")
    queue: int = int32("queueId")
    offset: int = int64("queueOffset")
    is_open: bool = boolean("isOpen")
    note: str | None = string("note", default=None)
    epoch: int = int32("epoch", default=-1)
    is_forced: bool = boolean("force", default=False)


@header
class Derived(TopicRequestHeader):
    """Inherits the fields of a topic's request."""

    topic: str = string("topic")


FIELDS = {"brokerName": "a", "queueId": "3", "queueOffset": "-9", "isOpen": "true"}


def test_fields_are_read_and_defaults_filled_in() -> None:
    found = Sample.from_fields(FIELDS | {"unknown": "x"})
    assert found == Sample(name="a", queue=3, offset=-9, is_open=True)
    assert (found.note, found.epoch, found.is_forced) == (None, -1, False)


def test_fields_are_written_with_the_names_of_java() -> None:
    written = Sample(name="a", queue=3, offset=-9, is_open=True).to_fields()
    assert written == FIELDS | {"epoch": "-1", "force": "false"}
    assert Sample.from_fields(written).to_fields() == written


def test_inherited_fields_are_read_and_written() -> None:
    found = Derived.from_fields({"topic": "T", "bname": "b", "lo": "true", "oway": "false"})
    assert found == Derived(topic="T", broker_name="b", is_logical=True, is_one_way=False)
    assert found.to_fields() == {"bname": "b", "oway": "false", "lo": "true", "topic": "T"}


@pytest.mark.parametrize("field", list(FIELDS))
def test_a_missing_field_is_named(field: str) -> None:
    with pytest.raises(InvalidFieldError, match=f"field {field} is missing: send ") as caught:
        Sample.from_fields({key: value for key, value in FIELDS.items() if key != field})
    assert caught.value.field == field
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
    assert caught.value.remark == str(caught.value)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("queueId", value) for value in ("abc", " 3", "3 ", "1_0", "2147483648", "-2147483649")),
        *(("queueId", value) for value in ("+", "-", "0x1", "1.0", "٣", "9" * 5000, "--1")),
        *(("queueOffset", value) for value in ("9223372036854775808", "-9223372036854775809")),
        *(("isOpen", value) for value in ("yes", "1", "tru\u0435")),
        *(("epoch", value) for value in ("x", "2147483648")),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(field: str, value: str) -> None:
    with pytest.raises(InvalidFieldError, match=f"field {field} is ") as caught:
        Sample.from_fields(FIELDS | {field: value})
    assert caught.value.field == field
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("queueId", "2147483647", 2147483647),
        ("queueId", "-2147483648", -2147483648),
        ("queueId", "+7", 7),
        ("queueId", "007", 7),
        ("queueOffset", "9223372036854775807", 9223372036854775807),
        ("queueOffset", "-9223372036854775808", -9223372036854775808),
        ("isOpen", "TRUE", True),
        ("isOpen", "False", False),
        ("brokerName", "", ""),
    ],
)
def test_values_that_java_parses_are_taken(field: str, value: str, expected: object) -> None:
    found = Sample.from_fields(FIELDS | {field: value})
    assert expected in (found.queue, found.offset, found.is_open, found.name)


def test_an_empty_number_is_missing_as_in_a_binary_header() -> None:
    assert Sample.from_fields(FIELDS | {"epoch": "", "force": ""}).epoch == -1
    with pytest.raises(InvalidFieldError, match="field queueId is missing"):
        Sample.from_fields(FIELDS | {"queueId": ""})


def test_headers_are_frozen_and_take_keywords_only() -> None:
    found = Sample.from_fields(FIELDS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.name = "b"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Sample("a", 3, -9, True)  # type: ignore[misc]
