"""Names that a package exports and imports only once they are used.

__getattr__ = lazily(__name__, {"rmqstore.broker.node": ("Broker",)})
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from functools import wraps
from importlib import import_module
from typing import Any, ParamSpec, TypeVar

from rmqstore.errors import ArgumentError

__all__ = ["lazily", "renamed", "renamed_parameter"]

P = ParamSpec("P")
R = TypeVar("R")


def lazily(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of *package*: *homes* has the names by the module that has them."""

    def find(name: str) -> Any:
        for home, names in homes.items():
            if name in names:
                return getattr(import_module(home), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


def renamed(module: str, former: str, present: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of *module* that still has the name *former*, with a warning."""

    def find(name: str) -> Any:
        if name != former:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warnings.warn(f"{former} is {present}; use this name", DeprecationWarning, stacklevel=2)
        return getattr(import_module(module), present)

    return find


def renamed_parameter(former: str, present: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Return a decorator of a function that still takes the keyword *former*, with a warning."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if former in kwargs:
                if present in kwargs:
                    raise ArgumentError(f"{former} is the former name of {present}; give one")
                warnings.warn(
                    f"the parameter {former} is {present}; use this name",
                    DeprecationWarning,
                    stacklevel=2,
                )
                kwargs[present] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate
