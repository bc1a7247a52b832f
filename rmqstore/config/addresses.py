"""Hosts and addresses of servers in a configuration: the rule for them, and their codecs."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence

from rmqstore.arguments import shown
from rmqstore.config.options import WORDS, Codec, codec_for

__all__ = ["ADDRESS", "ADDRESSES", "HOST", "is_address", "is_host"]

_NAME = re.compile(r"(?!.{254})(?:[\w-]{1,63}\.)*[\w-]{1,63}\.?", re.ASCII)
_PORT_MAX = 65535
_TEXT = codec_for(str)


def is_host(text: str) -> bool:
    """Return whether *text* can be the name of a host, or an IPv4 or IPv6 address."""
    if ":" not in text:
        return _NAME.fullmatch(text) is not None
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_address(text: str, *, low_port: int = 1) -> bool:
    """Return whether *text* is a host and a port, with or without brackets around IPv6."""
    host, _, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and low_port <= int(port) <= _PORT_MAX
    return is_port and is_host(_without_brackets(host))


def _without_brackets(host: str) -> str:
    is_enclosed = host.startswith("[") and host.endswith("]")
    return host[1:-1] if is_enclosed and ":" in host else host


def _parse_host(value: object) -> str:
    return _without_brackets(str(_TEXT.parse(value)))


def _host_violation(host: str) -> str:
    if not host or is_host(host):
        return ""
    return (
        f"{shown(host, typed=False)} is not a host; give its name, or an IPv4 or IPv6 address, "
        "without a port"
    )


def _address_violation(address: str) -> str:
    if not address or is_address(address):
        return ""
    return (
        f"{shown(address, typed=False)} is not a host and a port; give both, such as 10.0.0.7:10912"
    )


def _addresses_violation(addresses: Sequence[str]) -> str:
    for each in addresses:
        if not is_address(each):
            return (
                f"{shown(each, typed=False)} is not a host and a port; give addresses such as "
                "10.0.0.7:9876, separated by ;"
            )
    return ""


HOST = Codec(_parse_host, _TEXT.format, _TEXT.accepts, _host_violation)
"""A host without a port; IPv6 may be in brackets."""
ADDRESS = Codec(_TEXT.parse, _TEXT.format, _TEXT.accepts, _address_violation)
"""A host and a port."""
ADDRESSES = Codec(WORDS.parse, WORDS.format, WORDS.accepts, _addresses_violation)
"""Hosts and ports separated by semicolons."""
