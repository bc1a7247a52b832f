"""The verbs of a store are declared where readers look for them, and cost no Python frame."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

import rmqstore.store.store
from rmqstore._native import core
from rmqstore.store import Store

VERBS = ("get", "get_many", "put", "put_batch", "put_many")


@pytest.mark.parametrize("verb", VERBS)
def test_verb_is_declared_with_types_and_docstring_in_store_py(verb: str) -> None:
    declared: Any = inspect.unwrap(vars(Store)[verb])
    assert Path(inspect.getfile(declared)) == Path(rmqstore.store.store.__file__)
    assert declared.__doc__
    signature = inspect.signature(vars(Store)[verb])
    parameters = list(signature.parameters.values())[1:]
    assert all(each.annotation is not inspect.Parameter.empty for each in parameters)
    assert signature.return_annotation is not inspect.Signature.empty


def test_put_is_the_native_method_with_the_declared_signature() -> None:
    assert vars(Store)["put"] is core.StoreReader.put

    def shape(*, is_native: bool) -> list[tuple[str, Any, Any]]:
        signature = inspect.signature(Store.put, follow_wrapped=not is_native)
        return [(each.name, each.kind, each.default) for each in signature.parameters.values()]

    assert shape(is_native=True) == shape(is_native=False)


def test_help_shows_the_declared_docstring() -> None:
    assert inspect.getdoc(Store.put) == inspect.getdoc(inspect.unwrap(Store.put))
    assert "Store one message" in (inspect.getdoc(Store.put) or "")
