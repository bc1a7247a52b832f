"""When a master without a controller leads on by itself, and when it waits."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from rmqstore.config import BrokerRole, FlushDiskType, ReplicaConfig, StoreConfig
from rmqstore.replication.group.epoch_state import EpochState
from rmqstore.replication.group.fixed_master import FixedMaster, Lead, SlaveReport, Wait
from tests.scenarios.ha_model import ModelLog

TWO_OF_TWO = FixedMaster(boot="b2", copies=2, total=2)


def interrupted(*, copies: int = 2, boot: str = "b1", held: str = "abc") -> ModelLog:
    """Return the log, a message of 100 bytes for each letter, of a master of epoch 1 that did not
    end cleanly."""
    log = ModelLog().begin(1).put(held)
    log.epoch_state = EpochState(has_replicas=True).begin(1, copies=copies, boot=boot)
    return log


def slave(end: int, broker_id: int = 1) -> SlaveReport:
    return SlaveReport(broker_id, f"10.0.0.{broker_id}:10911", end)


def reason_of(step: Lead | Wait) -> str:
    assert isinstance(step, Wait)
    return step.reason


def test_a_store_without_replicas_leads_in_an_epoch_of_its_own() -> None:
    log = ModelLog().begin(1).put("abc")
    assert TWO_OF_TWO.next_step(log) == Lead(None, "")
    log.epoch_state = EpochState().begin(1, copies=2, boot="b1")
    assert TWO_OF_TWO.next_step(log) == Lead(None, "")


def test_a_master_that_ended_cleanly_goes_on_in_its_epoch() -> None:
    log = interrupted()
    log.epoch_state = log.epoch_state.end(300)
    assert TWO_OF_TWO.next_step(log) == Lead(None, "")


def test_a_clean_end_beyond_the_log_is_none() -> None:
    log = interrupted()
    log.epoch_state = log.epoch_state.end(400)
    assert isinstance(TWO_OF_TWO.next_step(log), Wait)


def test_a_slave_that_its_file_makes_the_master_leads_in_a_later_epoch() -> None:
    log = ModelLog().begin(1).put("abc")
    log.epoch_state = EpochState(has_replicas=True)
    assert TWO_OF_TWO.next_step(log) == Lead(2, "")


def test_a_killed_process_leads_on_in_the_same_boot() -> None:
    step = FixedMaster(boot="b1", copies=2, total=2).next_step(interrupted())
    assert isinstance(step, Lead)
    assert step.epoch == 2


def test_after_another_boot_it_waits_for_its_slaves() -> None:
    reason = reason_of(TWO_OF_TWO.next_step(interrupted()))
    assert "led in epoch 1" in reason
    assert "0 of the 1 slaves needed" in reason
    assert "othersAskedEpoch=2" in reason


def test_a_slave_that_holds_more_is_named_with_its_end_and_the_cure() -> None:
    reports = [slave(300), slave(301, 2), slave(200, 3)]
    fixed = FixedMaster(boot="b2", copies=2, total=4)
    reason = reason_of(fixed.next_step(interrupted(), reports=reports))
    assert "Slave 2 at 10.0.0.2:10911 has the log up to 301, this broker up to 300" in reason
    assert "exchange brokerRole and brokerId" in reason


@pytest.mark.parametrize("end", [1, 300])
def test_it_leads_once_no_slave_holds_more(end: int) -> None:
    step = TWO_OF_TWO.next_step(interrupted(), reports=[slave(end)])
    assert isinstance(step, Lead)
    assert step.epoch == 2


@pytest.mark.parametrize(
    ("total", "copies", "needed"), [(2, 2, 1), (3, 2, 2), (3, 3, 1), (5, 3, 3), (5, 5, 1)]
)
def test_as_many_slaves_answer_as_show_each_acknowledged_message(
    total: int, copies: int, needed: int
) -> None:
    fixed = FixedMaster(boot="b2", copies=copies, total=total)
    log = interrupted(copies=copies)
    reports = [slave(300, each) for each in range(1, needed + 1)]
    assert isinstance(fixed.next_step(log, reports=reports), Lead)
    assert isinstance(fixed.next_step(log, reports=reports[:-1]), Wait)
    # One slave twice is one.
    assert isinstance(fixed.next_step(log, reports=[*reports[:-1], *reports[:-1]]), Wait)


@pytest.mark.parametrize(("total", "copies"), [(2, 2), (3, 2), (3, 3), (4, 2), (4, 3)])
def test_in_every_small_world_it_leads_with_all_acknowledged_messages(
    total: int, copies: int
) -> None:
    """Slaves hold up to three messages, the master kept some of them; any slaves answer."""
    fixed = FixedMaster(boot="b2", copies=copies, total=total)
    led = 0
    for ends in product(range(4), repeat=total - 1):
        acknowledged = sorted(ends, reverse=True)[copies - 2]
        for kept in range(4):
            log = interrupted(copies=copies, held="abc"[:kept])
            for count in range(total):
                for answered in combinations(range(total - 1), count):
                    reports = [slave(100 * ends[each], each + 1) for each in answered]
                    if isinstance(fixed.next_step(log, reports=reports), Lead):
                        led += 1
                        assert kept >= acknowledged, (ends, kept, answered)
    assert led > 0


def test_an_emptied_slave_shows_nothing_unless_the_log_is_empty() -> None:
    assert isinstance(TWO_OF_TWO.next_step(interrupted(), reports=[slave(0)]), Wait)
    log = ModelLog()
    log.epoch_state = EpochState(has_replicas=True).begin(1, copies=2, boot="b1")
    assert isinstance(TWO_OF_TWO.next_step(log, reports=[slave(0)]), Lead)


def test_the_number_of_copies_is_that_of_the_epoch_not_of_the_present_file() -> None:
    lowered = FixedMaster(boot="b2", copies=1, total=3)
    assert isinstance(lowered.next_step(interrupted()), Wait)
    raised = FixedMaster(boot="b2", copies=3, total=3)
    assert isinstance(raised.next_step(interrupted(), reports=[slave(300)]), Wait)
    assert isinstance(raised.next_step(interrupted(copies=1)), Lead)


@pytest.mark.parametrize(("copies", "leads"), [(1, True), (2, False)])
def test_a_file_of_a_former_release_names_neither_boot_nor_copies(
    copies: int, *, leads: bool
) -> None:
    log = interrupted(copies=0, boot="")
    step = FixedMaster(boot="b2", copies=copies, total=2).next_step(log)
    assert isinstance(step, Lead) is leads


def test_without_the_size_of_the_group_an_operator_decides() -> None:
    fixed = FixedMaster(boot="b2", copies=2, total=1)
    reason = reason_of(fixed.next_step(interrupted(), reports=[slave(300)]))
    assert "totalReplicas is not set" in reason


@pytest.mark.parametrize(("word", "leads"), [(-1, False), (1, False), (2, True), (3, False)])
def test_the_word_of_an_operator_is_for_one_epoch(word: int, *, leads: bool) -> None:
    step = TWO_OF_TWO.next_step(interrupted(), word=word, reports=[slave(900)])
    assert isinstance(step, Lead) is leads


def test_another_master_of_the_group_is_named() -> None:
    reason = reason_of(
        TWO_OF_TWO.next_step(interrupted(), leader="10.0.0.9:10911", reports=[slave(300)])
    )
    assert "10.0.0.9:10911 is the master of the group now" in reason
    assert "brokerRole=SLAVE" in reason


@pytest.mark.parametrize(
    ("changes", "copies"),
    [
        ({}, 2),
        ({"broker_role": BrokerRole.ASYNC_MASTER}, 1),
        ({"flush_disk_type": FlushDiskType.SYNC_FLUSH}, 1),
        ({"in_sync_replicas": 1}, 1),
        ({"in_sync_replicas": 3}, 3),
        ({"acting_master_enable": True}, 2),
        ({"in_sync_replicas": 3, "acting_master_enable": True, "auto_in_sync_replicas": True}, 2),
    ],
)
def test_copies_in_memory_are_those_that_puts_wait_for(
    changes: dict[str, object], copies: int
) -> None:
    values = {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 2, **changes}
    of_store = {each: values.pop(each) for each in [*values] if each in StoreConfig.options()}
    store, replica = StoreConfig(**of_store), ReplicaConfig(total_replicas=3, **values)  # type: ignore[arg-type]
    assert FixedMaster.from_config(store, replica, boot="b1") == FixedMaster(
        boot="b1", copies=copies, total=3
    )
