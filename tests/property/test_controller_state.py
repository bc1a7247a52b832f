"""The controller's state agrees with its model for any commands in any order."""

from __future__ import annotations

import dataclasses
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from rmqstore.controller.commands import (
    AlterSet,
    AssignBrokerId,
    Command,
    ContinueEpoch,
    ElectMaster,
    Incarnation,
    RecordIncarnation,
    RecordTerms,
    RemoveBrokers,
    SetAddress,
    SettleDeparted,
    Terms,
    decode_command,
    encode_command,
)
from rmqstore.controller.group import Electorate, Group
from rmqstore.controller.state import ControllerState, Verdict, decode_result, encode_result
from tests.reference.controller_state import Model

GROUPS = st.sampled_from(["a", "b"])
IDS = st.integers(1, 5)
EPOCHS = st.integers(0, 6)
TERMS = st.builds(
    Terms, st.integers(1, 3), st.integers(1, 2), st.booleans(), st.sampled_from([0, 1000])
)
INCARNATIONS = st.builds(
    Incarnation, st.integers(1, 3), st.sampled_from(["b1", "b2"]), st.booleans()
)
SETS = st.frozensets(IDS, min_size=1, max_size=4)
# Small numbers, so that many commands expect the current state.
ASSIGNMENTS = st.builds(
    AssignBrokerId,
    GROUPS,
    st.sampled_from(["c", "c", "c", "d"]),
    IDS,
    st.sampled_from(["h:1", "h:2"]),
    st.sampled_from(["x", "y"]),
)
ELECTIONS = st.builds(
    ElectMaster,
    GROUPS,
    EPOCHS,
    EPOCHS,
    st.one_of(st.none(), IDS),
    st.integers(0, 8),
    st.booleans(),
    st.one_of(st.none(), st.integers(1, 3)),
    st.sampled_from([None, "b1", "b2"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
REMOVALS = st.builds(RemoveBrokers, GROUPS, st.one_of(st.none(), SETS))
COMMANDS = st.one_of(
    ASSIGNMENTS,
    st.builds(SetAddress, GROUPS, IDS, st.sampled_from(["h:1", "h:3"])),
    st.builds(
        AlterSet, GROUPS, IDS, EPOCHS, EPOCHS, SETS, st.booleans(), st.one_of(st.none(), TERMS)
    ),
    ELECTIONS,
    st.builds(RecordIncarnation, GROUPS, EPOCHS, IDS, INCARNATIONS),
    st.builds(ContinueEpoch, GROUPS, EPOCHS, st.integers(1, 3)),
    st.builds(RecordTerms, GROUPS, EPOCHS, TERMS),
    st.builds(SettleDeparted, GROUPS, EPOCHS, EPOCHS),
    REMOVALS,
)
AIMED = st.booleans()
"""Whether a command expects the current state, which random values seldom match."""


def _aimed(state: ControllerState, command: Command) -> Command:
    """Return *command* with the current state as its expected state."""
    group = state.past_group(command.group)
    if group is None:
        return command

    so = {
        "master_epoch": group.master_epoch,
        "set_epoch": group.set_epoch,
        "new_epoch": group.master_epoch + 1,
        "cluster": group.cluster,
    }

    if isinstance(command, AssignBrokerId):
        so["broker_id"] = group.next_broker_id
    if isinstance(command, AlterSet) and group.master_id is not None:
        so["master_id"] = group.master_id
        so["members"] = (command.members & group.brokers.keys()) | {group.master_id}

    names = {each.name for each in dataclasses.fields(command)}
    return dataclasses.replace(
        command, **{name: value for name, value in so.items() if name in names}
    )


def _seen(group: Group | None) -> dict[str, Any] | None:
    if group is None:
        return None
    return {
        "cluster": group.cluster,
        "brokers": {n: (r.address, r.check_code) for n, r in group.brokers.items()},
        "master": group.master_id,
        "life": group.master_life,
        "epoch": group.master_epoch,
        "set": set(group.sync_state_set),
        "set_epoch": group.set_epoch,
        "departed": set(group.departed),
        "is_settled": group.is_settled,
        "terms": group.terms,
        "former": None if group.former is None else _electorate(group.former),
        "awaits_lease": group.awaits_lease,
        "incarnations": {
            n: r.incarnation for n, r in group.brokers.items() if r.incarnation is not None
        },
    }


def _electorate(found: Electorate) -> dict[str, Any]:
    return {
        "set": set(found.members),
        "departed": set(found.departed),
        "terms": found.terms,
        "is_settled": found.is_settled,
    }


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(COMMANDS, AIMED), max_size=60), st.integers(0, 60))
def test_the_state_agrees_with_the_model(steps: list[tuple[Command, bool]], cut: int) -> None:
    state, restored, model = ControllerState(), ControllerState(), Model()
    for number, (drawn, is_aimed) in enumerate(steps):
        command = _aimed(state, drawn) if is_aimed else drawn
        assert decode_command(encode_command(command)) == command
        if number == cut:
            restored.restore(state.snapshot())

        result = state.apply(command)
        expected = model.apply(command)

        assert decode_result(encode_result(result)) == result
        known = {Verdict.APPLIED: "applied", Verdict.UNCHANGED: "unchanged"}
        assert known.get(result.verdict, "refused") == expected, (command, result)
        wanted = model.view(command.group)
        if wanted is not None:
            wanted = {name: value for name, value in wanted.items() if name != "has_elected"}
        assert _seen(state.group(command.group)) == wanted, command
        if number >= cut:
            restored.apply(command)
            assert restored.snapshot() == state.snapshot()


@settings(max_examples=200, deadline=None)
@given(st.lists(COMMANDS, max_size=40))
def test_a_command_that_is_applied_again_changes_nothing(commands: list[Command]) -> None:
    state = ControllerState()
    for drawn in commands:
        command = _aimed(state, drawn)
        state.apply(command)
        before = state.snapshot()
        state.apply(command)
        assert state.snapshot() == before, command


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(COMMANDS, AIMED), max_size=60))
@example(
    [
        (AssignBrokerId("a", "c", 1, "h:1", "x"), True),
        (AssignBrokerId("a", "c", 2, "h:2", "x"), True),
        (RemoveBrokers("a", frozenset((1,))), True),
        (AssignBrokerId("a", "c", 1, "h:1", "y"), False),
    ]
)
@example(
    [
        (AssignBrokerId("a", "c", 1, "h:1", "x"), True),
        (ElectMaster("a", 0, 0, 1, 1, False), True),
        (RemoveBrokers("a", None), True),
        (AssignBrokerId("a", "c", 1, "h:1", "y"), True),
        (ElectMaster("a", 0, 0, 1, 1, False), True),
    ]
)
def test_ids_and_epochs_are_never_given_twice(steps: list[tuple[Command, bool]]) -> None:
    state = ControllerState()
    given_ids: set[tuple[str, int]] = set()
    masters: dict[tuple[str, int], int] = {}

    for drawn, is_aimed in steps:
        command = _aimed(state, drawn) if is_aimed else drawn
        before = state.past_group(command.group)
        result = state.apply(command)
        after = state.past_group(command.group)

        if isinstance(command, AssignBrokerId) and result.verdict is Verdict.APPLIED:
            key = (command.group, command.broker_id)
            assert key not in given_ids
            given_ids.add(key)

        if after is None:
            continue

        if before is not None:
            assert after.master_epoch >= before.master_epoch
            assert after.set_epoch >= before.set_epoch
            if after.sync_state_set != before.sync_state_set:
                assert after.set_epoch > before.set_epoch

        if after.master_id is not None:
            epoch = (after.name, after.master_epoch)
            assert masters.setdefault(epoch, after.master_id) == after.master_id
            assert after.master_id in after.sync_state_set
