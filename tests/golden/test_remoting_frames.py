"""Recorded frames of Java programs decode to what the recorder found, and encode to their bytes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.pull import PullMessageRequestHeader
from rmqstore.remoting.headers.send import SendMessageRequestHeaderV2
from tests.golden.remoting import SESSIONS, Exchange, every_exchange, every_frame, exchanges
from tests.reference import remoting_frame

KINDS = {"JSON": 0, "ROCKETMQ": 1}


def _decoded(data: bytes) -> Frame:
    [frame] = FrameDecoder().feed(data)
    return frame


def _sides(exchange: Exchange) -> list[tuple[bytes, Any]]:
    told = exchange.told
    sides = [(exchange.request, told["request"]), (exchange.response, told["response"])]
    return [(data, side) for data, side in sides if data is not None]


@pytest.mark.parametrize("session", SESSIONS)
def test_frames_decode_to_what_the_recorder_found(session: str) -> None:
    sides = [side for exchange in exchanges(session) for side in _sides(exchange)]
    assert sides
    for data, told in sides:
        frame, header = _decoded(data), told["header"]
        assert frame.serialize_type == KINDS[told["serialize"]]
        assert frame.code == header["code"]
        assert frame.flag == header["flag"]
        assert frame.opaque == header["opaque"]
        assert frame.version == header["version"]
        assert header["language"] in (frame.language.name, frame.language.value)
        assert frame.remark == header.get("remark")
        assert {k: v or "" for k, v in (header.get("extFields") or {}).items()} == frame.ext_fields
        assert len(frame.body) == told["bodyLength"]
        if "bodyJson" in told:
            assert fastjson.loads(frame.body) == told["bodyJson"]


def test_frames_encode_to_their_bytes() -> None:
    for data in every_frame():
        assert encode(_decoded(data)) == data


def test_frames_in_one_stream_decode_whatever_its_pieces() -> None:
    whole = every_frame()
    stream = b"".join(whole)
    for size in (1, 7, 1000, len(stream)):
        decoder = FrameDecoder()
        found = [
            frame
            for at in range(0, len(stream), size)
            for frame in decoder.feed(stream[at : at + size])
        ]
        assert [encode(frame) for frame in found] == whole
        assert decoder.held_bytes == 0


def test_the_reference_codec_agrees_about_every_frame() -> None:
    for data in every_frame():
        told, frame = remoting_frame.decode(data), _decoded(data)
        assert remoting_frame.encode(told) == data
        assert told["fields"] == (frame.ext_fields if frame.has_ext_fields else None)
        assert (told["code"], told["flag"]) == (frame.code, frame.flag)
        assert (told["opaque"], told["version"]) == (frame.opaque, frame.version)
        assert (told["language"], told["remark"]) == (frame.language, frame.remark)
        assert (told["type"], told["body"]) == (frame.serialize_type, frame.body)


def test_codes_have_the_names_of_the_recorder() -> None:
    for exchange in every_exchange():
        assert RequestCode(exchange.code).name == exchange.name
        if exchange.response is not None:
            ResponseCode(_decoded(exchange.response).code)


def test_bodies_with_objects_as_keys_are_read() -> None:
    found = {str(e): e for e in every_exchange() if e.name == "GET_TOPIC_STATS_INFO"}
    assert found
    for exchange in found.values():
        assert exchange.response is not None
        table = fastjson.loads(_decoded(exchange.response).body)["offsetTable"]
        assert {json.loads(key)["queueId"] for key in table} >= {0, 1}
        assert all(value["maxOffset"] >= value["minOffset"] for value in table.values())


def test_bodies_with_numbers_as_keys_are_read() -> None:
    [exchange] = [
        each
        for each in exchanges("acting")
        if each.name == "GET_BROKER_MEMBER_GROUP" and each.number == 0
    ]
    assert exchange.response is not None
    group = fastjson.loads(_decoded(exchange.response).body)["brokerMemberGroup"]
    assert all(key.isdecimal() for key in group["brokerAddrs"])


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.SEND_MESSAGE_V2, SendMessageRequestHeaderV2),
        (RequestCode.SEND_BATCH_MESSAGE, SendMessageRequestHeaderV2),
        (RequestCode.PULL_MESSAGE, PullMessageRequestHeader),
        (RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader),
    ],
    ids=str,
)
def test_headers_hold_every_recorded_field(
    code: RequestCode, header: type[SendMessageRequestHeaderV2 | PullMessageRequestHeader]
) -> None:
    requests = [_decoded(each.request) for each in every_exchange() if each.code == code]
    assert requests
    for request in requests:
        # ReqT is not a field of the header: the lite pull client adds it.
        expected = {key: text for key, text in request.ext_fields.items() if key != "ReqT"}
        assert header.from_fields(request.ext_fields).to_fields() == expected
