"""Addresses of network services as text."""

from __future__ import annotations

__all__ = ["Address", "address_text", "format_address"]

Address = tuple[str, int]
"""Host and port."""


def format_address(address: Address) -> str:
    """Return *address* as text, with brackets around IPv6."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_text(value: object) -> object:
    """Return a pair of host and port as text, and any other value unchanged."""
    match value:
        case (str() as host, int() as port) if not isinstance(port, bool):
            return format_address((host, port))
    return value
