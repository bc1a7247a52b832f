"""Exchanges between real Java programs, as recorded; README.md tells what each session is."""

from __future__ import annotations

import functools
import json
import re
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent
SESSIONS = tuple(sorted(path.name.removesuffix(".tar.xz") for path in DIRECTORY.glob("*.tar.xz")))


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request, and the response if there was one: whole frames."""

    session: str
    code: int
    name: str
    number: int
    request: bytes
    response: bytes | None
    told: Mapping[str, Any]
    """What the recorder found: "to" or "from", "request", "response"."""

    def __str__(self) -> str:
        return f"{self.session}-{self.code}-{self.name}-{self.number}"


@functools.cache
def exchanges(session: str) -> tuple[Exchange, ...]:
    """Return the exchanges of *session*, ordered by request code and number."""
    with tarfile.open(DIRECTORY / f"{session}.tar.xz") as packed:
        content = {
            member.name: file.read()
            for member in packed.getmembers()
            if (file := packed.extractfile(member)) is not None
        }

    found = []
    for path in content:
        match = re.fullmatch(rf"{session}/(\d+)-(\w+)/(\d+)\.request\.bin", path)
        if match is None:
            continue

        stem = path.removesuffix(".request.bin")
        found.append(
            Exchange(
                session,
                code=int(match[1]),
                name=match[2],
                number=int(match[3]),
                request=content[path],
                response=content.get(f"{stem}.response.bin"),
                told=json.loads(content[f"{stem}.json"]),
            )
        )

    return tuple(sorted(found, key=lambda each: (each.code, each.number)))


def every_exchange() -> list[Exchange]:
    """Return the exchanges of all sessions."""
    return [exchange for session in SESSIONS for exchange in exchanges(session)]


def every_frame() -> list[bytes]:
    """Return all recorded frames."""
    return [
        frame
        for exchange in every_exchange()
        for frame in (exchange.request, exchange.response)
        if frame is not None
    ]
