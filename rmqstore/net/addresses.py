"""Addresses of network services as text, and networks that may connect."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

from rmqstore import arguments
from rmqstore.address import Address, format_address
from rmqstore.config.addresses import is_host
from rmqstore.errors import ArgumentError, ArgumentTypeError

__all__ = ["Address", "AllowList", "format_address", "ip_of", "numeric_host", "parse_address"]


def parse_address(
    place: str | Address, *, low_port: int = 1, default_port: int | None = None
) -> Address:
    """Return host and port of *place*, "host:port", "[v6]:port" or a pair of them; with a
    *default_port* also "host" or "[v6]".

    Raises ArgumentError without a host: the caller names the network, no default opens a port to
    all.
    """
    if isinstance(place, str):
        lacks_port = place.endswith("]") or not (":" in place or place.isdecimal())
        if default_port is not None and lacks_port:
            place = f"{place}:{default_port}"
        host, _, digits = place.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        port = int(digits) if digits.isascii() and digits.isdecimal() else -1
    else:
        host, port = _pair_of(place)
    if not is_host(host) or not low_port <= port <= 65535:
        raise ArgumentError(
            f"{arguments.shown(place)} is not an address: give host and port as in "
            f"127.0.0.1:10912, the port from {low_port} to 65535; 0.0.0.0 for every interface"
        )
    return host, port


def numeric_host(host: str) -> str:
    """Return the numeric address of *host*, that of version 4 where a name has both.

    Raises OSError where the name has no address.
    """
    try:
        return str(ip_of(host))
    except ValueError:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        # AF_INET is below AF_INET6.
        _, *_, address = min(found, key=lambda each: each[0])
        return str(address[0])


def _pair_of(place: object) -> Address:
    if isinstance(place, tuple | list) and len(place) == 2:
        host, port = place
        if isinstance(host, str) and isinstance(port, int) and not isinstance(port, bool):
            return host, port
    raise ArgumentTypeError(
        f"{arguments.shown(place)} is not an address: give host and port as in 127.0.0.1:10912"
    )


class AllowList:
    """The networks from which connections are accepted; without networks, all connections."""

    def __init__(self, networks: Iterable[str]) -> None:
        try:
            self._networks = [ipaddress.ip_network(each) for each in networks]
        except ValueError as error:
            raise ArgumentError(f"allow: {error}; give networks as in 10.0.0.0/8") from error

    def takes(self, host: str) -> bool:
        """Whether a connection from *host*, a numeric address, is accepted."""
        if not self._networks:
            return True
        address = ip_of(host)
        return any(address in network for network in self._networks)

    def __str__(self) -> str:
        return ", ".join(map(str, self._networks)) or "all networks"


def ip_of(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Return the numeric address *host*; an IPv4 address mapped to IPv6 as the IPv4 address."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped
    return address
