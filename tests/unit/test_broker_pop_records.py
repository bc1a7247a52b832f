"""Check points and acknowledgements of POP against the reference, and what readers refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqstore.broker.pop_records import PopAck, PopCheckPoint
from rmqstore.errors import RemotingFrameError
from tests.reference import pop_records as reference

NAMES = st.text("abc%_-+|01", min_size=1, max_size=20)
OFFSETS = st.integers(0, 2**62)
PAST = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=32).map(tuple)
TIMES = st.integers(0, 2**61)
CHECK_POINTS = st.builds(
    PopCheckPoint,
    topic=NAMES,
    queue=st.integers(0, 2**31 - 1),
    group=NAMES,
    start_offset=st.just(7),
    offsets=PAST.map(lambda past: tuple(7 + each for each in past)),
    pop_time_ms=TIMES,
    invisible_ms=TIMES,
    broker_name=NAMES,
    times=st.none() | st.integers(0, 20).map(str),
    is_suspended=st.none() | st.booleans(),
)
ACKS = st.builds(
    PopAck,
    topic=NAMES,
    queue=st.integers(0, 2**31 - 1),
    group=NAMES,
    start_offset=OFFSETS,
    offsets=st.lists(OFFSETS, min_size=1, max_size=32).map(tuple),
    pop_time_ms=TIMES,
    broker_name=NAMES,
    is_batch=st.just(True),
)


def check_point(**changes: Any) -> PopCheckPoint:
    fields: dict[str, Any] = {
        "topic": "T",
        "queue": 1,
        "group": "g",
        "start_offset": 100,
        "offsets": (100, 102),
        "pop_time_ms": 1700000000000,
        "invisible_ms": 60000,
        "broker_name": "broker-a",
    }
    return PopCheckPoint(**fields | changes)


@given(CHECK_POINTS)
def test_check_points_are_written_as_by_the_reference(point: PopCheckPoint) -> None:
    body = point.encode()
    assert body == reference.check_point(
        so=point.start_offset,
        pt=point.pop_time_ms,
        it=point.invisible_ms,
        d=[each - point.start_offset for each in point.offsets],
        q=point.queue,
        t=point.topic,
        c=point.group,
        bn=point.broker_name,
        rp=point.times,
        sp=point.is_suspended,
    )
    assert PopCheckPoint.decode(body) == point
    assert point.unique_key == reference.key_of(body)


@given(ACKS)
def test_acknowledgements_are_written_as_by_the_reference(ack: PopAck) -> None:
    fields = {"so": ack.start_offset, "pt": ack.pop_time_ms, "q": ack.queue, "t": ack.topic}
    fields |= {"c": ack.group, "bn": ack.broker_name}
    body = ack.encode()
    assert body == reference.ack(aol=list(ack.offsets), **fields)
    assert PopAck.decode(body) == ack

    first = PopAck.decode(reference.ack(ao=ack.offsets[0], **fields))
    assert (first.offsets, first.is_batch, first.tag) == (ack.offsets[:1], False, "ack")
    assert PopAck.decode(first.encode()) == first
    assert first.unique_key == reference.key_of(first.encode())


def test_check_point_is_due_a_second_before_its_messages_are() -> None:
    assert check_point().revive_ms == 1700000060000
    assert check_point().due_ms == 1700000059000


def test_check_point_of_an_early_release_has_consecutive_messages() -> None:
    body = b'{"so":100,"n":3,"q":1,"t":"T","c":"g","pt":1,"it":2}'
    found = PopCheckPoint.decode(body)
    assert (found.offsets, found.broker_name) == ((100, 101, 102), None)


def test_check_point_with_unknown_keys_is_read() -> None:
    body = check_point().encode()
    assert PopCheckPoint.decode(body[:-1] + b',"new":{"a":[1]}}') == check_point()


def test_check_point_says_whether_it_is_suspended_as_5_5_does() -> None:
    body = check_point(is_suspended=False).encode()
    assert b'"so":100,"sp":false,"t"' in body
    assert PopCheckPoint.decode(body).is_suspended is False
    assert b"sp" not in check_point().encode()


def test_check_point_knows_where_it_was_read() -> None:
    assert check_point().at(9).revive_offset == 9


def test_long_names_of_an_acknowledgement_are_read() -> None:
    body = (
        b'{"ackOffset":5,"startOffset":4,"consumerGroup":"g","topic":"T","queueId":1,"popTime":2,'
        b'"brokerName":"b"}'
    )
    found = PopAck.decode(body)
    assert found == PopAck(
        topic="T",
        queue=1,
        group="g",
        start_offset=4,
        offsets=(5,),
        pop_time_ms=2,
        broker_name="b",
    )
    listed = PopAck.decode(body.replace(b'"ackOffset":5', b'"ackOffsetList":[5,6]'))
    assert (listed.offsets, listed.is_batch) == ((5, 6), True)


def test_acknowledgement_of_several_messages_has_the_key_of_java() -> None:
    ack = PopAck(
        topic="PopBatch",
        queue=0,
        group="gp",
        start_offset=0,
        offsets=(0, 2, 3),
        pop_time_ms=1795345898985,
        broker_name="broker-a",
        is_batch=True,
    )
    assert ack.unique_key == "PopBatch@0@-1@gp@1795345898985@broker-a@ack"
    assert ack.tag == "bAck"


BODIES = [check_point(times="2", is_suspended=True).encode(), reference.ack(aol=[1, 2], so=1)]


@given(st.sampled_from(BODIES), st.integers(0, 200), st.binary(max_size=3))
def test_changed_bodies_are_read_or_refused(body: bytes, at: int, piece: bytes) -> None:
    changed = body[:at] + piece + body[at + len(piece) :]
    for kind in (PopCheckPoint, PopAck):
        for each in (changed, body[:at]):
            try:
                kind.decode(each)
            except RemotingFrameError:
                continue


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (PopCheckPoint, b"[]"),
        (PopCheckPoint, b'{"n":128}'),
        (PopCheckPoint, b'{"d":{"a":1}}'),
        (PopCheckPoint, b'{"d":["x"]}'),
        (PopCheckPoint, b'{"so":9223372036854775808}'),
        (PopCheckPoint, b'{"t":5}'),
        (PopAck, b"{}"),
        (PopAck, b'{"aol":5}'),
        (PopAck, b'{"ao":"x"}'),
    ],
)
def test_malformed_bodies_are_refused(kind: type[PopCheckPoint | PopAck], body: bytes) -> None:
    with pytest.raises(RemotingFrameError):
        kind.decode(body)
