"""The descriptors of this process: some are kept back from connections, for files.

The system gives each new descriptor the lowest free number. So the number of an accepted socket
shows how many descriptors are open at least.
"""

from __future__ import annotations

import contextlib
import resource

__all__ = ["raise_limit", "refusal"]

_KEPT_BACK_MAX = 128


def raise_limit() -> None:
    """Raise the soft limit of this process to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Where the system refuses, the present limit bounds the connections.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def refusal(descriptor: int, *, is_client: bool = True) -> str:
    """Return why a new connection with this *descriptor* must be closed; "" where it may stay.

    A quarter of the descriptors, at most 128, are for files and for this server's own connections.
    Connections that are not of clients, but of slaves or of metrics, may use half of this part.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return ""
    kept_back = min(limit // 4, _KEPT_BACK_MAX)
    usable = limit - (kept_back if is_client else kept_back // 2)
    if descriptor < usable:
        return ""
    return (
        f"{usable} of {limit} descriptors of this process are open, and the others are kept back "
        "for files; raise the limit (ulimit -n, LimitNOFILE of systemd)"
    )
