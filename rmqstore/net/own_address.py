"""The address of this machine that others can connect to."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence

__all__ = ["choose_address", "own_address"]

_SIOCGIFADDR = 0x8915
_ADDRESS_AT = 20
"""Bytes before the address in Linux's struct ifreq: name, family, port."""
_LOOPBACK = "127.0.0.1"


def own_address() -> str:
    """Return the address of this machine that `choose_address` prefers, 127.0.0.1 without any
    other."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # The interface has no address of version 4.
            found.append(socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + 4]))
    return choose_address(found)


def choose_address(addresses: Sequence[str]) -> str:
    """Return the address of *addresses*, in the order of the interfaces, that RocketMQ prefers.

    It is the first address outside the networks 127.0, 192.168 and 169.254, else the last that is
    not a loopback address, else 127.0.0.1.
    """
    reachable = [each for each in addresses if not ipaddress.ip_address(each).is_loopback]
    for each in reachable:
        if not each.startswith(("192.168.", "169.254.")):
            return each
    return reachable[-1] if reachable else _LOOPBACK
