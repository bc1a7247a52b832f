"""Reading the bodies of requests: a fault becomes an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rmqstore.errors import RequestRefused
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import Frame, name_of_request
from rmqstore.store.metadata.members import Members

__all__ = ["members_of", "read_body"]

T = TypeVar("T")


def read_body(request: Frame, read: Callable[[bytes], T]) -> T:
    """Return what *read* makes of the body. Raises RequestRefused (INVALID_PARAMETER) where it
    raises ValueError."""
    try:
        return read(request.body)
    except ValueError as error:
        raise RequestRefused(
            f"the body of {name_of_request(request.code)} cannot be read: {error}",
            code=ResponseCode.INVALID_PARAMETER,
        ) from error


def members_of(body: bytes, name: str) -> Members:
    """Return the members of the JSON object of a body. Raises ValueError."""
    value: Any = fastjson.loads(body)
    return Members(value, name)
