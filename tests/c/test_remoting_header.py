"""Headers of remoting frames, between inaccessible memory pages; docs/protocols.md."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.c.memory import GuardedMemory
from tests.golden.remoting import every_frame

JSON, BINARY = 0, 1


def text_of(ffi: Any, slice_: Any) -> bytes:
    return bytes(ffi.buffer(slice_.data, slice_.size))


def read(core: Any, header: bytes, kind: int) -> Any:
    """Return the fields and texts read from *header*; None when the header is not plain."""
    ffi, lib = core
    found = ffi.new("struct rmq_remoting_header *")
    answers: list[bool] = []
    with GuardedMemory(len(header) + 1) as memory:
        for place in (memory.put_first(header), memory.put_last(header)):
            data = ffi.cast("const uint8_t *", place)
            answers.append(lib.rmq_remoting_header_read(data, len(header), kind, found))
        assert answers[0] == answers[1]
        if not answers[0]:
            return None
        fields = [
            (text_of(ffi, found.fields[i].key.bytes), text_of(ffi, found.fields[i].value.bytes))
            for i in range(found.field_count)
        ]
    return found.code, found.flag, found.opaque, found.version, fields


def test_every_cut_of_a_golden_header_is_refused_or_read_within_it(core: Any) -> None:
    frames = {(frame[4], len(frame) // 100): frame for frame in every_frame()}
    for frame in frames.values():
        header = frame[8 : 8 + int.from_bytes(frame[5:8], "big")]
        assert read(core, header, frame[4]) is not None
        for size in range(len(header)):
            assert read(core, header[:size], frame[4]) is None


@given(data=st.binary(max_size=80), kind=st.sampled_from([JSON, BINARY]))
@example(data=b"", kind=JSON)
@example(data=b'{"code":1', kind=JSON)
@example(data=b'{"extFields":{"a":"\\', kind=JSON)
@example(data=b'{"remark":"', kind=JSON)
def test_any_bytes_are_read_within_their_bounds(core: Any, data: bytes, kind: int) -> None:
    read(core, data, kind)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"{}", (0, 0, 0, 0, [])),
        (b' {\n"code" : -2147483648 , "flag":2147483647}\r\n', (-2147483648, 2147483647, 0, 0, [])),
        (
            b'{"extFields":{"a":"1","a":"2"},"version":-0}',
            (0, 0, 0, 0, [(b"a", b"1"), (b"a", b"2")]),
        ),
        (b'{"extFields":{"a":"1"},"extFields":{}}', (0, 0, 0, 0, [])),
        (b'{"code":2147483648}', None),
        (b'{"code":-2147483649}', None),
        (b'{"code":99999999999999999999}', None),
        (b'{"code":01}', None),
        (b'{"code":1.0}', None),
        (b'{"code":-}', None),
        (b'{"code":"1"}', None),
        (b'{"code":1,}', None),
        (b'{"code":1}{', None),
        (b'{"other":1}', None),
        (b'{"remark":null}', None),
        (b'{"extFields":{"a":1}}', None),
        (b'{"extFields":{"$ref":"$"}}', None),
        (b'{"remark":"\n"}', None),
        (b'{"language":"\\u004aAVA"}', None),
        (b'{"serializeTypeCurrentRPC":"\xff"}', None),
        (b"[]", None),
    ],
)
def test_plain_json_is_read_and_nothing_else(core: Any, text: bytes, expected: Any) -> None:
    assert read(core, text, JSON) == expected


def test_more_fields_than_there_is_room_for_are_left_to_the_other_reader(core: Any) -> None:
    for count, is_read in ((64, True), (65, False)):
        fields = {f"k{number}": "v" for number in range(count)}
        text = json.dumps({"extFields": fields}).encode()
        assert (read(core, text, JSON) is not None) is is_read


def unescape(core: Any, text: bytes) -> bytes | None:
    ffi, lib = core
    kept, written = ffi.from_buffer(text), ffi.new("size_t *")
    with GuardedMemory(len(text) + 1) as memory:
        room = ffi.cast("char *", memory.put_last(text))
        slice_ = ffi.new("struct rmq_slice *", {"data": kept, "size": len(text)})
        if not lib.rmq_remoting_unescape(slice_[0], room, written):
            return None
        return bytes(ffi.buffer(room, written[0]))


@given(st.text(max_size=50), st.booleans())
def test_escapes_are_those_of_json(core: Any, text: str, is_ascii: bool) -> None:
    if any("\ud800" <= each <= "\udfff" for each in text):
        return
    escaped = json.dumps(text, ensure_ascii=is_ascii)[1:-1].encode()
    assert unescape(core, escaped) == text.encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'\\/\\b\\f\\n\\r\\t\\"\\\\', b'/\b\f\n\r\t"\\'),
        (b"\\uD83D\\uDE00", "\U0001f600".encode()),
        (b"\\ud83d", "\ufffd".encode()),
        (b"\\ud83dx", "\ufffdx".encode()),
        (b"\\ud83d\\u0041", "\ufffdA".encode()),
        (b"\\ude00\\ud83d", "\ufffd\ufffd".encode()),
        (b"\\u004", None),
        (b"\\u00g0", None),
        (b"\\ud83d\\u12", None),
        (b"\\x41", None),
        (b"\\", None),
        (b"a\\", None),
    ],
)
def test_odd_escapes_are_replaced_or_refused(
    core: Any, text: bytes, expected: bytes | None
) -> None:
    assert unescape(core, text) == expected
