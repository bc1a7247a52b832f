"""Frames of the remoting protocol: measured layouts, leniency as in Java, and other bytes."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import pytest

from rmqstore.errors import RemotingError, RemotingFrameError
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.frames import (
    FRAME_SIZE_MAX,
    HEADER_SIZE_MAX,
    Frame,
    FrameDecoder,
    SerializeType,
    encode,
)

# Measured with the jars of RocketMQ 5.3.3: GET_ROUTEINFO_BY_TOPIC for TopicTest, opaque 7.
JSON_FRAME = bytes.fromhex("0000008700000083") + (
    b'{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":7,'
    b'"serializeTypeCurrentRPC":"JSON","version":479}'
)
BINARY_FRAME = bytes.fromhex(
    "0000002d 01000029 0069 00 01df 00000007 00000000 00000000"
    "00000014 0005 746f706963 00000009 546f70696354657374"
)
ANSWER = bytes.fromhex("000000650000005f") + (
    b'{"code":0,"flag":1,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON",'
    b'"version":479}xx'
)
ASKED = Frame(
    105,
    opaque=7,
    language=LanguageCode.JAVA,
    ext_fields={"topic": "TopicTest"},
    has_ext_fields=True,
)


def frame_with(header: bytes | dict[str, Any], *, kind: int = 0, body: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack(">II", 4 + len(text) + len(body), kind << 24 | len(text)) + text + body


def binary_with(entries: bytes, *, size: int | None = None, remark: bytes = bytes(4)) -> bytes:
    told = len(entries) if size is None else size
    header = struct.pack(">hbhii", 105, 0, 479, 7, 0) + remark + struct.pack(">i", told) + entries
    return frame_with(header, kind=1)


def only(data: bytes) -> Frame:
    [frame] = FrameDecoder().feed(data)
    return frame


def test_measured_json_frame_is_read_and_written() -> None:
    assert only(JSON_FRAME) == ASKED
    assert encode(ASKED) == JSON_FRAME


def test_measured_binary_frame_is_read_and_written() -> None:
    asked = replace(ASKED, serialize_type=SerializeType.ROCKETMQ)
    assert only(BINARY_FRAME) == asked
    assert encode(asked) == BINARY_FRAME


def test_measured_answer_has_its_body_and_no_fields() -> None:
    frame = only(ANSWER)
    assert (frame.code, frame.body, frame.is_response) == (0, b"xx", True)
    assert (frame.ext_fields, frame.has_ext_fields) == ({}, False)
    assert encode(frame) == ANSWER


@pytest.mark.parametrize("kind", SerializeType)
def test_response_has_opaque_flag_and_type_of_its_request(kind: SerializeType) -> None:
    asked = replace(ASKED, serialize_type=kind)
    answer = asked.respond(ResponseCode.TOPIC_NOT_EXIST, "no topic", {"a": "1"}, b"body")
    assert (answer.opaque, answer.flag, answer.language) == (7, 1, LanguageCode.PYTHON)
    assert only(encode(answer)) == answer


def test_response_shows_its_fields_although_they_are_empty() -> None:
    assert b'"extFields":{}' in encode(ASKED.respond(0, fields={}))
    assert b"extFields" not in encode(ASKED.respond(0))


def test_copy_for_sending_leaves_the_request_as_it_was() -> None:
    request = Frame.request(RequestCode.BROKER_HEARTBEAT, {"brokerName": "a"})
    sent = request.with_opaque(9, is_one_way=True)
    assert (sent.opaque, sent.is_one_way, sent.is_response) == (9, True, False)
    assert (request.opaque, request.is_one_way) == (0, False)


def test_codes_other_than_the_accepted_raise_with_code_and_remark() -> None:
    answer = ASKED.respond(ResponseCode.TOPIC_NOT_EXIST, "no topic")
    assert answer.raise_for_code(ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST) is answer
    with pytest.raises(RemotingError, match=r"TOPIC_NOT_EXIST \(17\): no topic") as caught:
        answer.raise_for_code()
    assert (caught.value.code, caught.value.remark) == (17, "no topic")


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({}, Frame(0, version=0, language=LanguageCode.JAVA)),
        ({"language": 3}, Frame(0, version=0, language=LanguageCode.PYTHON)),
        ({"language": "COBOL"}, Frame(0, version=0, language=LanguageCode.OTHER)),
        ({"language": [1]}, Frame(0, version=0, language=LanguageCode.OTHER)),
        (
            {"code": "105", "opaque": "-7"},
            Frame(105, opaque=-7, version=0, language=LanguageCode(0)),
        ),
        ({"remark": None, "flag": None}, Frame(0, version=0, language=LanguageCode.JAVA)),
        ({"remark": 5}, Frame(0, version=0, language=LanguageCode.JAVA, remark="5")),
        ({"unknown": [{}]}, Frame(0, version=0, language=LanguageCode.JAVA)),
    ],
    ids=str,
)
def test_json_header_is_read_as_leniently_as_in_java(
    header: dict[str, Any], expected: Frame
) -> None:
    assert only(frame_with(header)) == expected


def test_json_header_without_quotes_is_read() -> None:
    frame = only(frame_with(b"{code:105,'opaque':7,extFields:{topic:'T'}}"))
    assert (frame.code, frame.opaque, frame.ext_fields) == (105, 7, {"topic": "T"})


def test_fields_that_are_no_texts_become_texts() -> None:
    header = {"extFields": {"a": 1, "b": True, "c": None, "d": 1.5, "e": {"f": [1]}, "g": False}}
    expected = {"a": "1", "b": "true", "d": "1.5", "e": '{"f":[1]}', "g": "false"}
    assert only(frame_with(header)).ext_fields == expected


def test_of_a_key_that_occurs_twice_the_last_value_counts() -> None:
    entries = b"\0\1k\0\0\0\1a" + b"\0\1k\0\0\0\1b"
    assert only(binary_with(entries)).ext_fields == {"k": "b"}
    assert only(frame_with(b'{"extFields":{"k":"a","k":"b"}}')).ext_fields == {"k": "b"}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (struct.pack(">I", FRAME_SIZE_MAX - 3), r"announces 16777217 bytes, the limit is 16777216"),
        (b"GET / HTTP/1.1\r\n", "announces 1195725860 bytes"),
        (struct.pack(">I", 3), "announces 7 bytes, it has at least 8"),
        (struct.pack(">II", 4, 2 << 24), "header of type 2, known are 0"),
        (struct.pack(">II", 40, 37), "of 44 bytes announces a header of 37, 36 are left"),
        (struct.pack(">II", 1 << 23, HEADER_SIZE_MAX + 1), "the limit is 1048576"),
        (frame_with(b"[]"), "header of a frame is not an object"),
        (frame_with(b"{"), "a key is expected"),
        (frame_with(b"\xff\xfe"), "not UTF-8"),
        (frame_with({"code": 1 << 31}), "field code of a frame's header is not a 32-bit integer"),
        (frame_with({"opaque": "7x"}), "field opaque of a frame's header is not an integer: '7x'"),
        (frame_with({"version": True}), "field version of a frame's header is not an integer"),
        (frame_with({"flag": 1.5}), "field flag of a frame's header is not an integer"),
        (frame_with({"extFields": [1]}), "extFields of a frame's header is not an object"),
        (frame_with(b'{"a":' + b"[" * 50000), "deeper than 16 levels"),
        (frame_with(b"{a:1," + b" " * 70_000 + b"}"), "not strict, the limit is 65536"),
        (frame_with(bytes(20), kind=1), "ends inside a field"),
        (binary_with(b"", size=1), "announces 1 bytes of extFields, 0 follow"),
        (binary_with(b"", size=-1), "announces -1 bytes of extFields"),
        (binary_with(b"", remark=struct.pack(">i", 99)), "announces a text of 99 bytes"),
        (binary_with(b"", remark=struct.pack(">i", -2)), "announces a text of -2 bytes"),
        (binary_with(b"\0\5ab\0\0\0\0"), "entry|ends inside"),
        (binary_with(b"\0\1k\0\0\0\2a"), "an entry of a binary header ends outside it"),
        (binary_with(b"\xff\xffk\0\0\0\0"), "entry|ends inside"),
        (binary_with(b"\0\1k\xff\xff\xff\xff"), "an entry of a binary header ends outside it"),
        (binary_with(b"\0\1\xff\0\0\0\0"), "not UTF-8"),
    ],
)
def test_bytes_that_are_no_frame_are_refused(data: bytes, message: str) -> None:
    decoder = FrameDecoder()
    with pytest.raises(RemotingFrameError, match=message):
        decoder.feed(data)
    with pytest.raises(RemotingFrameError, match=message):
        decoder.feed(JSON_FRAME)
    assert decoder.held_bytes == 0


def test_frames_before_the_bytes_that_are_none_are_returned() -> None:
    decoder = FrameDecoder()
    assert decoder.feed(JSON_FRAME + BINARY_FRAME + b"\xff" * 8) == [
        ASKED,
        replace(ASKED, serialize_type=SerializeType.ROCKETMQ),
    ]
    assert "announces" in str(decoder.failure)
    with pytest.raises(RemotingFrameError):
        decoder.feed(b"")


def test_decoder_holds_one_incomplete_frame_at_most() -> None:
    decoder = FrameDecoder(limit=64)
    frame = frame_with(b"{}", body=b"x" * 54)
    assert len(frame) == 64
    assert decoder.feed(frame * 3 + frame[:63]) == [only(frame)] * 3
    assert decoder.held_bytes == 63
    assert decoder.feed(frame[63:]) == [only(frame)]
    with pytest.raises(RemotingFrameError, match="announces 65 bytes, the limit is 64"):
        decoder.feed(frame_with(b"{}", body=b"x" * 55)[:8])


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (Frame(200050, serialize_type=SerializeType.ROCKETMQ), r"POP_MESSAGE \(200050\) does not"),
        (Frame(1, ext_fields={"k" * 40000: ""}, serialize_type=SerializeType(1)), "use the JSON"),
        (Frame(1, ext_fields={"k": "\ud800"}), "not valid Unicode"),
        (Frame(1, remark="\ud800", serialize_type=SerializeType.ROCKETMQ), "not valid Unicode"),
        (Frame(105, body=bytes(FRAME_SIZE_MAX)), r"GET_ROUTEINFO_BY_TOPIC \(105\) has 167"),
        (Frame(1, flag=1, remark="r" * HEADER_SIZE_MAX), r"response SYSTEM_ERROR \(1\) has"),
    ],
    ids=["code", "key", "json", "binary", "frame", "header"],
)
def test_frames_that_no_peer_could_read_are_not_written(frame: Frame, message: str) -> None:
    with pytest.raises(RemotingFrameError, match=message):
        encode(frame)


def test_a_decoder_returns_some_frames_at_a_time() -> None:
    decoder = FrameDecoder()
    data = b"".join(encode(Frame(7, opaque=number)) for number in range(10))
    found = decoder.feed(data[:-1], frames_max=4)
    assert ([each.opaque for each in found], decoder.has_more) == ([0, 1, 2, 3], True)
    assert decoder.held_bytes > 0
    found = decoder.feed(b"", frames_max=4)
    assert ([each.opaque for each in found], decoder.has_more) == ([4, 5, 6, 7], True)
    found = decoder.feed(b"", frames_max=4)
    assert ([each.opaque for each in found], decoder.has_more) == ([8], False)
    [last] = decoder.feed(data[-1:], frames_max=4)
    assert (last.opaque, decoder.has_more, decoder.held_bytes) == (9, False, 0)


def test_bytes_that_are_no_frame_show_after_the_frames_before_them() -> None:
    decoder = FrameDecoder()
    data = b"".join(encode(Frame(7, opaque=number)) for number in range(2)) + b"GET / HTTP/1.1"
    assert len(decoder.feed(data, frames_max=2)) == 2
    assert (decoder.failure, decoder.has_more) == (None, True)
    with pytest.raises(RemotingFrameError):
        decoder.feed(b"", frames_max=2)
    assert not decoder.has_more
