"""Retention: the policy and its timer (spec/store.md 25)."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqstore
from rmqstore.config import StoreConfig
from rmqstore.store.retention import (
    CommitLogFile,
    DiskUse,
    RetentionDecision,
    RetentionPolicy,
    RetentionTimer,
    decide,
)

HOUR_MS = 3_600_000
SIZE = 1 << 20
NOW_MS = 1_800_000_000_000
POLICY = RetentionPolicy.from_config(StoreConfig())
QUIET_HOUR, DELETE_HOUR = 12, 4
ROOMY = 0.5


def files_aged(*hours: float) -> list[CommitLogFile]:
    """Return files in offset order, each last written so many hours ago."""
    return [
        CommitLogFile(n * SIZE, SIZE, NOW_MS - int(age * HOUR_MS)) for n, age in enumerate(hours)
    ]


def decision(
    files: list[CommitLogFile],
    policy: RetentionPolicy = POLICY,
    *,
    hour: int = QUIET_HOUR,
    log: float = ROOMY,
    queue: float = ROOMY,
    **others: Any,
) -> RetentionDecision:
    return decide(
        files,
        policy,
        now_ms=NOW_MS,
        hour=hour,
        commit_log_disks=[DiskUse("/log", log)],
        queue_disk=DiskUse("/queue", queue),
        **others,
    )


def starts(result: RetentionDecision) -> list[int]:
    return [file.start_offset // SIZE for file in result.delete]


def test_blocks_reserved_for_root_are_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(total=100 << 30, used=80 << 30, free=0)
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    with rmqstore.open(tmp_path / "store", commit_log_file_size_bytes=SIZE) as store:
        assert store.clean(hour=QUIET_HOUR).refuse_writes


def test_nothing_is_deleted_outside_the_hour_with_room_left() -> None:
    result = decision(files_aged(100, 90, 0))
    assert (result.delete, result.forced, result.refuse_writes) == ((), False, False)
    assert result.reasons == ()


def test_expired_files_go_in_the_hour_of_deletion() -> None:
    result = decision(files_aged(100, 73, 71, 0), hour=DELETE_HOUR)
    assert starts(result) == [0, 1]
    assert not result.forced


def test_file_expires_at_the_very_end_of_its_reserved_time() -> None:
    assert starts(decision(files_aged(72, 0), hour=DELETE_HOUR)) == [0]
    younger = [replace(files_aged(72)[0], modified_ms=NOW_MS - 72 * HOUR_MS + 1), *files_aged(0)]
    assert starts(decision(younger, hour=DELETE_HOUR)) == []


def test_deleting_stops_at_the_first_file_not_expired() -> None:
    assert starts(decision(files_aged(100, 1, 100, 0), hour=DELETE_HOUR)) == [0]


def test_last_file_always_stays() -> None:
    assert starts(decision(files_aged(100, 100), log=0.99)) == [0]
    assert starts(decision(files_aged(100), log=0.99)) == []
    assert starts(decision([], log=0.99)) == []


def test_one_round_deletes_at_most_a_batch() -> None:
    assert starts(decision(files_aged(*[100] * 30), hour=DELETE_HOUR)) == list(range(10))


def test_request_deletes_expired_files_at_any_hour() -> None:
    assert starts(decision(files_aged(100, 1, 0), manual=True)) == [0]


@pytest.mark.parametrize(
    ("ratio", "deleted", "forced", "refused"),
    [
        (0.75, [], False, False),
        (0.76, [0], False, False),
        (0.85, [0], False, False),
        (0.86, [0, 1], True, False),
        (0.90, [0, 1], True, False),
        (0.91, [0, 1], True, True),
    ],
)
@pytest.mark.parametrize("disk", ["log", "queue"])
def test_fuller_disks_delete_more_and_at_last_refuse_writes(
    disk: str, ratio: float, deleted: list[int], forced: bool, refused: bool
) -> None:
    ratios: dict[str, Any] = {disk: ratio}
    result = decision(files_aged(100, 1, 0), **ratios)
    assert (starts(result), result.forced, result.refuse_writes) == (deleted, forced, refused)


@pytest.mark.parametrize(("ratio", "refused"), [(0.86, True), (0.85, False)])
def test_writes_are_taken_again_only_below_the_forcibly_ratio(ratio: float, refused: bool) -> None:
    assert decision(files_aged(1, 0), log=ratio, writes_refused=True).refuse_writes is refused


def test_forced_deletion_can_be_switched_off() -> None:
    policy = replace(POLICY, clean_forcibly_enable=False)
    result = decision(files_aged(100, 1, 0), policy, log=0.95)
    assert (starts(result), result.forced, result.refuse_writes) == ([0], False, True)


def test_disk_that_does_not_tell_its_use_deletes_expired_files() -> None:
    assert starts(decision(files_aged(100, 1, 0), log=-1)) == [0]
    assert starts(decision(files_aged(100, 1, 0), queue=-1)) == [0]


def test_emptiest_of_several_paths_decides() -> None:
    result = decide(
        files_aged(100, 1, 0),
        POLICY,
        now_ms=NOW_MS,
        hour=QUIET_HOUR,
        commit_log_disks=[DiskUse("/a", 0.99), DiskUse("/b", 0.5)],
        queue_disk=DiskUse("/q", 0.5),
    )
    assert (result.delete, result.refuse_writes) == ((), False)
    assert result.full_paths == {"/a"}


@pytest.mark.parametrize(
    ("share", "deleted", "forced"), [(0.7, [], False), (0.76, [0], False), (0.81, [0, 1], True)]
)
def test_replicas_on_one_partition_look_at_their_share(
    share: float, deleted: list[int], forced: bool
) -> None:
    policy = replace(POLICY, replicas_per_disk_partition=2)
    result = decision(files_aged(100, 1, 0), policy, log=0.8, share_used_ratio=share)
    assert (starts(result), result.forced) == (deleted, forced)


def test_files_still_to_be_dispatched_stay_even_when_forced() -> None:
    files = files_aged(100, 100, 100, 0)
    assert starts(decision(files, log=0.99, keep_from_offset=2 * SIZE)) == [0, 1]
    assert starts(decision(files, log=0.99, keep_from_offset=2 * SIZE - 1)) == [0]


def test_percentages_are_brought_into_the_allowed_ranges() -> None:
    wide = RetentionPolicy.from_config(
        StoreConfig(
            disk_warning_percent=99, disk_clean_forcibly_percent=99, disk_used_percent_max=99
        )
    )
    assert (wide.warning_ratio, wide.forcibly_ratio, wide.used_ratio_max) == (0.9, 0.85, 0.95)
    narrow = RetentionPolicy.from_config(
        StoreConfig(disk_warning_percent=1, disk_clean_forcibly_percent=1, disk_used_percent_max=1)
    )
    assert (narrow.warning_ratio, narrow.forcibly_ratio, narrow.used_ratio_max) == (0.35, 0.3, 0.1)


@given(
    st.lists(st.integers(0, 200), max_size=30),
    st.integers(0, 23),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_any_round_deletes_a_prefix_without_the_last_file(
    ages: list[int], hour: int, log: float, queue: float
) -> None:
    files = files_aged(*ages)
    result = decision(files, hour=hour, log=log, queue=queue)
    assert list(result.delete) == files[: len(result.delete)]
    assert len(result.delete) <= max(0, len(files) - 1)
    assert result.forced or all(
        NOW_MS - file.modified_ms >= POLICY.reserved_ms for file in result.delete
    )


def test_timer_calls_until_stopped_and_survives_errors() -> None:
    calls = 0
    errors: list[Exception] = []
    enough = threading.Event()

    def action() -> None:
        nonlocal calls
        calls += 1
        if calls >= 3:
            enough.set()
        raise OSError(f"round {calls}")

    timer = RetentionTimer(action, interval_ms=1, first_delay_ms=0, on_error=errors.append)
    timer.start()
    assert enough.wait(30)
    timer.stop()
    assert calls == len(errors) >= 3
    after_stop = calls
    timer.stop()
    assert calls == after_stop


def test_timer_stopped_during_its_first_delay_never_calls() -> None:
    calls: list[None] = []
    timer = RetentionTimer(lambda: calls.append(None), interval_ms=1, on_error=calls.append)  # type: ignore[arg-type]
    timer.start()
    timer.stop()
    assert calls == []


def test_timer_never_started_can_be_stopped() -> None:
    RetentionTimer(lambda: None, interval_ms=1, on_error=lambda error: None).stop()


def test_timer_can_be_stopped_by_its_own_action() -> None:
    stopped = threading.Event()

    def action() -> None:
        timer.stop()
        stopped.set()

    timer = RetentionTimer(action, interval_ms=1, first_delay_ms=0, on_error=lambda error: None)
    timer.start()
    assert stopped.wait(30)
    timer.stop()
