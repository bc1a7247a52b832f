"""Streams between real Java replicas, as recorded; README.md tells what each case and file is."""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent
NAMES = tuple(sorted(path.name.removesuffix(".tar.xz") for path in DIRECTORY.glob("*.tar.xz")))


@dataclass(frozen=True, slots=True)
class Stream:
    """One direction of one connection."""

    case: str
    wire: str
    connection: int
    speaker: str
    """Who sent it, as `protocol.frames` names streams: "classic slave" and so on."""
    data: bytes
    frames: Sequence[Mapping[str, Any]]
    """What the recorder found in it, one entry per frame; the last may be "partial"."""

    def __str__(self) -> str:
        return f"{self.case}-{self.wire}-{self.connection}-{self.speaker.replace(' ', '-')}"


def streams(name: str) -> list[Stream]:
    """Return all streams of a case, in the order of their connections."""
    with _open(name) as packed:
        content = {
            member.name.removeprefix(f"{name}/"): _read(packed, member)
            for member in packed.getmembers()
            if member.isfile() and re.search(r"/(case\.json|wire[-\d]*/.*)$", member.name)
        }

    protocol = json.loads(content["case.json"])["protocol"]
    word = {"default": "classic", "autoswitch": "auto-switch"}[protocol]

    found = []
    for path in sorted(content):
        match = re.fullmatch(r"(wire[-\d]*)/conn-(\d+)\.(c2s|s2c)\.bin", path)
        if not match:
            continue

        wire, connection, direction = match[1], int(match[2]), match[3]
        lines = map(json.loads, content[f"{wire}/frames.jsonl"].splitlines())
        frames = [line for line in lines if (line["conn"], line["dir"]) == (connection, direction)]
        speaker = f"{word} {'slave' if direction == 'c2s' else 'master'}"

        found.append(Stream(name, wire, connection, speaker, content[path], frames))

    return found


def every_stream() -> list[Stream]:
    """Return the streams of all cases."""
    return [stream for name in NAMES for stream in streams(name)]


def unpack(name: str, into: Path) -> Path:
    """Unpack a case, with the replicas' logs and epoch files, and return its folder."""
    with _open(name) as packed:
        # The filter exists from 3.11.4 on and is asked for by later releases.
        packed.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
        packed.extractall(into)
    return into / name


def _open(name: str) -> tarfile.TarFile:
    if name not in NAMES:
        raise ValueError(f"no such recording: {name}; there are {', '.join(NAMES)}")
    return tarfile.open(DIRECTORY / f"{name}.tar.xz")


def _read(packed: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = packed.extractfile(member)
    assert file is not None
    return file.read()
