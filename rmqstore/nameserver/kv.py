"""Key-value configuration by namespace, as a pure value (RocketMQ: KVConfigManager).

The file kvConfig.json is {"configTable":{"NAMESPACE":{"KEY":"VALUE"}}}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.values import object_of, text_at

__all__ = ["KvConfig"]


@dataclass(frozen=True, slots=True)
class KvConfig:
    """All namespaces. Every change returns a new value."""

    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def put(self, namespace: str, key: str, value: str) -> KvConfig:
        """Return the configuration with a pair added or replaced."""
        pairs = {**self.namespaces.get(namespace, {}), key: value}
        return KvConfig({**self.namespaces, namespace: pairs})

    def delete(self, namespace: str, key: str) -> KvConfig:
        """Return the configuration without a pair; the namespace stays."""
        if self.get(namespace, key) is None:
            return self
        pairs = {each: value for each, value in self.namespaces[namespace].items() if each != key}
        return KvConfig({**self.namespaces, namespace: pairs})

    def get(self, namespace: str, key: str) -> str | None:
        """Return a value, None for an unknown key."""
        return self.namespaces.get(namespace, {}).get(key)

    def pairs(self, namespace: str) -> Mapping[str, str] | None:
        """Return the pairs of a namespace, None for an unknown one."""
        return self.namespaces.get(namespace)

    def encode(self) -> bytes:
        """Return the content of the file."""
        table = {name: dict(pairs) for name, pairs in self.namespaces.items()}
        text = json.dumps({"configTable": table}, ensure_ascii=False, separators=(",", ":"))
        return text.encode("utf-8", "surrogatepass")

    @classmethod
    def decode(cls, content: bytes) -> KvConfig:
        """Return the configuration of a file. Raises RemotingFrameError for any other content."""
        fields = fastjson.loads(content)
        if not isinstance(fields, dict):
            raise RemotingFrameError("the file holds no JSON object; restore it from a copy")
        table = object_of(fields.get("configTable"), "configTable")
        namespaces = {}
        for name in table:
            pairs = object_of(table[name], name)
            namespaces[name] = {key: text_at(pairs, key) for key in pairs}
        return cls(namespaces)
