"""A consumer of RocketMQ whose listener fails, through SIGKILL of the master of a group of ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.clients import RETRYING, java_program, play_in_group
from tests.support.our_group import OurGroup
from tests.support.releases import BEFORE, NEW

MESSAGES = 20

pytestmark = pytest.mark.java


@pytest.mark.parametrize("release", [NEW, BEFORE])
def test_message_comes_again_until_it_is_a_dead_letter_though_the_master_is_killed(
    tmp_path: Path, release: str
) -> None:
    program = java_program(release)
    group = OurGroup(tmp_path, RETRYING)
    try:
        group.wait_whole()
        found = play_in_group(program, group, MESSAGES, after="tried")
        assert found["tried"] == found["dead"] == MESSAGES
        assert found["fewest tries"] >= 3
        assert len(group.masters) > 1, "another broker leads"
    finally:
        group.close()
