"""What a broker stored and sent: totals, and rates of the last 10, 60 and 600 seconds.

Handlers count; `sample` is called once a second and keeps the counts of the last ten minutes.
Time and day are arguments.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqstore.broker import counters
from rmqstore.broker.day_totals import DayTotals, Totals
from rmqstore.broker.statistics import Statistics

__all__ = ["SAMPLE_S", "Traffic"]

SAMPLE_S = 1.0
_WINDOWS_S = (10, 60, 600)
_SAMPLES_MAX = 601
_BOUNDS_MS = (0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)
_BOUND_NAMES = (
    *("<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s"),
    *("1~2s", "2~3s", "3~4s", "4~5s", "5~10s", "10s~"),
)
"""RocketMQ's names of the parts of `putMessageDistributeTime`."""


@dataclass(frozen=True, slots=True)
class _Counts:
    """Totals at one time."""

    put: int = 0
    """Messages stored."""
    found: int = 0
    """Pulls that found messages."""
    missed: int = 0
    """Pulls that found none."""
    sent: int = 0
    """Messages sent to consumers."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """Ends of the logs of replicas, by address."""


class Traffic:
    """Counts of one broker since its start, on its event loop."""

    def __init__(self, now_s: float) -> None:
        self.statistics = Statistics(now_s)
        """The counts by topic and group."""
        self._counted_s = now_s
        """When the statistics took their last sample."""
        self._put_count = 0
        self._put_bytes = 0
        self._put_failures = 0
        self._put_max_s = 0.0
        self._get_max_s = 0.0
        self._put_times = [0] * len(_BOUND_NAMES)
        self._found = self._missed = self._sent = 0
        self._samples: deque[tuple[float, _Counts]] = deque(maxlen=_SAMPLES_MAX)
        self._days = DayTotals()

    # -- Counting.

    def stored(self, topic: str, count: int, size_bytes: int) -> None:
        """Count *count* messages of a topic that were stored, *size_bytes* in the log."""
        self._put_count += count
        self._put_bytes += size_bytes
        self.statistics.stored(topic, count, size_bytes)

    def refused(self) -> None:
        """Count a put that stored nothing."""
        self._put_failures += 1

    def put_took(self, seconds: float) -> None:
        """Count the time of one append."""
        self._put_times[bisect_left(_BOUNDS_MS, int(seconds * 1000))] += 1
        if seconds > self._put_max_s:
            self._put_max_s = seconds

    def pulled(self, topic: str, group: str, count: int, size_bytes: int) -> None:
        """Count an answer to a pull, with *count* messages."""
        if count:
            self._found += 1
            self._sent += count
            self.statistics.pulled(topic, group, count, size_bytes)
        else:
            self._missed += 1

    def read_took(self, seconds: float) -> None:
        """Count the time of one read."""
        if seconds > self._get_max_s:
            self._get_max_s = seconds

    def sample(self, now_s: float, *, day: int, positions: Mapping[str, int]) -> None:
        """Keep the present counts; *day* is the number of the local day, *positions* are the ends
        of the logs of replicas by address."""
        self._days.take_day(day, self._users())
        self._samples.append((now_s, self._counts(positions)))
        if now_s - self._counted_s >= counters.SAMPLE_S:
            self.statistics.sample(now_s)
            self._counted_s = now_s

    # -- Totals, which survive a restart.

    def totals(self) -> bytes:
        """Return the content of the file of totals."""
        return self._days.encode(self._users())

    def restore(self, content: bytes) -> None:
        """Take the totals of earlier runs. Raises ValueError for a content that is damaged."""
        self._days.restore(content)

    def _users(self) -> Totals:
        return Totals(*self.statistics.users_messages)

    # -- Reporting.

    def replica_rate(self, address: str, position: int, now_s: float) -> int:
        """Return the bytes a second by which the log of a replica grew in the last 10 seconds."""
        since = [
            (then_s, counts.positions[address])
            for then_s, counts in list(self._samples)[-_WINDOWS_S[0] - 1 :]
            if address in counts.positions
        ]
        return int(_rate(position - since[0][1], now_s - since[0][0])) if since else 0

    def report(self, now_s: float) -> dict[str, object]:
        """Return the values of GET_BROKER_RUNTIME_INFO, by RocketMQ's names."""
        now = self._counts({})
        windows = [self._before(now_s, seconds) for seconds in _WINDOWS_S]

        def rates(of: str, also: str = "") -> str:
            names = (of, also) if also else (of,)
            return " ".join(
                f"{_rate(sum(getattr(now, n) - getattr(then, n) for n in names), passed_s):.4f}"
                for passed_s, then in windows
            )

        days, users = self._days, self._days.now(self._users())
        transferred = rates("sent")
        return {
            "putTps": rates("put"),
            "getFoundTps": rates("found"),
            "getMissTps": rates("missed"),
            "getTotalTps": rates("found", "missed"),
            "getTransferredTps": transferred,
            # The name in RocketMQ 4, which its exporter for Prometheus reads.
            "getTransferedTps": transferred,
            "putMessageTimesTotal": self._put_count,
            "putMessageFailedTimes": self._put_failures,
            "putMessageSizeTotal": self._put_bytes,
            "putMessageAverageSize": self._put_bytes / self._put_count if self._put_count else 0.0,
            "putMessageEntireTimeMax": int(self._put_max_s * 1000),
            "getMessageEntireTimeMax": int(self._get_max_s * 1000),
            "putMessageDistributeTime": " ".join(
                f"[{name}]:{count}"
                for name, count in zip(_BOUND_NAMES, self._put_times, strict=True)
            ),
            "putLatency99": self._put_quantile_ms(0.99),
            "putLatency999": self._put_quantile_ms(0.999),
            "msgPutTotalYesterdayMorning": days.yesterday.put,
            "msgPutTotalTodayMorning": days.today.put,
            "msgPutTotalTodayNow": users.put,
            "msgGetTotalYesterdayMorning": days.yesterday.sent,
            "msgGetTotalTodayMorning": days.today.sent,
            "msgGetTotalTodayNow": users.sent,
        }

    def _counts(self, positions: Mapping[str, int]) -> _Counts:
        return _Counts(self._put_count, self._found, self._missed, self._sent, positions)

    def _before(self, now_s: float, seconds: int) -> tuple[float, _Counts]:
        """Returns the counts of the oldest sample of the last *seconds*, and its age."""
        for then_s, counts in self._samples:
            if now_s - then_s <= seconds:
                return now_s - then_s, counts
        return 0.0, self._counts({})

    def _put_quantile_ms(self, share: float) -> float:
        """Returns the upper bound of the part of the distribution that holds a quantile."""
        wanted, seen = share * sum(self._put_times), 0
        for bound, count in zip(_BOUNDS_MS, self._put_times, strict=False):
            seen += count
            if seen >= wanted:
                return float(bound)
        return self._put_max_s * 1000


def _rate(count: int, seconds: float) -> float:
    return max(count, 0) / seconds if seconds > 0 else 0.0
