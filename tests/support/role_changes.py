"""Changes of a role, carried out on a model of a replica's log."""

from __future__ import annotations

from rmqstore.replication.group.roles import Change, RoleEffect
from rmqstore.replication.protocol.events import (
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
from tests.scenarios.ha_model import ModelLog


def done(log: ModelLog, change: Change[str]) -> list[RoleEffect[str]]:
    """Carry a change out on *log* and return its effects."""
    effects = []
    for effect in change:
        effects.append(effect)
        if isinstance(effect, FlushLog | PromiseConfirm | SaveEpochs | SaveEpochState):
            assert log.carry_out(effect) is None
    return effects
