"""The metrics of a controller, from its state."""

from __future__ import annotations

from rmqstore.controller.group import Group
from rmqstore.controller.leader import Waiting
from rmqstore.controller.liveness import Liveness
from rmqstore.controller.metrics import ControllerMetrics


def test_a_group_that_waits_names_each_replica() -> None:
    waits, has_one, is_whole = (Group("c", name) for name in ("a", "b", "d"))
    families = ControllerMetrics().families(
        {"address": "h:1"},
        (waits, has_one, is_whole),
        Liveness(),
        {"a": Waiting(frozenset({3, 2}), "too few"), "b": Waiting(frozenset(), "a lease")},
        is_leader=True,
        term=1,
        task_failures=0,
        disk_bytes=None,
        now_ms=0,
    )
    found = {each.name: each.samples for each in families}
    labels = {"address": "h:1", "cluster": "c", "broker_set": "a"}
    assert found["rmqstore_waits_for_replicas"] == [
        ({**labels, "broker_id": "2"}, 1),
        ({**labels, "broker_id": "3"}, 1),
    ]
    assert found["dledger_disk_usage"] == []
