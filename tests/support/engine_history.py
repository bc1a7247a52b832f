"""The state of an engine under test: every command that was applied, in order."""

from __future__ import annotations

import json
from collections.abc import Callable

from rmqstore.controller.engines.engine import Engine, Outcome


class History:
    """Commands by the order of their application; a command's result is its place."""

    def __init__(self) -> None:
        self.commands: list[str] = []
        self.last_index = 0

    def apply(self, index: int, term: int, command: bytes) -> bytes:
        assert index > self.last_index, "commands are applied in order, once"
        self.last_index = index
        self.commands.append(command.decode())
        return str(len(self.commands)).encode()

    def snapshot(self) -> bytes:
        return json.dumps([self.last_index, self.commands]).encode()

    def restore(self, data: bytes) -> None:
        self.last_index, self.commands = json.loads(data)

    async def start(self, engine: Engine) -> None:
        """Start *engine* with this state."""
        await engine.start(self.apply, self.snapshot, self.restore)


async def commit(engine: Engine, command: str) -> int:
    """Propose *command*, which must be committed; return its place."""
    outcome, applied = await engine.propose(command.encode(), timeout=30)
    assert outcome is Outcome.COMMITTED, outcome
    assert applied is not None
    return int(applied.result)


MakeEngine = Callable[[], Engine]
