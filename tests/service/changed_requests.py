"""Recorded requests with fields and bodies changed at random."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from rmqstore.remoting.frames import Frame

_VALUES = (
    *("", "0", "-1", "1", "2", "3", "true", "x", "\x00", "ü" * 300, "9223372036854775807"),
    *("-9223372036854775808", "2147483647", "1e3", "None", "1;2", "broker-a", "PeerCluster"),
)
_BODIES = (
    *(b"", b"{", b"[]", b"null", b"7", b"\xff\xfe", b'["broker-a"]', b"[" * 5000),
    *(b"listenPort=x\n", b'{"": {}}', b"[{}]"),
)


def changed(
    rng: Random,
    request: Frame,
    *,
    added: Sequence[str] = (),
    values: Sequence[str] = (),
    bodies: Sequence[bytes] = (),
) -> Frame:
    """Return *request* with up to two fields and its body changed: fields of its own or *added*
    ones, with common *values* or those given, and likewise *bodies*."""
    fields, body = dict(request.ext_fields), request.body
    for _ in range(rng.randrange(3)):
        names = [*fields, *added]
        if not names:
            break
        name = rng.choice(names)
        if rng.random() < 0.2:
            fields.pop(name, None)
        else:
            fields[name] = rng.choice([*_VALUES, *values])
    if rng.random() < 0.3:
        body = rng.choice([*_BODIES, *bodies])
    return replace(request, flag=0, ext_fields=fields, body=body)
