"""Wrong arguments of every public class of servers, clients and administration: an exception of the
package, before anything is done.

The calls are made from the signatures. `tests/store/test_wrong_arguments.py` does the same for
stores.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pytest

from rmqstore.admin.top import observe
from rmqstore.config import BrokerConfig, ControllerConfig, NameserverConfig
from rmqstore.errors import ArgumentError, ConfigError, StoreError
from rmqstore.remoting.frames import Frame
from rmqstore.store.metadata import GroupConfig, TopicConfig
from tests.support.loops import on_loop

CLOSED = "127.0.0.1:1"
"""No server listens there: a wrong argument is refused before a connection is tried."""

VALUES: Mapping[str, object] = {
    "None": None,
    "5": 5,
    "-1": -1,
    "2**70": 2**70,
    "1.5": 1.5,
    "nan": float("nan"),
    "True": True,
    "'x'": "x",
    "a surrogate": "\ud800",
    "b'x'": b"x",
    "[5]": [5],
    "[None]": [None],
    "{1: 2}": {1: 2},
    "an iterator": iter(["x"]),
    "an object": object(),
    "a class": int,
}
CLASSES = {
    name: getattr(importlib.import_module(f"rmqstore.{package}"), name)
    for package, names in {
        "admin": ("BrokerAdmin", "ControllerAdmin", "NameserverAdmin"),
        "broker": ("Broker",),
        "controller": ("Controller",),
        "nameserver": ("Nameserver",),
        "remoting": ("Frame", "RemotingClient", "RemotingServer"),
    }.items()
    for name in names
}
CHECKED: Mapping[str, Callable[[type], Iterator[str]]] = {
    "Frame": lambda owner: iter(["request"]),
    "Broker": lambda owner: iter(["__init__", "from_file", "configure"]),
    "Controller": lambda owner: iter(["__init__", "from_file"]),
    "Nameserver": lambda owner: iter(["__init__", "from_file"]),
}
"""Of servers the calls of users; the others are those of their parts."""


def _calls(owner: type) -> Iterator[str]:
    """Yield the constructor and the public methods with parameters."""
    for name, member in inspect.getmembers(owner, inspect.isfunction):
        is_public = name == "__init__" or not name.startswith("_")
        if is_public and len(inspect.signature(member).parameters) > 1:
            yield name


CALLS = [
    (owner, call)
    for owner, cls in CLASSES.items()
    for call in CHECKED.get(owner, _calls)(cls)
    # They take one wrong value or another without a wrong type.
    if (owner, call) not in {("RemotingClient", "connection_to"), ("RemotingClient", "disconnect")}
]


def _may_take(hint: Any, value: object) -> bool:
    """Whether a parameter may take *value*; in doubt it may."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if set(parts) == {str, typing.get_args(str | tuple[str, int])[1]}:
            return isinstance(value, str)
        return any(_may_take(each, value) for each in parts)
    if hint is types.NoneType:
        return value is None
    if hint is str:
        return isinstance(value, str) and value.isprintable()
    if hint is bool:
        return isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63
    if hint is float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return is_number and value >= 0
    if hint is bytes:
        return isinstance(value, bytes)
    if origin in (Collection, Sequence):
        return isinstance(value, list | tuple) and all(_may_take(parts[0], v) for v in value)
    if origin is Mapping:
        return isinstance(value, dict) and parts[0] is int
    if origin is Callable:
        return callable(value)
    if origin is os.PathLike:
        return isinstance(value, os.PathLike)
    return isinstance(value, hint) if inspect.isclass(hint) else True


def _right(hint: Any) -> object:
    """Returns a right value of a parameter."""
    simple: Mapping[Any, object] = {
        str: CLOSED,
        int: 1,
        bool: False,
        float: 0.2,
        Frame: Frame.request(1),
        TopicConfig: TopicConfig("t", 1, 1),
        GroupConfig: GroupConfig("g"),
        BrokerConfig: BrokerConfig(root_path="/nowhere", bind_address="127.0.0.1"),
        ControllerConfig: ControllerConfig(store_path="/nowhere"),
        NameserverConfig: NameserverConfig(),
    }
    if hint in simple:
        return simple[hint]
    if typing.get_origin(hint) in (Collection, Sequence):
        return [CLOSED]
    return {} if typing.get_origin(hint) is Mapping else CLOSED


def _hints(function: Any) -> dict[str, Any]:
    return {
        name: about.annotation
        for name, about in inspect.signature(function, eval_str=True).parameters.items()
        if about.annotation is not about.empty and about.kind is not about.VAR_KEYWORD
    }


async def _outcome(call: Callable[[], Any]) -> Exception | None:
    try:
        found = call()
        if inspect.isawaitable(found):
            async with asyncio.timeout(20):
                found = await found
        if hasattr(found, "__aexit__"):
            await found.__aexit__(None, None, None)
    except Exception as error:
        return error
    return None


async def _faults(owner: str, name: str) -> tuple[int, list[str]]:
    """Make every call with one wrong value; return their number, and those that went wrong."""
    cls = CLASSES[owner]
    function = getattr(cls, name)
    hints = _hints(function)
    parameters = inspect.signature(function).parameters
    right = {
        each: _right(hint)
        for each, hint in hints.items()
        if parameters[each].default is inspect.Parameter.empty
    }
    count, faults = 0, []
    async with contextlib.AsyncExitStack() as stack:
        call = cls if name == "__init__" else function
        if name != "__init__" and not inspect.ismethod(function):
            made = cls(**{each: _right(hint) for each, hint in _required(cls).items()})
            if hasattr(made, "__aexit__"):
                stack.push_async_exit(made)
            call = getattr(made, name)
        for parameter, hint in hints.items():
            for text, value in VALUES.items():
                if _may_take(hint, value):
                    continue
                count += 1
                given = right | {parameter: value}
                error = await _outcome(lambda given=given: call(**given))  # type: ignore[misc]
                if not isinstance(error, ArgumentError | ConfigError):
                    faults.append(f"{owner}.{name}({parameter}={text}): {error!r}")
    return count, faults


def _required(cls: type) -> dict[str, Any]:
    parameters = inspect.signature(cls).parameters
    return {
        each: hint
        for each, hint in _hints(cls.__init__).items()  # type: ignore[misc]
        if parameters[each].default is inspect.Parameter.empty
    }


@pytest.mark.parametrize(("owner", "name"), CALLS)
@on_loop
async def test_wrong_argument_is_refused_by_an_error_of_the_package(owner: str, name: str) -> None:
    count, faults = await _faults(owner, name)
    assert faults == []
    assert count > 0


@pytest.mark.parametrize("values", [(5, None, None), (None, 5, None), (None, None, 5)])
@on_loop
async def test_view_of_groups_refuses_wrong_arguments(values: tuple[Any, ...]) -> None:
    with pytest.raises(StoreError):
        await observe(*values)


@pytest.mark.parametrize("kind", [BrokerConfig, ControllerConfig, NameserverConfig])
@pytest.mark.parametrize("value", [None, 5, b"a=b", ["a=b"]])
def test_configuration_of_another_type_is_refused(kind: Any, value: object) -> None:
    with pytest.raises(ArgumentError, match="path_or_text is"):
        kind.from_properties(value)
