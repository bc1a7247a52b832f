"""What a broker sends to a nameserver: registrations, signs of life, and its leave."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from rmqstore.broker.nameserver_calls import RETRY_MS, NameserverCalls
from rmqstore.broker.registration import Announcement
from rmqstore.errors import RemotingError
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame

MASTER = Announcement(
    cluster_name="c",
    name="g",
    broker_id=0,
    address="10.0.0.1:10911",
    ha_address="10.0.0.1:10912",
    acting_master=False,
    timeout_ms=None,
    body=b"",
    version=b"{}",
)
SLAVE = dataclasses.replace(MASTER, broker_id=2)
PERIOD_MS = 30_000


def call(
    calls: NameserverCalls,
    announcement: Announcement | None,
    now_ms: int,
    *,
    codes: dict[int, int] | None = None,
    fields: dict[int, dict[str, Any]] | None = None,
    is_silent: bool = False,
    **options: bool,
) -> list[int]:
    """Call; return the codes of the requests. *codes* and *fields* are those of the answers."""
    settings = {"always_registers": True, "looks_for_twin": False} | options
    requests, sent, failure = calls.call(announcement, **settings), [], ""
    try:
        request = next(requests)
        while True:
            sent.append(request.code)
            if is_silent:
                raise RemotingError("no answer")
            code = (codes or {}).get(request.code, ResponseCode.SUCCESS)
            answer = request.respond(code, "", (fields or {}).get(request.code))
            request = requests.send(answer)
    except StopIteration:
        pass
    except RemotingError as error:
        failure = str(error) or "refused"
    calls.ended(now_ms, period_ms=PERIOD_MS, failure=failure)
    return sent


def test_a_broker_is_registered_at_once_and_again_after_the_period() -> None:
    calls = NameserverCalls()
    assert calls.is_due(MASTER, 0)
    assert not calls.is_known
    assert call(calls, MASTER, 10) == [RequestCode.REGISTER_BROKER]
    assert calls.is_known
    assert not calls.is_due(MASTER, 9 + PERIOD_MS)
    assert calls.due_ms(0, None) == 10 + PERIOD_MS
    assert calls.is_due(MASTER, 10 + PERIOD_MS)


def test_a_call_without_success_is_made_again_after_a_second() -> None:
    calls = NameserverCalls()
    refused = {RequestCode.REGISTER_BROKER: ResponseCode.SYSTEM_ERROR}
    call(calls, MASTER, 0, codes=refused)
    assert not calls.is_known
    assert calls.failure
    assert calls.due_ms(0, None) == RETRY_MS
    call(calls, MASTER, RETRY_MS)
    assert calls.is_known
    assert not calls.failure


def test_changes_and_a_lost_connection_make_a_call_due_soon() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0)
    calls.changed(100)
    calls.changed(104)
    assert calls.due_ms(0, None) == 105
    call(calls, SLAVE, 105)
    calls.lost(200)
    assert calls.due_ms(0, None) == 300


def test_a_change_during_a_call_makes_another_one_due() -> None:
    calls = NameserverCalls()
    requests = calls.call(MASTER, always_registers=True, looks_for_twin=False)
    next(requests)
    calls.changed(50)
    calls.ended(60, period_ms=PERIOD_MS)
    assert calls.is_due(SLAVE, 60)


def test_without_force_an_unchanged_broker_asks_for_the_version_first() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0, always_registers=False)
    unchanged = {RequestCode.QUERY_DATA_VERSION: {"changed": "false"}}
    sent = call(calls, MASTER, 0, fields=unchanged, always_registers=False)
    assert sent == [RequestCode.QUERY_DATA_VERSION]
    changed = {RequestCode.QUERY_DATA_VERSION: {"changed": "true"}}
    sent = call(calls, MASTER, 0, fields=changed, always_registers=False)
    assert sent == [RequestCode.QUERY_DATA_VERSION, RequestCode.REGISTER_BROKER]
    assert call(calls, SLAVE, 0, always_registers=False) == [RequestCode.REGISTER_BROKER]


def test_a_broker_without_an_announcement_leaves_at_once_and_until_that_is_confirmed() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0)
    assert calls.is_due(None, 1)
    assert call(calls, None, 1, is_silent=True) == [RequestCode.UNREGISTER_BROKER]
    assert not calls.is_due(None, 2)
    assert calls.is_due(None, 1 + RETRY_MS)
    assert call(calls, None, 1 + RETRY_MS) == [RequestCode.UNREGISTER_BROKER]
    assert not calls.is_due(None, 2 + RETRY_MS)
    assert call(calls, None, 1 + PERIOD_MS + RETRY_MS) == []
    assert call(calls, MASTER, 0) == [RequestCode.REGISTER_BROKER]


def test_a_registration_whose_answer_is_lost_may_have_arrived_and_is_taken_back() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0, is_silent=True)
    assert calls.is_due(None, 1)
    assert call(calls, None, 1) == [RequestCode.UNREGISTER_BROKER]


def test_the_end_of_the_lease_is_looked_at_when_it_comes() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0)
    assert calls.due_ms(0, 700) == 700
    assert not calls.is_due(MASTER, 700)
    assert calls.is_due(None, 700)


def test_signs_of_life_are_of_what_the_nameserver_knows_and_end_with_the_announcement() -> None:
    calls = NameserverCalls()
    assert calls.heartbeat(MASTER, compatible=False) is None
    call(calls, MASTER, 0)
    beat = calls.heartbeat(MASTER, compatible=False)
    assert isinstance(beat, Frame)
    assert beat.code == RequestCode.BROKER_HEARTBEAT
    assert calls.heartbeat(None, compatible=False) is None
    call(calls, SLAVE, 0, is_silent=True)
    assert calls.heartbeat(SLAVE, compatible=False) is None


def test_a_broker_that_ends_leaves_once() -> None:
    calls = NameserverCalls()
    assert calls.unregistration() is None
    call(calls, MASTER, 0)
    leave = calls.unregistration()
    assert leave is not None
    assert leave.code == RequestCode.UNREGISTER_BROKER
    assert calls.unregistration() is None


@pytest.mark.parametrize("code", [ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR])
def test_the_answer_to_a_registration_is_handed_on(code: int) -> None:
    calls = NameserverCalls()
    requests = calls.call(SLAVE, always_registers=True, looks_for_twin=False)
    request = next(requests)
    answer = request.respond(code, "", {"masterAddr": "10.0.0.9:10911"})
    if code != ResponseCode.SUCCESS:
        with pytest.raises(RemotingError):
            requests.send(answer)
        return
    with pytest.raises(StopIteration) as end:
        requests.send(answer)
    assert end.value.value == answer


def test_a_master_that_is_known_as_a_slave_from_now_on_is_registered_so_at_once() -> None:
    calls = NameserverCalls()
    call(calls, MASTER, 0)
    assert calls.is_due(SLAVE, 1)
    assert calls.heartbeat(SLAVE, compatible=False) is None, "that would be one of the master"
    assert call(calls, SLAVE, 1, is_silent=True) == [RequestCode.REGISTER_BROKER]
    assert not calls.is_due(SLAVE, 2)
    assert calls.heartbeat(SLAVE, compatible=False) is None
    assert call(calls, SLAVE, 1 + RETRY_MS) == [RequestCode.REGISTER_BROKER]
    assert calls.heartbeat(SLAVE, compatible=False) is not None
    assert calls.is_due(MASTER, 2 + RETRY_MS)
