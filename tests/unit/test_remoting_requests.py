"""Dispatch by a request table: decoding, the gate, faults, and what is observed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from rmqstore.broker import request_table as broker_table
from rmqstore.controller import request_table as controller_table
from rmqstore.errors import InvalidFieldError, RequestRefused
from rmqstore.nameserver import request_table as nameserver_table
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.clients import ConsumerGroupRequestHeader
from rmqstore.remoting.requests import Call, Row, Standing, dispatched, table

CODE = RequestCode.GET_CONSUMER_LIST_BY_GROUP
REQUEST = Frame.request(CODE, {"consumerGroup": "g"}, b"7")


class Closed:
    """A gate that admits nothing."""

    def admit(self, row: Row, call: Call[Any, Any]) -> None:
        assert (call.request, call.body) == (REQUEST, 7)
        raise RequestRefused(f"needs {row.standing}", code=ResponseCode.SERVICE_NOT_AVAILABLE)


def answer(call: Call[ConsumerGroupRequestHeader, int]) -> Frame:
    return call.respond(ResponseCode.SUCCESS, f"{call.header.consumer_group} {call.body}")


ROWS = table([Row(CODE, ConsumerGroupRequestHeader, int, Standing.SERVING)])


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


@pytest.mark.parametrize("rows", [broker_table.ROWS, controller_table.ROWS, nameserver_table.ROWS])
def test_codes_of_tables_have_names(rows: Mapping[int, Row]) -> None:
    assert rows.keys() <= set(RequestCode)
