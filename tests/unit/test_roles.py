"""The role machine: which effects lead from one role to the next."""

from __future__ import annotations

import pytest

from rmqstore.errors import ArgumentError, Fenced
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.group.quorum import Mode, Quorum
from rmqstore.replication.group.roles import (
    AcceptPuts,
    AwaitDispatch,
    EndSide,
    Follow,
    Gate,
    RefusePuts,
    Reorder,
    RoleMachine,
    Serve,
    Settle,
)
from rmqstore.replication.protocol.events import (
    FlushLog,
    PromiseConfirm,
    SaveEpochs,
    SaveEpochState,
)
from tests.scenarios.ha_model import ModelLog, entries
from tests.support.role_changes import done

PLAIN = Mode.PLAIN
NOBODY: frozenset[int] = frozenset()


def roles_of(log: ModelLog, *, quorum: Quorum | None = None) -> RoleMachine[str]:
    return RoleMachine(log, quorum=quorum or Quorum(), mode=PLAIN, place="a")


def test_a_replica_without_a_role_becomes_master() -> None:
    log = ModelLog().begin(1).put("abc")
    log.confirm_offset = 100
    roles = roles_of(log)
    assert done(log, roles.become_master(4)) == [
        Settle(),
        SaveEpochState(EpochState().begin(4)),
        FlushLog(),
        SaveEpochs(entries((1, 0), (4, 300))),
        Serve(4, PLAIN, NOBODY, 0, is_new=True),
        AwaitDispatch(100),
        AcceptPuts(),
    ]
    assert (roles.role, roles.epoch, roles.failure) == ("master", 4, None)
    assert done(log, roles.become_master(4)) == []


def test_a_master_elected_again_keeps_its_side() -> None:
    log = ModelLog().begin(1).put("abc")
    roles = roles_of(log)
    done(log, roles.become_master(4))
    assert done(log, roles.become_master(5)) == [
        RefusePuts(),
        SaveEpochState(EpochState().begin(5)),
        FlushLog(),
        SaveEpochs(entries((1, 0), (4, 300), (5, 300))),
        Serve(5, PLAIN, NOBODY, 0, is_new=False),
        AcceptPuts(),
    ]


def test_a_master_that_is_given_a_set_begins_another_side() -> None:
    log = ModelLog().begin(1)
    roles = roles_of(log)
    done(log, roles.become_master(4))
    effects = done(log, roles.become_master(5, members=[1, 2], set_epoch=7))
    assert effects[:3] == [RefusePuts(), EndSide(), Settle()]
    serve = Serve(5, Mode.SYNC_STATE_SET, frozenset({1, 2}), 7, is_new=True)
    assert effects[-3:] == [serve, AwaitDispatch(0), AcceptPuts()]


def test_what_a_quorum_confirms_is_promised_before_anything_is_saved() -> None:
    log = ModelLog().begin(1).put("abc")
    log.is_gated = True
    roles = roles_of(log, quorum=Quorum(in_sync=2))
    effects = done(log, roles.become_master(2))
    assert effects[:2] == [Settle(), PromiseConfirm(is_promise=True)]
    assert not any(isinstance(each, PromiseConfirm) for each in done(log, roles.become_master(3)))


def test_what_was_written_before_any_epoch_belongs_to_the_first_one() -> None:
    log = ModelLog(start=200).put("abc")
    done(log, roles_of(log).become_master(1))
    assert log.epochs == entries((1, 200))


def test_an_epoch_that_begins_past_the_end_of_the_log_leaves_the_list() -> None:
    log = ModelLog().begin(1).put("ab")
    log.epochs = entries((1, 0), (2, 900))
    done(log, roles_of(log).become_master(3))
    assert log.epochs == entries((1, 0), (3, 200))


@pytest.mark.parametrize("epoch", [4, 5])
def test_an_epoch_that_is_over_is_refused(epoch: int) -> None:
    log = ModelLog().begin(5).put("a")
    with pytest.raises(Fenced, match=f"epoch {epoch} is over"):
        roles_of(log).become_master(epoch)


def test_a_replica_without_a_role_becomes_slave() -> None:
    log = ModelLog().begin(1).put("abc")
    roles = roles_of(log)
    assert done(log, roles.become_slave("b", 6, may_begin_anew=True)) == [
        SaveEpochState(EpochState(known_epoch=6, has_replicas=True)),
        Gate(),
        Follow("b", may_begin_anew=True, epoch=6),
    ]
    assert (roles.role, roles.master, roles.epoch) == ("slave", "b", 6)


def test_a_master_becomes_slave_with_its_log_on_the_disk() -> None:
    log = ModelLog().begin(1).put("abc")
    roles = roles_of(log)
    done(log, roles.become_master(2))
    state = log.epoch_state
    assert done(log, roles.become_slave("b", 3)) == [
        RefusePuts(),
        EndSide(),
        FlushLog(),
        SaveEpochState(state.end(300)),
        SaveEpochState(state.end(300).share().learn(3)),
        Gate(),
        Follow("b", may_begin_anew=False, epoch=3),
    ]


def test_a_slave_that_is_ordered_again_keeps_its_side_unless_it_has_halted() -> None:
    log = ModelLog().begin(1).put("abc")
    roles = roles_of(log)
    done(log, roles.become_slave("b", 3))
    assert done(log, roles.become_slave("b", 3)) == [Reorder(3, may_begin_anew=False, ordered=3)]
    assert done(log, roles.become_slave("b", 4, may_begin_anew=True)) == [
        SaveEpochState(EpochState(known_epoch=4, has_replicas=True)),
        Reorder(4, may_begin_anew=True, ordered=4),
    ]
    again = [EndSide(), Gate(), Follow("b", may_begin_anew=False, epoch=4)]
    assert done(log, roles.become_slave("b", 4, is_halted=True)) == again
    assert done(log, roles.become_slave("c", None))[-1] == Follow("c", may_begin_anew=False)


def test_orders_that_cannot_be_change_nothing() -> None:
    log = ModelLog().begin(3).put("a")
    roles = roles_of(log)
    done(log, roles.become_master(4))
    with pytest.raises(Fenced, match="itself master of epoch 4"):
        roles.become_slave("b", 4)
    with pytest.raises(Fenced, match="epoch 3 of the master is over"):
        roles.become_slave("b", 3)
    with pytest.raises(ArgumentError, match="allow_epoch_jump"):
        roles.become_slave("b", 2_000_000)
    assert (roles.role, roles.epoch) == ("master", 4)


def test_a_role_that_ends_cleanly_may_go_on() -> None:
    log = ModelLog().begin(1).put("abc")
    log.epoch_state = EpochState(has_replicas=True)
    roles = roles_of(log)
    done(log, roles.become_master(2))
    assert done(log, roles.end(is_clean=True)) == [
        RefusePuts(),
        EndSide(),
        FlushLog(),
        SaveEpochState(EpochState(has_replicas=True).begin(2).end(300)),
    ]
    assert done(log, roles.end(is_clean=True)) == []
    assert roles.role is None
    done(log, roles_of(log).become_master(None))
    assert log.epochs == entries((1, 0), (2, 300))


def test_a_role_that_ended_cleanly_does_not_go_on_once_a_later_epoch_is_known() -> None:
    log = ModelLog().begin(1).put("abc")
    roles = roles_of(log)
    done(log, roles.become_master(2))
    done(log, roles.become_slave("b", 3))
    for epoch in (None, 3):
        with pytest.raises((ArgumentError, Fenced), match="epoch"):
            roles_of(log).become_master(epoch)
    assert log.epochs == entries((1, 0), (2, 300))


@pytest.mark.parametrize("step", range(7))
def test_the_order_may_be_given_again_after_any_step_failed(step: int) -> None:
    log = ModelLog().begin(1).put("abc")
    log.epoch_state = EpochState(has_replicas=True)
    roles = roles_of(log)

    change = roles.become_master(4)
    for number, effect in enumerate(change):
        if number == step:
            break
        if isinstance(effect, FlushLog | SaveEpochs | SaveEpochState):
            log.carry_out(effect)

    done(log, roles.fail("the disk is full"))
    assert (roles.role, roles.failure) == (None, "the disk is full")

    # Where puts were accepted already, the epoch was this replica's, and its role has ended.
    epoch = 4 if step < 6 else 5
    effects = done(log, roles.become_master(epoch, others_asked=epoch == 5))
    assert effects[-1] == AcceptPuts()
    assert (roles.role, roles.epoch, roles.failure) == ("master", epoch, None)
