"""Request tables, and dispatch by them: decoding, rights, the gate, limits, what is observed."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from rmqstore.broker import request_table as broker_table
from rmqstore.controller import request_table as controller_table
from rmqstore.errors import InvalidFieldError, RequestRefused
from rmqstore.nameserver import request_table as nameserver_table
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.dispatch import dispatched
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.remoting.headers.clients import ConsumerGroupRequestHeader
from rmqstore.remoting.requests import Call, Row, Standing, family, table
from rmqstore.remoting.rights import Action, Need, Resource, on_group

CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP
REQUEST = Frame.request(CODE, {"consumerGroup": "g"}, b"7")
RIGHTS = (on_group(Action.SUB, Action.GET, field="consumer_group"),)
TABLES = [broker_table.ROWS, controller_table.ROWS, nameserver_table.ROWS]
SERVED_NOWHERE = {
    # Requests of servers to clients.
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE,
    # Requests to a container of brokers.
    RequestCode.ADD_BROKER,
    RequestCode.REMOVE_BROKER,
    # A notice of nameservers to brokers, which get the same with each registration.
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
}


class Closed:
    """A gate that admits nothing."""

    def admit(self, row: Row, call: Call[Any, Any]) -> None:
        assert (call.request, call.body) == (REQUEST, 7)
        raise RequestRefused(f"needs {row.standing}", code=ResponseCode.SERVICE_NOT_AVAILABLE)


def answer(call: Call[ConsumerGroupRequestHeader, int]) -> Frame:
    return call.respond(ResponseCode.SUCCESS, f"{call.header.consumer_group} {call.body}")


ROWS = table([Row(CODE, ConsumerGroupRequestHeader, int, Standing.SERVING, RIGHTS)])


def test_handler_gets_header_and_body() -> None:
    take = dispatched(ROWS, {CODE: answer})[CODE]
    found = take(None, REQUEST)
    assert isinstance(found, Frame)
    assert (found.code, found.remark) == (ResponseCode.SUCCESS, "g 7")


@pytest.mark.parametrize("fault", [ResponseCode.INVALID_PARAMETER, ResponseCode.SYSTEM_ERROR])
def test_body_that_cannot_be_read_is_refused_with_the_code_of_the_server(fault: int) -> None:
    take = dispatched(ROWS, {CODE: answer}, body_fault=fault)[CODE]
    with pytest.raises(
        RequestRefused, match=r"GET_CONSUMER_LIST_BY_GROUP.* cannot be read"
    ) as caught:
        take(None, Frame.request(CODE, {"consumerGroup": "g"}, b"seven"))
    assert caught.value.code == fault


def test_header_that_lacks_a_field_is_refused_before_the_body_is_read() -> None:
    take = dispatched(ROWS, {CODE: answer})[CODE]
    with pytest.raises(InvalidFieldError, match="consumerGroup"):
        take(None, Frame.request(CODE, {}, b"seven"))


def test_gate_is_asked_before_the_handler() -> None:
    take = dispatched(ROWS, {CODE: answer}, gate=Closed())[CODE]
    with pytest.raises(RequestRefused, match="SERVING"):
        take(None, REQUEST)


def test_rights_of_the_row_are_checked_before_the_gate() -> None:
    seen = []

    def refuse(call: Call[Any, Any], needs: tuple[Need, ...]) -> None:
        seen.append((call.request, needs))
        raise RequestRefused("the sender may not", code=ResponseCode.NO_PERMISSION)

    take = dispatched(ROWS, {CODE: answer}, authorize=refuse, gate=Closed())[CODE]
    with pytest.raises(RequestRefused, match="may not"):
        take(None, REQUEST)
    either = frozenset({Action.SUB, Action.GET})
    assert seen == [(REQUEST, (Need(Resource.GROUP, "g", either),))]


def test_requests_over_the_limit_of_their_family_are_refused_until_others_have_results() -> None:
    async def later(call: Call[Any, Any]) -> Frame:
        if call.body == 0:
            raise ZeroDivisionError
        return call.respond(ResponseCode.SUCCESS)

    of_family = (Row(CODE, ConsumerGroupRequestHeader, int), Row(RequestCode.GET_MAX_OFFSET))
    rows = table(family("lookup", *of_family))
    counts: dict[str, int] = {}
    handlers: Mapping[int, Any] = {CODE: later, RequestCode.GET_MAX_OFFSET: lambda call: None}
    found = dispatched(rows, handlers, limits={"lookup": 2}, in_progress=counts)
    take: Any = found[CODE]

    waiting: list[Coroutine[Any, Any, Frame]] = [take(None, REQUEST)]
    waiting.append(take(None, Frame.request(CODE, {"consumerGroup": "g"}, b"0")))
    assert counts == {"lookup": 2}
    for code in (CODE, RequestCode.GET_MAX_OFFSET):
        with pytest.raises(
            RequestRefused, match=r"^\[OVERLOAD\]system busy, .*2 requests of the kind 'lookup'"
        ) as caught:
            found[code](None, REQUEST)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY

    for each, end in zip(waiting, (StopIteration, ZeroDivisionError), strict=True):
        with pytest.raises(end):
            each.send(None)
    assert counts == {"lookup": 0}
    assert found[RequestCode.GET_MAX_OFFSET](None, REQUEST) is None
    assert counts == {"lookup": 0}


def test_each_request_is_observed_with_its_code_that_of_its_answer_and_its_time() -> None:
    seen: list[tuple[int, int, float]] = []
    times = iter(range(100))

    async def later(call: Call[Any, Any]) -> Frame | None:
        if call.body == 0:
            raise ZeroDivisionError
        return None

    def observe(code: int, result: int, seconds: float) -> None:
        seen.append((code, result, seconds))

    options: Mapping[str, Any] = {"observe": observe, "clock": lambda: float(next(times))}
    dispatched(ROWS, {CODE: answer}, **options)[CODE](None, REQUEST)
    with pytest.raises(RequestRefused):
        dispatched(ROWS, {CODE: answer}, gate=Closed(), **options)[CODE](None, REQUEST)
    take: Any = dispatched(ROWS, {CODE: later}, **options)[CODE]
    with pytest.raises(StopIteration):
        take(None, REQUEST).send(None)
    with pytest.raises(ZeroDivisionError):
        take(None, Frame.request(CODE, {"consumerGroup": "g"}, b"0")).send(None)
    codes = [
        ResponseCode.SUCCESS,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SUCCESS,
        ResponseCode.SYSTEM_ERROR,
    ]
    assert seen == [(CODE, each, 1.0) for each in codes]


def test_code_has_one_row() -> None:
    with pytest.raises(AssertionError, match="two rows"):
        table([Row(CODE), Row(CODE)])


@pytest.mark.parametrize("rows", TABLES)
def test_row_has_a_family_and_a_right_or_a_refusal(rows: Mapping[int, Row]) -> None:
    for row in rows.values():
        assert row.family, name_of_request(row.code)
        assert bool(row.rights) is not bool(row.refusal), name_of_request(row.code)


def test_each_code_is_in_a_table_or_named_as_served_nowhere() -> None:
    served = {code for rows in TABLES for code in rows}
    assert served.isdisjoint(SERVED_NOWHERE)
    assert served | SERVED_NOWHERE == set(RequestCode)
