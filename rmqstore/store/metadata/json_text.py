"""The text of the metadata files: JSON as fastjson writes it, with numeric keys unquoted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

__all__ = ["Printed", "parse", "pretty"]


class Printed(str):
    """The text of a value, as `pretty` returned it for the depth at which the value is."""

    __slots__ = ()


# A string, closed or not, or a number in the place of a key. Strings come first, so that nothing
# inside one counts as a key.
_STRING_OR_BARE_KEY = re.compile(r'"(?:[^"\\]|\\.)*+"?|(?<=[{,])(\s*+)(-?[0-9]+)(\s*+:)', re.DOTALL)
_REFERENCE = re.compile(r"\$((?:\.(?:\\.|[^.\[\\])+|\[-?[0-9]+\])*)", re.DOTALL)
_REFERENCE_STEP = re.compile(r"\.((?:\\.|[^.\[\\])+)|\[(-?[0-9]+)\]", re.DOTALL)


def parse(text: str) -> object:
    """Return the value of fastjson's text: bare numeric keys allowed, `$ref` objects resolved."""
    import json

    def quoted(match: re.Match[str]) -> str:
        return match[0] if match[2] is None else f'{match[1]}"{match[2]}"{match[3]}'

    try:
        root = json.loads(_STRING_OR_BARE_KEY.sub(quoted, text), strict=False)
        return _Resolver(root).resolve(root) if '"$ref"' in text else root
    except RecursionError:
        raise ValueError("objects are nested too deeply, or refer to themselves") from None


class _Resolver:
    """Replaces {"$ref": path} by the value at the path, each path once."""

    def __init__(self, root: object) -> None:
        self._root = root
        self._known: dict[str, object] = {}

    def resolve(self, value: object) -> object:
        if isinstance(value, list):
            return [self.resolve(each) for each in value]
        if not isinstance(value, dict):
            return value
        reference = value.get("$ref")
        if len(value) != 1 or not isinstance(reference, str):
            return {key: self.resolve(each) for key, each in value.items()}
        if reference not in self._known:
            # A path that leads back to itself never gets here twice: it ends as RecursionError.
            self._known[reference] = self.resolve(self._find(reference))
        return self._known[reference]

    def _find(self, reference: str) -> object:
        whole = _REFERENCE.fullmatch(reference)
        if whole is None:
            raise ValueError(
                f"$ref {reference!r} is not a path from the root, such as $.offsetTable"
            )
        value: Any = self._root
        for name, index in _REFERENCE_STEP.findall(whole[1]):
            try:
                if isinstance(value, list):
                    value = value[int(index)]
                else:
                    value = value[index or re.sub(r"\\(.)", r"\1", name, flags=re.DOTALL)]
            except (KeyError, IndexError, TypeError, ValueError):
                raise ValueError(f"$ref {reference!r} names no member of the file") from None
        return value


def pretty(value: Any, *, depth: int) -> str:
    """Return *value* as fastjson 1.2 prints it: a map of numeric keys is printed on one line."""
    import json

    if isinstance(value, Printed):
        return value
    if type(value) is int:
        return str(value)
    if not isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if not value:
        return "{}"
    end = "\n" + "\t" * depth
    pairs = [
        (key, each if type(each) is Printed else pretty(each, depth=depth + 1))
        for key, each in value.items()
    ]
    if all(isinstance(key, int) for key, _ in pairs):
        return "{" + ",".join([f"{key}:{text}" for key, text in pairs]) + end + "}"
    quoted = json.JSONEncoder(ensure_ascii=False).encode
    lines = [f"{end}\t{quoted(key)}:{text}" for key, text in pairs]
    return "{" + ",".join(lines) + end + "}"
