"""The golden data is complete, and a test cannot spoil it for the next one."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden import NAMES, GoldenCase, every_case

GoldenCopy = Callable[[str, str], GoldenCase]


def test_there_are_fifteen_cases() -> None:
    assert len(NAMES) == 15


@every_case()
def test_each_case_was_accepted_by_the_java_store(
    release: str, case_name: str, golden_case: GoldenCopy
) -> None:
    case = golden_case(release, case_name)
    assert (case.root / "commitlog").is_dir()
    assert case.spec["steps"]
    assert case.manifest
    assert case.expected[-1]["type"] == "verdict"
    assert case.expected[-1]["ok"]


def test_a_changed_copy_leaves_the_next_one_whole(golden_case: GoldenCopy) -> None:
    spoilt = golden_case("5.3.3", "plain")
    log = spoilt.root / "commitlog" / f"{0:020}"
    log.write_bytes(b"")
    second = golden_case("5.3.3", "plain")
    assert second.directory != spoilt.directory
    assert (second.root / "commitlog" / log.name).stat().st_size > 0
