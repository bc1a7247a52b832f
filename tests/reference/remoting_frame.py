"""Frames of the remoting protocol, read and written one field at a time.

A frame is a dict: type (0 JSON, 1 binary), code, language (a number), version, opaque, flag, remark
(None without), fields (None without, else a dict of strings), body.

Source: RemotingCommand, RocketMQSerializable and LanguageCode of RocketMQ 5.3.3.
"""

from __future__ import annotations

import json
from typing import Any

LANGUAGES = (
    *("JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO"),
    *("PHP", "OMS", "RUST", "NODE_JS"),
)


def _number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=True)


def _text(text: str, size_of_size: int) -> bytes:
    data = text.encode()
    return _number(len(data), size_of_size) + data


def encode(frame: dict[str, Any]) -> bytes:
    """Return the bytes of a frame."""
    header = _binary(frame) if frame["type"] == 1 else _json(frame)
    content = bytes([frame["type"]]) + len(header).to_bytes(3, "big") + header + frame["body"]
    return len(content).to_bytes(4, "big") + content


def _json(frame: dict[str, Any]) -> bytes:
    header = {
        "code": frame["code"],
        "extFields": frame["fields"],
        "flag": frame["flag"],
        "language": LANGUAGES[frame["language"]],
        "opaque": frame["opaque"],
        "remark": frame["remark"],
        "serializeTypeCurrentRPC": "JSON",
        "version": frame["version"],
    }
    found = {key: value for key, value in header.items() if value is not None}
    return json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()


def _binary(frame: dict[str, Any]) -> bytes:
    entries = b"".join(
        _text(key, 2) + _text(value, 4) for key, value in (frame["fields"] or {}).items()
    )
    return b"".join(
        (
            _number(frame["code"], 2),
            _number(frame["language"], 1),
            _number(frame["version"], 2),
            _number(frame["opaque"], 4),
            _number(frame["flag"], 4),
            _text(frame["remark"] or "", 4),
            _number(len(entries), 4),
            entries,
        )
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data):
            raise ValueError(f"{size} of {len(self.data)} bytes")
        taken, self.data = self.data[:size], self.data[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big", signed=True)

    def text(self, size_of_size: int) -> str:
        return self.take(self.number(size_of_size)).decode()


def decode(data: bytes) -> dict[str, Any]:
    """Return the frame that fills *data* exactly. Raises ValueError for other bytes."""
    reader = _Reader(data)
    if reader.number(4) != len(reader.data):
        raise ValueError("another length")
    kind = reader.take(1)[0]
    header = reader.take(int.from_bytes(reader.take(3), "big"))
    found = {"type": kind, "body": reader.data}
    if kind == 1:
        return found | _from_binary(_Reader(header))
    if kind == 0:
        return found | _from_json(json.loads(header))
    raise ValueError(f"type {kind}")


def _from_json(header: dict[str, Any]) -> dict[str, Any]:
    return {
        "code": header.get("code", 0),
        "language": LANGUAGES.index(header.get("language", "JAVA")),
        "version": header.get("version", 0),
        "opaque": header.get("opaque", 0),
        "flag": header.get("flag", 0),
        "remark": header.get("remark"),
        "fields": header.get("extFields"),
    }


def _from_binary(header: _Reader) -> dict[str, Any]:
    found: dict[str, Any] = {
        "code": header.number(2),
        "language": header.number(1),
        "version": header.number(2),
        "opaque": header.number(4),
        "flag": header.number(4),
        "remark": header.text(4) or None,
    }

    entries = _Reader(header.take(header.number(4)))
    if header.data:
        raise ValueError("more behind the entries")

    fields: dict[str, str] = {}
    while entries.data:
        key = entries.text(2)
        fields[key] = entries.text(4)

    return found | {"fields": fields or None}
