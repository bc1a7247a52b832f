"""The small files of a simulated machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rmqstore.sim.disk import ModelLog

__all__ = ["MachineFolder"]


class MachineFolder:
    """A folder whose files, *files*, are durable as soon as they are replaced.

    A change is one of the changes of *log*'s disk: the process may die before it, and a full disk
    refuses it. *enter* runs the change for the process.
    """

    def __init__(
        self,
        files: dict[str, bytes],
        log: ModelLog,
        enter: Callable[[Callable[[], Any]], Any],
        *,
        path: str = "",
    ) -> None:
        self._files = files
        self._log = log
        self._enter = enter
        self._path = path

    def at(self, path: object) -> MachineFolder:
        """Return the folder at *path* on the same disk."""
        return MachineFolder(self._files, self._log, self._enter, path=f"{path}/")

    def place(self, name: str) -> str:
        """Return the path of a file."""
        return self._path + name

    def read(self, name: str) -> bytes:
        """Return the content of a file. Raises FileNotFoundError without it."""
        try:
            return self._files[self.place(name)]
        except KeyError:
            raise FileNotFoundError(self.place(name)) from None

    def replace(self, name: str, data: bytes) -> None:
        """Replace the content of a file, or make it."""
        self._enter(lambda: self._log.change(needs_room=True))
        self._files[self.place(name)] = data

    def append(self, name: str, data: bytes) -> None:
        """Add to the content of a file, which is there."""
        self._enter(lambda: self._log.change(needs_room=True))
        self._files[self.place(name)] += data

    def rename(self, name: str, to: str) -> None:
        """Give a file another name."""
        self._enter(self._log.change)
        self._files[self.place(to)] = self._files.pop(self.place(name))

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.has(name):
            self._enter(self._log.change)
            del self._files[self.place(name)]

    def has(self, name: str) -> bool:
        """Return whether there is a file of that name."""
        return self.place(name) in self._files
