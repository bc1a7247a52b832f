"""The service that measures how far consumer groups are behind, for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from rmqstore.broker.lags import GroupLag, QueuePlace, added
from rmqstore.broker.membership.roles import Role
from rmqstore.broker.metrics import node_labels
from rmqstore.broker.operations.core import Core, ViewOf
from rmqstore.broker.services.service import Service
from rmqstore.broker.statistics import Pair
from rmqstore.broker.traffic_metrics import labels_of
from rmqstore.config import MetricsExporter
from rmqstore.errors import StoreError
from rmqstore.net.metrics import Family, gauge
from rmqstore.topic_names import LIGHT_PREFIX

__all__ = ["GroupLags"]

_ROUND_S = 10.0
_SLICE = 256
"""Queues that are looked at on the thread at once; requests are served between them."""
_SLICE_PAUSE_S = 0.01


class GroupLags(Service):
    """Measures the lag of each group, with metricsExporterType=PROM, in slices on a thread."""

    name = "lags of groups"

    def __init__(self, core: Core) -> None:
        self._core = core
        self._view = ViewOf(core)
        self._tasks = core.runtime.tasks(self.name)
        self._lags: Mapping[Pair, GroupLag] = {}

    async def start(self, role: Role) -> None:
        if self._core.config.metrics_exporter is MetricsExporter.PROM:
            self._tasks.start(self._run(), name=self.name)

    async def stop(self) -> None:
        await self._tasks.close()

    def metrics(self) -> Iterable[Family]:
        node, now_ms = node_labels(self._core.config), self._core.runtime.wall_ms()

        def age_ms(stored_ms: int | None) -> int:
            return 0 if stored_ms is None else max(now_ms - stored_ms, 0)

        for name, text, value in (
            ("lag_messages", "Messages that a group has not committed.", lambda lag: lag.lag),
            ("ready_messages", "Messages that a group has not pulled.", lambda lag: lag.ready),
            (
                "inflight_messages",
                "Messages that a group has pulled and not committed.",
                lambda lag: lag.in_flight,
            ),
            (
                "lag_latency",
                "Age of the oldest message that a group has not committed, in milliseconds.",
                lambda lag: age_ms(lag.oldest_ms),
            ),
            (
                "queueing_latency",
                "Age of the oldest message that a group has not pulled, in milliseconds.",
                lambda lag: age_ms(lag.oldest_ready_ms),
            ),
        ):
            samples = [
                ({**node, **labels_of(*pair)}, value(lag)) for pair, lag in self._lags.items()
            ]
            yield gauge(f"rocketmq_consumer_{name}", text, samples)

    # ---- rounds

    async def _run(self) -> None:
        while True:
            await self._measure()
            await self._core.runtime.sleep(_ROUND_S)

    async def _measure(self) -> None:
        runtime, places = self._core.runtime, self._places()
        lags = dict.fromkeys(((each.topic, each.group) for each in places), GroupLag())
        for at in range(0, len(places), _SLICE):
            await runtime.in_thread(self._add, lags, places[at : at + _SLICE])
            await runtime.sleep(_SLICE_PAUSE_S)
        self._lags = lags

    def _places(self) -> Sequence[QueuePlace]:
        """Returns how far each group is in each queue, without light queues."""
        offsets = self._core.metadata.offsets
        found = []
        for topic, group, committed in offsets.of_groups():
            if topic.startswith(LIGHT_PREFIX) or group.startswith(LIGHT_PREFIX):
                continue
            for queue, offset in committed.items():
                pulled = offsets.last_pulled(topic, group, queue) or 0
                found.append(QueuePlace(topic, group, queue, offset, pulled))
        return found

    def _add(self, lags: dict[Pair, GroupLag], places: Iterable[QueuePlace]) -> None:
        view = self._view()
        for place in places:
            pair = place.topic, place.group
            end = view.next_offset(place.topic, place.queue)
            stored_ms = partial(self._stored_ms, place.topic, place.queue)
            lags[pair] = added(lags[pair], place, end, stored_ms)

    def _stored_ms(self, topic: str, queue: int, offset: int) -> int | None:
        try:
            record = self._view().record_in(topic, queue, offset)
        except StoreError:
            return None  # Retention has deleted it, or it cannot be read.
        return None if record is None else int(record.store_timestamp)
