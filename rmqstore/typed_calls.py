"""Arguments of public calls that are checked by their annotations.

    @typed()
    class NameserverAdmin:
        async def topic_route(self, topic: str) -> TopicRoute: ...

The calls then raise ArgumentTypeError for an argument of another type before they begin. A check
costs a few microseconds: it is not for calls per message.
"""

from __future__ import annotations

import functools
import inspect
import os
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from rmqstore import arguments
from rmqstore.errors import ArgumentTypeError

__all__ = ["typed"]

C = TypeVar("C", bound=type)

_PATH = frozenset({str, os.PathLike})
_SIMPLE: Mapping[object, Callable[[str, Any], object]] = {
    str: arguments.utf8,
    int: arguments.integer,
    bool: arguments.boolean,
    float: arguments.seconds,
    bytes: arguments.buffer,
}


def typed(*names: str) -> Callable[[C], C]:
    """Return a decorator of a class that checks the arguments of the methods *names*; without names
    those of the constructor and of every public method."""

    def decorate(owner: C) -> C:
        for name, member in list(vars(owner).items()):
            is_public = name == "__init__" or not name.startswith("_")
            is_chosen = name in names if names else is_public
            if not is_chosen:
                continue
            if isinstance(member, classmethod):
                setattr(owner, name, classmethod(_checked(member.__func__)))
            elif inspect.isfunction(member) and len(inspect.signature(member).parameters) > 1:
                setattr(owner, name, _checked(member))
        return owner

    return decorate


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @functools.cache
    def hints() -> Mapping[str, Any]:
        # At the first call, because names of later modules are then known.
        parameters = inspect.signature(function, eval_str=True).parameters
        return {
            name: about.annotation
            for name, about in parameters.items()
            if about.annotation is not about.empty and about.kind is not about.VAR_KEYWORD
        }

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError:
            return function(*args, **kwargs)  # Raises as Python does, or takes a former name.
        for name, value in given.items():
            if name in hints():
                _check(name, value, hints()[name])
        return function(*args, **kwargs)

    return call


def _check(name: str, value: object, hint: Any) -> None:
    """Raise ArgumentTypeError, or ArgumentError for a wrong value, unless *hint* allows *value*."""
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        _check_one_of(name, value, typing.get_args(hint))
    elif hint in _SIMPLE:
        _SIMPLE[hint](name, value)
    elif origin in (Collection, Sequence):
        (of,) = typing.get_args(hint)
        # An iterator would be used up by its check.
        if not isinstance(value, Collection):
            raise ArgumentTypeError(f"{name} is {arguments.shown(value)}; give a list")
        for number, each in enumerate(arguments.items(name, value, "a list")):
            _check(f"{name}[{number}]", each, of)
    elif origin is Mapping:
        key_hint, value_hint = typing.get_args(hint)
        for key, each in arguments.mapping(name, value, "a dict").items():
            _check(f"a key of {name}", key, key_hint)
            _check(f"{name}[{key!r}]", each, value_hint)
    elif origin is Callable:
        arguments.function(name, value)
    elif inspect.isclass(hint) and _has_instances(hint):
        arguments.instance(name, value, hint)


def _has_instances(hint: type) -> bool:
    """Whether `isinstance` may ask for *hint*."""
    return not getattr(hint, "_is_protocol", False) or getattr(hint, "_is_runtime_protocol", False)


def _check_one_of(name: str, value: object, hints: Sequence[Any]) -> None:
    others = [each for each in hints if each is not types.NoneType]
    if value is None and len(others) < len(hints):
        return
    is_path = {typing.get_origin(each) or each for each in others} == _PATH
    if is_path and not isinstance(value, bytes):
        arguments.path(name, value)
    elif len(others) == 1:
        _check(name, value, others[0])
    elif not any(isinstance(value, typing.get_origin(each) or each) for each in others):
        names = " or ".join(getattr(each, "__name__", str(each)) for each in others)
        raise ArgumentTypeError(f"{name} is {arguments.shown(value)}; give {names}")
