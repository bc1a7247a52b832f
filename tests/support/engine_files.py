"""A directory of an engine in memory, which records its effects and fails on demand."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tests.support.disk_model import Effect, Kind, State


class ModelDirectory:
    """Files by name, and every effect on them in the form of `disk_model`.

    *before* is called with the name of each operation before the operation, which raises what
    *before* raises.
    """

    path = "model"

    def __init__(
        self, state: State | None = None, *, before: Callable[[str], None] = lambda act: None
    ) -> None:
        self.files = {name: data for name, data in (state or {}).items() if data is not None}
        self.before = before
        self.effects: list[Effect] = []
        self._numbers: dict[str, int] = {}
        self._count = 0
        self.is_open = True

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def replace(self, name: str, data: bytes) -> None:
        self.before("replace")
        number = self._next()
        self.effects += [
            Effect(Kind.CREATE, number, path=f"{name}.tmp"),
            Effect(Kind.STORE, number, at=0, size=len(data), data=data),
            Effect(Kind.SYNC, number, at=0, size=len(data)),
            Effect(Kind.RENAME, path=f"{name}.tmp", other_path=name),
            Effect(Kind.SYNC_DIRECTORY),
        ]
        self.files[name] = data
        self._numbers[name] = number

    def open(self, name: str) -> ModelFile:
        self.before("open")
        if name not in self.files:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = self._next()
            self.effects.append(Effect(Kind.OPEN, number, path=name))
        return ModelFile(self, name, number)

    def close(self) -> None:
        self.is_open = False

    def _next(self) -> int:
        self._count += 1
        return self._count


class ModelFile:
    """One open file."""

    def __init__(self, directory: ModelDirectory, name: str, number: int) -> None:
        self._directory = directory
        self._name = name
        self._number = number

    def write(self, data: bytes) -> None:
        directory = self._directory
        content = directory.files[self._name]
        try:
            directory.before("write")
        except OSError:
            # A full disk takes the first bytes.
            self._store(content, data[: len(data) // 2])
            raise
        self._store(content, data)

    def _store(self, content: bytes, data: bytes) -> None:
        effect = Effect(Kind.STORE, self._number, at=len(content), size=len(data), data=data)
        self._directory.effects.append(effect)
        self._directory.files[self._name] = content + data

    def sync(self) -> None:
        self._directory.before("sync")
        size = len(self._directory.files[self._name])
        self._directory.effects.append(Effect(Kind.SYNC, self._number, at=0, size=size))

    def truncate(self, size: int) -> None:
        self._directory.before("truncate")
        self._directory.effects.append(Effect(Kind.RESIZE, self._number, size=size))
        content = self._directory.files[self._name]
        self._directory.files[self._name] = content[:size]

    def close(self) -> None:
        """Nothing is held."""
