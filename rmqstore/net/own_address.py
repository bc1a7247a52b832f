"""The address of this machine that others can connect to."""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

__all__ = ["OwnAddress", "choose_address", "own_address"]

# Requests of Linux's ioctl for a network interface, with the places in its answers.
_GET_FLAGS, _GET_ADDRESS, _ETHTOOL = 0x8913, 0x8915, 0x8946
_FLAGS_AT = 16
_ADDRESS_AT = 20
_GET_DRIVER = 3
_DRIVER_BYTES = 196
_DRIVER_NAME = slice(4, 36)

_UP, _POINT_TO_POINT, _RUNNING, _WITHOUT_ARP = 0x1, 0x10, 0x40, 0x80
_INSIDE = frozenset({"bridge", "dummy", "geneve", "openvswitch", "tun", "vxlan"})
"""Drivers of interfaces whose addresses usually lead to this machine or to an overlay only."""

_IPV6_FILE = Path("/proc/net/if_inet6")
_GLOBAL_SCOPE = 0
_UNUSABLE_FLAGS = 0x08 | 0x20 | 0x40
"""Duplicate, deprecated or tentative."""


class OwnAddress(NamedTuple):
    """An address of this machine."""

    address: str
    interface: str
    is_reachable: bool = True
    """Whether other machines usually reach it: it is neither that of a bridge, a tunnel or another
    interface inside this machine, nor a loopback address."""

    def __str__(self) -> str:
        return self.address


def own_address() -> OwnAddress:
    """Return the address of this machine that `choose_address` prefers."""
    return choose_address(list(_addresses()))


def choose_address(found: Sequence[OwnAddress]) -> OwnAddress:
    """Return the address of *found*, in the order of the interfaces, that others reach best.

    Reachable addresses are preferred, of these version 4. As in RocketMQ it is the first outside
    the networks 192.168 and 169.254, else the last. Without any address it is 127.0.0.1.
    """
    for is_reachable in (True, False):
        for version in (4, 6):
            usable = [
                each
                for each in found
                if each.is_reachable is is_reachable
                and ipaddress.ip_address(each.address).version == version
            ]
            for each in usable:
                if not each.address.startswith(("192.168.", "169.254.")):
                    return each
            if usable:
                return usable[-1]
    return OwnAddress("127.0.0.1", "lo", is_reachable=False)


def _addresses() -> Iterator[OwnAddress]:
    """Yields the addresses of the interfaces that are up, without loopback addresses."""
    version_6 = _addresses_of_version_6()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            flags = 0
            with contextlib.suppress(OSError):  # The interface may just have gone.
                answer = fcntl.ioctl(probe.fileno(), _GET_FLAGS, request)
                flags = int(struct.unpack_from("H", answer, _FLAGS_AT)[0])
            if flags & (_UP | _RUNNING) != _UP | _RUNNING:
                continue
            is_inside = flags & (_POINT_TO_POINT | _WITHOUT_ARP) or _driver(probe, name) in _INSIDE
            addresses = version_6.get(name, [])
            with contextlib.suppress(OSError):  # The interface may have no address of version 4.
                answer = fcntl.ioctl(probe.fileno(), _GET_ADDRESS, request)
                addresses = [
                    socket.inet_ntoa(answer[_ADDRESS_AT : _ADDRESS_AT + 4]),
                    *addresses,
                ]
            for address in addresses:
                if not ipaddress.ip_address(address).is_loopback:
                    yield OwnAddress(address, name, not is_inside)


def _driver(probe: socket.socket, name: str) -> str:
    """Returns the name of an interface's driver, "" where it is not known."""
    info = array("B", struct.pack(f"I{_DRIVER_BYTES - 4}x", _GET_DRIVER))
    request = struct.pack("16sP", name.encode()[:15], info.buffer_info()[0])
    try:
        fcntl.ioctl(probe.fileno(), _ETHTOOL, request)
    except OSError:
        return ""
    return info.tobytes()[_DRIVER_NAME].partition(b"\0")[0].decode(errors="replace")


def _addresses_of_version_6() -> dict[str, list[str]]:
    """Returns the global addresses of each interface."""
    found: dict[str, list[str]] = {}
    try:
        lines = _IPV6_FILE.read_text(encoding="ascii").splitlines()
    except OSError:
        return found  # The kernel has no IPv6.
    for line in lines:
        digits, _, _, scope, flags, name = line.split()
        if int(scope, 16) == _GLOBAL_SCOPE and not int(flags, 16) & _UNUSABLE_FLAGS:
            found.setdefault(name, []).append(str(ipaddress.IPv6Address(bytes.fromhex(digits))))
    return found
