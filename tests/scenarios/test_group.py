"""Hazards of the sync-state set, quorum writes, the confirm offset and queue locks, as scripts.

Each test plays the script of its name in `group/`; `group_script.py` says how to read one.
"""

from __future__ import annotations

from pathlib import Path

from tests.scenarios.group_script import render

SCRIPTS = Path(__file__).parent / "group"


def play(name: str) -> None:
    text = (SCRIPTS / f"{name}.txt").read_text(encoding="utf-8")
    assert render(text) == text


def test_h03_master_counts_only_what_a_slave_holds() -> None:
    play("h03_master_counts_only_what_a_slave_holds")


def test_figure_8_acting_master_counts_like_the_others() -> None:
    play("figure_8_acting_master_counts_like_the_others")


def test_figure_8_afresh_copies_count_once_the_new_epoch_is_stored() -> None:
    play("figure_8_afresh_copies_count_once_the_new_epoch_is_stored")


def test_figure_8_again_copies_count_once_the_new_epoch_is_stored() -> None:
    play("figure_8_again_copies_count_once_the_new_epoch_is_stored")


def test_figure_8_set_takes_a_peer_that_names_no_epochs() -> None:
    play("figure_8_set_takes_a_peer_that_names_no_epochs")


def test_figure_8_set_takes_who_has_stored_the_epoch() -> None:
    play("figure_8_set_takes_who_has_stored_the_epoch")


def test_h09_learner_and_outsider_never_count() -> None:
    play("h09_learner_and_outsider_never_count")


def test_h09_learner_in_the_set_is_proposed_out() -> None:
    play("h09_learner_in_the_set_is_proposed_out")


def test_h09_learner_never_counts_without_a_set() -> None:
    play("h09_learner_never_counts_without_a_set")


def test_h15_ack_above_the_end_satisfies_nothing() -> None:
    play("h15_ack_above_the_end_satisfies_nothing")


def test_h18_below_the_minimum_nothing_is_written() -> None:
    play("h18_below_the_minimum_nothing_is_written")


def test_h18_copies_that_come_after_the_lease_acknowledge_nothing() -> None:
    play("h18_copies_that_come_after_the_lease_acknowledge_nothing")


def test_h18_isolated_master_refuses_without_its_lease() -> None:
    play("h18_isolated_master_refuses_without_its_lease")


def test_h18_sync_that_ends_after_the_lease_acknowledges_nothing() -> None:
    play("h18_sync_that_ends_after_the_lease_acknowledges_nothing")


def test_h19_bytes_of_former_epochs_are_confirmed_with_the_present_one() -> None:
    play("h19_bytes_of_former_epochs_are_confirmed_with_the_present_one")


def test_h19_readers_see_nothing_an_election_can_cut() -> None:
    play("h19_readers_see_nothing_an_election_can_cut")


def test_h19_readers_without_a_set_wait_for_the_copies_a_put_needs() -> None:
    play("h19_readers_without_a_set_wait_for_the_copies_a_put_needs")


def test_h20_change_without_an_answer_is_asked_again() -> None:
    play("h20_change_without_an_answer_is_asked_again")


def test_h20_joiner_that_went_away_and_was_let_in_leaves_at_once() -> None:
    play("h20_joiner_that_went_away_and_was_let_in_leaves_at_once")


def test_h20_joiner_that_went_away_unanswered_is_settled_by_a_new_version() -> None:
    play("h20_joiner_that_went_away_unanswered_is_settled_by_a_new_version")


def test_h20_lost_change_that_nobody_wants_is_asked_for_once_more() -> None:
    play("h20_lost_change_that_nobody_wants_is_asked_for_once_more")


def test_h20_refused_change_is_forgotten() -> None:
    play("h20_refused_change_is_forgotten")


def test_h21_put_that_cannot_be_satisfied_delays_no_other() -> None:
    play("h21_put_that_cannot_be_satisfied_delays_no_other")


def test_h22_master_elected_again_asks_for_the_new_epoch() -> None:
    play("h22_master_elected_again_asks_for_the_new_epoch")


def test_h25_ack_before_a_handshake_names_nobody() -> None:
    play("h25_ack_before_a_handshake_names_nobody")


def test_h26_confirm_offset_of_the_checkpoint_is_not_the_last_word() -> None:
    play("h26_confirm_offset_of_the_checkpoint_is_not_the_last_word")


def test_issue_1535_put_of_many_frames_waits_for_time_and_not_for_wakeups() -> None:
    play("issue_1535_put_of_many_frames_waits_for_time_and_not_for_wakeups")


def test_issue_5663_growing_set_is_waited_for_at_once() -> None:
    play("issue_5663_growing_set_is_waited_for_at_once")


def test_issue_6662_lost_member_holds_the_confirm_offset() -> None:
    play("issue_6662_lost_member_holds_the_confirm_offset")


def test_lock_answers_that_come_late() -> None:
    play("lock_answers_that_come_late")


def test_lock_any_replica() -> None:
    play("lock_any_replica")


def test_lock_broker_that_restarts_grants_nothing_for_a_lease() -> None:
    play("lock_broker_that_restarts_grants_nothing_for_a_lease")


def test_lock_strict_majority() -> None:
    play("lock_strict_majority")


def test_member_that_lost_data_leaves_the_set() -> None:
    play("member_that_lost_data_leaves_the_set")


def test_pr_9897_two_links_lost_at_once_shrink_the_set_without_delay() -> None:
    play("pr_9897_two_links_lost_at_once_shrink_the_set_without_delay")


def test_quorum_all_members() -> None:
    play("quorum_all_members")


def test_quorum_downgrade_and_recovery() -> None:
    play("quorum_downgrade_and_recovery")


def test_quorum_statuses() -> None:
    play("quorum_statuses")


def test_release_5_5_0_dropped_slave_is_waited_for_until_the_controller_agrees() -> None:
    play("release_5_5_0_dropped_slave_is_waited_for_until_the_controller_agrees")


def test_replica_counts_once_however_it_connects() -> None:
    play("replica_counts_once_however_it_connects")


def test_silent_slave_is_judged_by_how_far_the_log_is_ahead_at_the_put() -> None:
    play("silent_slave_is_judged_by_how_far_the_log_is_ahead_at_the_put")


def test_slave_under_steady_load_joins() -> None:
    play("slave_under_steady_load_joins")


def test_every_script_is_played_and_prints_what_was_written_by_hand() -> None:
    played = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in SCRIPTS.glob("*.txt")} <= played
    changed = "brokers 3 strict\nask a client=A broker=1,2\nanswer a\n----\nnonsense\n\n"
    assert "nonsense" not in render(changed)
