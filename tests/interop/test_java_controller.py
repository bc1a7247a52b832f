"""Brokers of ours under a controller of RocketMQ, with DLedger and with JRaft.

`make test` runs one release, `make soak` both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import RELEASES
from tests.support import java
from tests.support.broker_group import Group, bodies, put
from tests.support.effort import is_long
from tests.support.java_broker import java_side
from tests.support.loops import on_loop


@pytest.mark.java
@pytest.mark.parametrize("is_jraft", [False, True], ids=["dledger", "jraft"])
@pytest.mark.parametrize("release", RELEASES if is_long() else RELEASES[-1:])
@on_loop
async def test_a_killed_master_is_replaced_and_nothing_acknowledged_is_lost(
    release: str, tmp_path: Path, is_jraft: bool
) -> None:
    java.need(release)
    with java_side(release, tmp_path / "java") as side:
        group = Group(
            tmp_path,
            await side.controller(is_jraft=is_jraft),
            all_ack_in_sync_state_set=True,
            min_in_sync_replicas=2,
            group_poll_interval_ms=200,
            ha_lag_ms_max=30_000,
        )
        try:
            for name in "abc":
                await group.start(name)
            first = await group.master()
            broker = group.brokers[first]
            assert broker.open.membership is not None
            epoch = broker.role.epoch
            for number in range(10):
                await put(broker, f"{number}")

            await group.kill(first)
            second = await group.master(after=epoch)
            for number in range(10, 20):
                await put(group.brokers[second], f"{number}")

            await group.start(first)
            assert await group.master(after=epoch) == second
            expected = [f"{number}".encode() for number in range(20)]
            assert bodies(group.brokers[second]) == expected
            ids = {each.role.broker_id for each in group.brokers.values()}
            assert ids == {1, 2, 3}
        finally:
            for name in list(group.brokers):
                await group.stop(name)
