"""How the members of consumer groups request messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rmqstore.broker.metadata.changes import Entry
from rmqstore.broker.metadata.shared_table import SharedTable
from rmqstore.remoting.codes import RequestCode
from rmqstore.store.metadata import RequestMode, RequestModes
from rmqstore.store.metadata.members import Members

__all__ = ["SharedModes"]


class SharedModes(SharedTable):
    """messageRequestMode.json: `known` has the modes by topic and group."""

    name = "mode"
    kinds = ("mode",)
    file_type = RequestModes
    code = RequestCode.GET_ALL_MESSAGE_REQUEST_MODE

    def __init__(self) -> None:
        self.take_whole(RequestModes())

    def whole(self) -> RequestModes:
        modes = {topic: dict(groups) for topic, groups in self.known.items()}
        return RequestModes(modes, self._others)

    def take_whole(self, table: RequestModes) -> None:
        self.known: dict[str, dict[str, RequestMode]] = {
            topic: dict(groups) for topic, groups in table.modes.items()
        }
        self._others = table.others

    def lead(self) -> None:
        pass  # There is no version.

    def set(self, mode: RequestMode) -> int:
        """Add or replace the mode of a group on a topic; return the number of the change."""
        self.known.setdefault(mode.topic, {})[mode.group] = mode
        return self._log.note(self.name, mode.topic)

    def value_of(self, entry: Entry) -> Any:
        modes = self.known.get(entry.key)
        return modes and {group: each.members() for group, each in modes.items()}

    def read(self, entry: Entry, value: Any) -> Mapping[str, RequestMode] | None:
        if value is None:
            return None
        return {
            group: RequestMode.of(each, topic=entry.key, group=group)
            for group, each in Members(value, f"mode {entry.key}").objects()
        }

    def take(self, changes: Sequence[tuple[Entry, Mapping[str, RequestMode] | None]]) -> None:
        for entry, modes in changes:
            if modes is None:
                self.known.pop(entry.key, None)
            else:
                self.known[entry.key] = dict(modes)
