"""Frames, JSON and headers of remoting against the reference codec, and hostile bytes."""

from __future__ import annotations

import importlib
import json
import pkgutil
import random
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rmqstore._native.core import make_remoting_header, read_remoting_header
from rmqstore.errors import InvalidFieldError, RemotingFrameError
from rmqstore.nameserver.kv import KvConfig
from rmqstore.remoting import bodies, fastjson, headers
from rmqstore.remoting.bodies.batch import batch_properties
from rmqstore.remoting.bodies.controller import decode_sync_state_data, names_of
from rmqstore.remoting.bodies.messages import decode_messages
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.codes import LanguageCode
from rmqstore.remoting.frames import (
    Frame,
    FrameDecoder,
    SerializeType,
    encode,
    read_binary_header,
    read_json_header,
)
from rmqstore.remoting.headers.field import Header
from rmqstore.remoting.headers.pull import PullMessageRequestHeader
from rmqstore.remoting.preface import begins_preface, missing_bytes, source_of
from tests.golden.remoting import every_frame
from tests.reference import remoting_frame
from tests.support.effort import rounds

INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
FIELDS = st.dictionaries(TEXT.filter(bool), TEXT, max_size=8)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXT, inner, max_size=5),
    max_leaves=30,
)


_MODULES = [
    importlib.import_module(found.name)
    for package in (headers, bodies)
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}.")
]
HEADERS = [
    each
    for module in _MODULES
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Header) and each.__module__ == module.__name__
]
DECODERS: list[Callable[[bytes], object]] = [
    *(
        each.decode
        for module in _MODULES
        for each in vars(module).values()
        if hasattr(each, "decode") and each.__module__ == module.__name__
        if each is not RegisterBrokerBody
    ),
    lambda body: RegisterBrokerBody.decode(body, compressed=False, version=479),
    lambda body: RegisterBrokerBody.decode(body, compressed=True, version=479),
    lambda body: RegisterBrokerBody.decode(body, compressed=False, version=0),
    *(decode_messages, decode_sync_state_data, names_of, KvConfig.decode),
    lambda body: list(batch_properties(body)),
]
HOSTILE = (b'{"$ref":"$"}', b"\\ud800", b"[[[[", b"1e999", b"9" * 50)
SIGNS = (b"{", b"}", b'"', b"\\", b",", b":", b"[", b"]", b"'", b"0:", b"\xc3")


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """A frame that either type of header can hold."""
    fields = draw(FIELDS)
    kind = draw(st.sampled_from(SerializeType))
    return Frame(
        draw(INT16),
        flag=draw(INT32),
        opaque=draw(INT32),
        language=draw(st.sampled_from(LanguageCode)),
        version=draw(INT16),
        remark=draw(st.none() | TEXT.filter(bool)),
        ext_fields=fields,
        body=draw(st.binary(max_size=100)),
        serialize_type=kind,
        has_ext_fields=bool(fields) or (kind == SerializeType.JSON and draw(st.booleans())),
    )


def told_by(frame: Frame) -> dict[str, Any]:
    return {
        "type": frame.serialize_type,
        "code": frame.code,
        "language": frame.language,
        "version": frame.version,
        "opaque": frame.opaque,
        "flag": frame.flag,
        "remark": frame.remark,
        "fields": frame.ext_fields if frame.has_ext_fields else None,
        "body": frame.body,
    }


@given(frames())
def test_frames_are_written_and_read_as_by_the_reference(frame: Frame) -> None:
    data = remoting_frame.encode(told_by(frame))
    assert encode(frame) == data
    assert FrameDecoder().feed(data) == [frame]
    assert remoting_frame.decode(data) == told_by(frame)


@given(st.lists(frames(), max_size=4), st.lists(st.integers(1, 400)))
def test_frames_are_read_whatever_the_pieces(sent: list[Frame], sizes: list[int]) -> None:
    stream = b"".join(map(encode, sent))
    decoder = FrameDecoder()
    found: list[Frame] = []
    for size in sizes:
        found += decoder.feed(stream[:size])
        stream = stream[size:]
    assert found + decoder.feed(stream) == sent
    assert decoder.held_bytes == 0


def require_message(error: Exception, *parts: str) -> None:
    """The message has a bounded length for any input."""
    assert len(str(error)) < 500
    assert all(part in str(error) for part in parts)


def survive(stream: bytes, rng: random.Random) -> None:
    """Feed *stream*: it is decoded or refused; decoded frames survive another round trip."""
    decoder = FrameDecoder(limit=1 << 20)
    found: list[Frame] = []

    try:
        while stream:
            size = rng.randint(1, len(stream))
            found += decoder.feed(stream[:size])
            stream = stream[size:]
            assert decoder.held_bytes < 1 << 20
    except RemotingFrameError as error:
        require_message(error)

    for frame in found:
        assert FrameDecoder().feed(encode(frame)) == [frame]
        survive_body(frame.body, rng)
        for header in rng.sample(HEADERS, 15):
            try:
                header.from_fields(frame.ext_fields)
            except InvalidFieldError as error:
                require_message(error, error.field)


def survive_body(body: bytes, rng: random.Random) -> None:
    for decode in rng.sample(DECODERS, 5):
        try:
            decode(body)
        except RemotingFrameError as error:
            require_message(error)
    try:
        value = fastjson.loads(body)
    except RemotingFrameError as error:
        require_message(error)
    else:
        assert fastjson.loads(fastjson.dumps(value)) == value


@given(st.binary(max_size=300), st.randoms(use_true_random=False))
def test_any_bytes_are_frames_or_refused(data: bytes, rng: random.Random) -> None:
    survive(data, rng)


@pytest.mark.parametrize("seed", range(10))
def test_changed_golden_frames_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    golden = every_frame()
    for _ in range(rounds(150, 20_000)):
        stream = bytearray(b"".join(rng.choices(golden, k=rng.randint(1, 3))))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(stream))
            change = rng.randrange(5)
            if change == 0:
                stream[at] ^= 1 << rng.randrange(8)
            elif change == 1:
                stream[at] = rng.choice(b"\0\x01\x7f\xff{}[]\",:\\'$0a")
            elif change == 2:
                del stream[at : at + rng.randint(1, 20)]
            elif change == 3:
                stream[at:at] = stream[at : at + rng.randint(1, 50)]
            else:
                stream[at:at] = rng.choice(HOSTILE)
            stream = stream or bytearray(1)
        survive(bytes(stream), rng)


@pytest.mark.parametrize("seed", range(10))
def test_changed_golden_bodies_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    bodies = [frame.body for data in every_frame() for frame in FrameDecoder().feed(data)]
    bodies = [body for body in bodies if body[:1] in (b"{", b"[")]
    for _ in range(rounds(150, 20_000)):
        body = bytearray(rng.choice(bodies))
        for _ in range(rng.randint(1, 6)):
            at = rng.randrange(len(body) + 1)
            piece = rng.choice(SIGNS)
            body[at : at + rng.randint(0, 2)] = piece
        survive_body(bytes(body), rng)


def agree(header: bytes, is_binary: bool) -> bool:
    """Return whether the C reader accepts *header*; its result must equal that of Python."""
    plain = read_remoting_header(header, is_binary)
    if plain is None:
        return False
    read = read_binary_header if is_binary else read_json_header
    data = struct.pack(">II", 4 + len(header), is_binary << 24 | len(header)) + header
    assert FrameDecoder().feed(data) == [read(header)]
    return True


def test_the_reader_in_c_reads_every_golden_header() -> None:
    for data in every_frame():
        word = int.from_bytes(data[4:8], "big")
        assert agree(data[8 : 8 + (word & 0xFFFFFF)], bool(word >> 24))


@given(frames())
@example(Frame(0, ext_fields={"$": ""}, has_ext_fields=True))
def test_the_reader_in_c_reads_what_is_written(frame: Frame) -> None:
    data = encode(frame)
    word = int.from_bytes(data[4:8], "big")
    is_binary = bool(word >> 24)
    # In JSON such a field may be a reference, which Python reads.
    is_left = not is_binary and any(name.startswith("$") for name in frame.ext_fields)
    assert agree(data[8 : 8 + (word & 0xFFFFFF)], is_binary) != is_left


@pytest.mark.parametrize("seed", range(10))
def test_of_a_changed_header_the_readers_say_the_same(seed: int) -> None:
    rng = random.Random(seed)
    golden = every_frame()
    read = 0
    for _ in range(rounds(150, 20_000)):
        data = rng.choice(golden)
        word = int.from_bytes(data[4:8], "big")
        header = bytearray(data[8 : 8 + (word & 0xFFFFFF)])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(header) + 1)
            piece = rng.choice(
                (*SIGNS, b"\\u00e9", b"\\ud83d\\ude00", b"\\ude00", b"7", b"-", b" ")
            )
            header[at : at + rng.randint(0, 2)] = piece
        read += agree(bytes(header), bool(word >> 24))
    assert read


@given(VALUES)
def test_strict_json_is_read_as_by_the_standard_library(value: Any) -> None:
    text = fastjson.dumps(value)
    assert fastjson.loads(text) == json.loads(text) == value
    assert fastjson.loads(json.dumps(value, indent=1).encode()) == value


def dialect(value: Any, rng: random.Random) -> str:
    """Return *value* as a loose writer would write it."""
    space = rng.choice(["", "", " ", "\n\t"])
    if isinstance(value, dict):
        pairs = [
            f"{key if is_number(key) and rng.random() < 0.7 else dialect(key, rng)}{space}:"
            f"{dialect(each, rng)}"
            for key, each in value.items()
        ]
        return "{" + space + ",".join(pairs) + rng.choice(["", ","] if pairs else [""]) + "}"
    if isinstance(value, list):
        return rng.choice(["", "Set"]) + "[" + ",".join(dialect(each, rng) for each in value) + "]"
    if isinstance(value, str) and rng.random() < 0.3 and "'" not in value:
        inner = json.dumps(value, ensure_ascii=rng.random() < 0.5)[1:-1]
        return "'" + inner.replace('\\"', '"') + "'"
    text = json.dumps(value, ensure_ascii=rng.random() < 0.5)
    return text + rng.choice(["", "L"]) if type(value) is int else text


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


@given(
    st.dictionaries(TEXT | st.integers(0, 99).map(str), VALUES, max_size=6),
    st.randoms(use_true_random=False),
)
def test_the_dialect_is_read_as_what_it_says(value: dict[str, Any], rng: random.Random) -> None:
    assert fastjson.loads(dialect(value, rng)) == value


class Unhurried(dict[str, str]):
    """Fields that the C reader leaves to the Python reader."""


@given(
    st.dictionaries(
        st.sampled_from([field.name for field in PullMessageRequestHeader._fields]),
        st.sampled_from(
            ["", "0", "-1", "+7", "2147483648", "9" * 19, "true", "TRUE", "x", "\ud800"]
        )
        | TEXT,
    )
)
def test_both_readers_of_fields_say_the_same(changes: dict[str, str]) -> None:
    pull = {
        "consumerGroup": "g",
        "topic": "t",
        "queueId": "1",
        "queueOffset": "2",
        "maxMsgNums": "3",
        "sysFlag": "4",
        "commitOffset": "5",
        "suspendTimeoutMillis": "6",
        "subVersion": "7",
    }
    for fields in (pull | changes, changes):
        expected: Header | None
        try:
            expected = PullMessageRequestHeader.from_fields(Unhurried(fields))
        except InvalidFieldError:
            expected = None
        plan = PullMessageRequestHeader._plan
        made = make_remoting_header(PullMessageRequestHeader, fields, plan)
        assert made is None or made == expected
        if expected is not None:
            assert PullMessageRequestHeader.from_fields(fields) == expected


@given(st.binary(max_size=200))
def test_any_preface_is_read_or_refused(data: bytes) -> None:
    for stream in (data, b"PROXY " + data, b"\r\n\r\n\0\r\nQUIT\n" + data):
        if not stream or not begins_preface(stream[0]):
            continue
        held = b""
        try:
            while missing := missing_bytes(held):
                assert missing > 0
                if len(held) + missing > len(stream):
                    break
                held = stream[: len(held) + missing]
            else:
                source = source_of(held)
                assert source is None or 0 <= source[1] <= 65535
        except RemotingFrameError:
            pass
