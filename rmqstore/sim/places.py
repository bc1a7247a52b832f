"""The addresses of a cluster's servers, and the numbers of their machines in the network."""

from __future__ import annotations

from rmqstore.sim.transport import host_of

__all__ = [
    "HA_PORT",
    "broker_place",
    "controller_place",
    "nameserver_place",
]

HA_PORT = 10912
_BROKER_PORT, _CONTROLLER_PORT, _NAMESERVER_PORT = 10911, 9878, 9876
_ELECTORS = 200
"""Machines with negative numbers have addresses from here on."""


def broker_place(number: int) -> str:
    """Return the address of the broker on a machine, the same in all its lives."""
    return f"{host_of(number)}:{_BROKER_PORT}"


def controller_place(number: int) -> str:
    """Return the address of the controller with a (negative) number."""
    return f"{host_of(_ELECTORS - number)}:{_CONTROLLER_PORT}"


def nameserver_place(number: int) -> str:
    """Return the address of the nameserver with a (negative) number."""
    return f"{host_of(_ELECTORS - number)}:{_NAMESERVER_PORT}"
