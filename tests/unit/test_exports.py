"""Names where a user looks for them, and former names that still work."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable

import pytest

from rmqstore.admin import BrokerAdmin, ControllerAdmin, NameserverAdmin
from rmqstore.errors import ArgumentError
from rmqstore.exports import renamed_parameter
from rmqstore.nameserver import Nameserver
from rmqstore.remoting import RemotingClient, RemotingServer

PACKAGES = ("admin", "broker", "controller", "nameserver", "remoting", "replication")


@pytest.mark.parametrize("package", PACKAGES)
def test_package_has_every_name_that_it_exports(package: str) -> None:
    module = importlib.import_module(f"rmqstore.{package}")
    assert list(module.__all__) == sorted(module.__all__)
    for name in module.__all__:
        assert inspect.isclass(getattr(module, name)), name
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        _ = module.Other


def test_former_name_of_the_nameserver_works_with_a_warning() -> None:
    module = importlib.import_module("rmqstore.nameserver.server")
    with pytest.warns(DeprecationWarning, match="NameServer is Nameserver"):
        assert module.NameServer is Nameserver


@pytest.mark.parametrize(
    ("make", "former"),
    [
        (lambda **named: NameserverAdmin("127.0.0.1", **named), "timeout_s"),
        (lambda **named: ControllerAdmin("127.0.0.1", **named), "timeout_s"),
        (lambda **named: BrokerAdmin("127.0.0.1", **named), "timeout_s"),
        (RemotingClient, "connect_timeout_s"),
        (lambda **named: RemotingServer("127.0.0.1:0", {}, **named), "close_timeout_s"),
    ],
)
def test_former_name_of_a_timeout_works_with_a_warning(
    make: Callable[..., object], former: str
) -> None:
    with pytest.warns(DeprecationWarning, match=f"{former} is {former.removesuffix('_s')}"):
        make(**{former: 1.0})
    with pytest.raises(ArgumentError, match="give one"):
        make(**{former: 1.0, former.removesuffix("_s"): 1.0})


def test_calls_name_their_timeouts_without_a_unit() -> None:
    for owner in (NameserverAdmin, ControllerAdmin, BrokerAdmin, RemotingClient, RemotingServer):
        for _, function in inspect.getmembers(owner, inspect.isfunction):
            names = inspect.signature(function).parameters
            assert [each for each in names if each.endswith("timeout_s")] == []


def test_signature_shows_the_present_name() -> None:
    @renamed_parameter("old", "new")
    def function(*, new: int = 1) -> int:
        return new

    assert list(inspect.signature(function).parameters) == ["new"]
