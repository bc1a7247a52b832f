"""Recorded requests to Java nameservers get equal answers here.

A recording has a few exchanges of each code; what happened in between is repeated first. Languages
differ, and so does the remark of one answer, which Java forgets to clear.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from rmqstore.config import NameserverConfig
from rmqstore.nameserver.routes import NotifyMinBrokerId
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.registration import RegisterBrokerBody
from rmqstore.remoting.bodies.topic_config import TopicConfig
from rmqstore.remoting.codes import LanguageCode, RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame, FrameDecoder, encode
from rmqstore.remoting.headers.registration import NotifyMinBrokerIdChangeRequestHeader
from tests.golden.remoting import Exchange, exchanges
from tests.support.nameserver_host import FakeHost

MASTER, SLAVE = 10, 11


def recorded(session: str, code: int, number: int) -> Exchange:
    """Return one exchange of a session."""
    [found] = [
        each for each in exchanges(session) if (each.code, each.number) == (int(code), number)
    ]
    return found


def frame_of(data: bytes | None) -> Frame:
    assert data is not None
    [frame] = FrameDecoder().feed(data)
    return frame


def play(host: FakeHost, exchange: Exchange, *, connection: int = 1) -> None:
    """Send a recorded request and compare the answer with the recorded one, byte for byte."""
    expected = frame_of(exchange.response)
    answer = asyncio.run(host.answer(frame_of(exchange.request), connection=connection))
    if exchange.code == RequestCode.GET_BROKER_MEMBER_GROUP:
        assert expected.remark == "not set any response code"
        expected = replace(expected, remark=None)
    answer.language = LanguageCode.JAVA
    assert encode(answer) == encode(expected)


def register_again(host: FakeHost, exchange: Exchange, *topics: TopicConfig) -> None:
    """Send a recorded registration with more topics and a later version."""
    request = frame_of(exchange.request)
    table = RegisterBrokerBody.decode(request.body, compressed=False, version=479).table
    version = replace(table.version, counter=table.version.counter + 1)
    more = {**table.topics, **{topic.name: topic for topic in topics}}
    body = RegisterBrokerBody(replace(table, version=version, topics=more), ()).encode()
    fields = {**request.ext_fields, "bodyCrc32": "0"}
    answer = asyncio.run(
        host.answer(replace(request, ext_fields=fields, body=body), connection=MASTER)
    )
    assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize("session", ["controller", "plain-binary"])
def test_session_with_clients(session: str) -> None:
    host = FakeHost()
    play(host, recorded(session, 103, 0), connection=MASTER)
    play(host, recorded(session, 106, 0))
    play(host, recorded(session, 103, 2), connection=SLAVE)
    register_again(host, recorded(session, 103, 0), TopicConfig("PeerTopic", 2, 2, 6))
    for number in (0, 2, 4):
        play(host, recorded(session, 105, number))

    topics = recorded(session, 206, 0)
    names = fastjson.loads(frame_of(topics.response).body)["topicList"]
    register_again(host, recorded(session, 103, 0), *(TopicConfig(name) for name in names))
    answer = asyncio.run(host.answer(frame_of(topics.request)))
    assert set(fastjson.loads(answer.body)["topicList"]) == set(names)


def test_session_acting() -> None:
    host = FakeHost(NameserverConfig(acting_master=True, notify_min_broker_id=True))
    play(host, recorded("acting", 105, 0))
    play(host, recorded("acting", 103, 0), connection=MASTER)
    play(host, recorded("acting", 105, 1))
    play(host, recorded("acting", 901, 0))
    play(host, recorded("acting", 103, 1), connection=SLAVE)
    play(host, recorded("acting", 106, 0))

    for code, connection in ((322, MASTER), (904, SLAVE)):
        heartbeat = recorded("acting", code, 0)
        assert heartbeat.response is None
        host.time_ms += 9_000
        answer = asyncio.run(host.answer(frame_of(heartbeat.request), connection=connection))
        assert answer.code == ResponseCode.SUCCESS
    play(host, recorded("acting", 104, 0), connection=MASTER)

    [effect] = host.effects
    assert isinstance(effect, NotifyMinBrokerId)
    header = NotifyMinBrokerIdChangeRequestHeader(
        min_broker_id=effect.min_broker_id,
        min_broker_address=effect.min_address,
        offline_broker_address=effect.offline_address,
        ha_broker_address=effect.ha_address,
    )
    notifications = [frame_of(recorded("acting", 905, number).request) for number in (0, 1)]
    assert header.to_fields() in [each.ext_fields for each in notifications]


@pytest.mark.parametrize("number", [0, 2])
def test_session_attributes(number: int) -> None:
    host = FakeHost()
    play(host, recorded("attributes", 103, 0), connection=MASTER)
    if number:
        play(host, recorded("attributes", 103, number), connection=SLAVE)


def test_session_compressed_register_is_accepted_where_java_fails() -> None:
    host = FakeHost()
    exchange = recorded("compressed-register", 103, 0)
    assert frame_of(exchange.response).code == ResponseCode.SYSTEM_ERROR
    answer = asyncio.run(host.answer(frame_of(exchange.request)))
    assert answer.code == ResponseCode.SUCCESS
    assert len(host.table.topics().topics) == 13
