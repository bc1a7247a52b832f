"""Check points and acknowledgements of POP, written to be read: JSON whose keys are in the order of
the alphabet, without spaces, and without a key for what is not known.

check point            so start offset    pt pop time    it invisible time    reviveTime pt + it
                       d offsets less so    n their number    bm bits, 0    ro 0
                       q queue    t topic    c group    bn broker name
                       rp times put again, as text    sp suspended (5.5)
acknowledgement        ao offset    so pt q t c bn as above
of several messages    ao -1    aol offsets
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["ack", "check_point", "key_of", "read"]


def check_point(**fields: Any) -> bytes:
    """Return the body of a check point with the fields so, pt, it, d, q, t, c, bn, rp and sp."""
    derived = {"n": len(fields["d"]), "reviveTime": fields["pt"] + fields["it"], "bm": 0, "ro": 0}
    return _text(fields | derived)


def ack(**fields: Any) -> bytes:
    """Return the body of an acknowledgement with the fields ao, or aol, so, pt, q, t, c and bn."""
    return _text({"ao": -1} | fields)


def key_of(body: bytes) -> str:
    """Return the unique key of the message that has the body."""
    fields = read(body)
    is_ack = "ao" in fields
    offset = fields["ao"] if is_ack else fields["so"]
    parts = [fields["t"], fields["q"], offset, fields["c"], fields["pt"], fields["bn"]]
    return "@".join(str(each) for each in [*parts, "ack" if is_ack else "ck"])


def read(body: bytes) -> dict[str, Any]:
    """Return the fields of a body."""
    fields = json.loads(body)
    assert isinstance(fields, dict)
    return fields


def _text(fields: dict[str, Any]) -> bytes:
    known = sorted((name, each) for name, each in fields.items() if each is not None)
    pairs = (f'"{name}":{json.dumps(each, separators=(",", ":"))}' for name, each in known)
    return f"{{{','.join(pairs)}}}".encode()
