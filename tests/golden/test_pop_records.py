"""The check points and acknowledgements of real brokers, read and written back byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

import rmqstore
from rmqstore.broker.pop_records import CHECK_POINT_TAG, PopAck, PopCheckPoint
from tests.golden import RELEASES
from tests.golden.taken_over import ENDINGS, TIMER, TakenOver

REVIVE = "rmq_sys_REVIVE_LOG_PeerCluster"


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("ending", ENDINGS)
def test_records_of_java_are_read_and_written_the_same(
    release: str, ending: str, tmp_path: Path
) -> None:
    taken = TakenOver(tmp_path, release, f"pop-{ending}")
    seen = set()
    with rmqstore.open(taken.directory / "store") as store:
        for record in store.scan_log():
            if record.topic not in (TIMER, REVIVE):
                continue
            kind = PopCheckPoint if record.tags == CHECK_POINT_TAG else PopAck
            found = kind.decode(record.body)
            assert found.encode() == record.body
            assert (found.unique_key, found.tag) == (record.unique_key, record.tags)
            assert (found.broker_name, found.group[:1]) == ("broker-a", "g")
            if isinstance(found, PopCheckPoint):
                assert record.properties["TIMER_DELIVER_MS"] == str(found.due_ms)
            seen.add(found.tag)
    assert seen == {"ck", "ack", "bAck"}
