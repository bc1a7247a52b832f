"""The guarantees for clients of a simulated cluster.

- Every message that was acknowledged to a client is in the final logs, at the acknowledged offset
  and under its key.
- A consumer reads only confirmed messages, and always the same message at an offset of a queue, at
  every member of the group. The final logs have this message there. Messages that retention deleted
  had been confirmed.
- Every delayed message that was acknowledged to a client, and that retention has not deleted, is
  delivered to its topic. No message is delivered twice in the final logs.
- The same holds for timer messages, but for those whose time is far ahead of the master's clock,
  because a clock was set. No timer message is delivered before its time, as the clock of the broker
  shows it, and none that was recalled with success.
- Every message that a consumer sent back, with success, is in the topic of its group's retries, or
  in that of its dead letters, unless retention has deleted it.
- Every half message that was acknowledged to a client is committed if the client decided so, once
  in the final logs. A transaction that a client rolled back is never committed.
- A topic or group whose change was acknowledged without a remark, or the topic of an acknowledged
  message, is in the tables of all brokers at
  the end, and of each elected broker.
- Once faults have healed, the tables of all brokers are equal, and a client's message is
  acknowledged.

The settings of these groups guarantee all this (`cluster`), with two exceptions. If puts wait for a
number of copies, a replica outside the set may be elected: it has the messages, but perhaps not the
topics. And an operator may elect a replica in spite of a warning about possible losses: then
earlier acknowledgements are void, and the former master may show lost messages to its readers.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqstore.broker.operations.message_rules import DELAY_ORIGIN
from rmqstore.broker.operations.timer_rules import DELIVER_MS, OUT_MS, TIMER_ORIGIN
from rmqstore.message import SysFlag
from rmqstore.sim.broker_host import READERS, BrokerHost
from rmqstore.sim.checker import Checker, Violation
from rmqstore.sim.clock import MachineClock
from rmqstore.sim.contents import Content, Contents
from rmqstore.sim.disk import ModelLog
from rmqstore.topic_names import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
)

__all__ = ["ClusterChecker"]

_SET_BACK_MS = 20_000
"""How long a delivery goes on with a time of day that its clock has left."""
_FAR_MS = 10_000
"""How far ahead a timer message is after a clock was set."""
_Place = tuple[int, int]
"""Queue, and offset in it."""


class ClusterChecker:
    """Follows the clients of one world, whose logs *checker* follows."""

    def __init__(self, checker: Checker, contents: Contents, *, has_all_ack: bool) -> None:
        """*has_all_ack*: puts wait for all members of the set, and only members are elected."""
        self._checker = checker
        self._contents = contents
        self._has_all_ack = has_all_ack
        self._keys: dict[int, str] = {}
        self._sent: dict[str, _Place] = {}
        self._delayed: dict[str, str] = {}
        """By the key of a delayed message, its topic."""
        self._sent_back: dict[tuple[str, str], int] = {}
        """By topic and key of a retry or a dead letter, the place of the message that a consumer
        failed on."""
        self._recalled: set[str] = set()
        """The keys of timer messages that are not to be delivered."""
        self._halves: dict[str, str] = {}
        """By the key of a half message, its topic."""
        self._decisions: dict[str, bool] = {}
        """By the key of a half message whose transaction a client ended, whether it commits."""
        self._first_kept = 0
        self._read: dict[_Place, int] = {}
        self._topics: set[str] = set()
        self._groups: set[str] = set()
        self.warnings = 0
        """Elections in spite of a warning."""
        self._has_lost_reads = False
        self.reads = 0

    @property
    def acknowledged(self) -> int:
        """Messages that were acknowledged to clients."""
        return len(self._sent)

    @property
    def repeated(self) -> int:
        """Messages that were stored more than once, because a client sent them again."""
        return len(self._keys) - len(set(self._keys.values()))

    @property
    def failures(self) -> int:
        """Messages that consumers sent back."""
        return len(self._sent_back)

    @property
    def changes(self) -> int:
        """Topics and groups that were acknowledged."""
        return len(self._topics) + len(self._groups)

    # ---- results of clients

    def stored_as(self, number: int, content: Content, clock: MachineClock) -> None:
        """Record that a message, which a broker with *clock* is about to store, is the put
        *number*. Check that a timer message is not early."""
        self._keys[number] = content.key
        if not _is_timer_delivery(content):
            return
        slot_ms, named = int(content.properties[OUT_MS]), content.properties.get(DELIVER_MS)
        due_ms = slot_ms + 1 if named is None else int(named)
        # The clock may have been set back while the broker was at it.
        if clock.shown_ms(_SET_BACK_MS) < due_ms:
            raise Violation(
                f"the timer message {content.key} is delivered at {clock.wall_ms()}, before its "
                f"time, {due_ms}"
            )

    def sent(self, key: str, *, topic: str, queue: int, queue_offset: int, level: int) -> None:
        """Record a message that was acknowledged."""
        place = (SCHEDULE_TOPIC, level - 1) if level else (topic, queue)
        self._sent[key] = self._contents.queue_number(*place), queue_offset
        if level:
            self._delayed[key] = topic

    def timer_sent(
        self, key: str, *, topic: str, queue: int, queue_offset: int, waits: bool
    ) -> None:
        """Record a timer message that was acknowledged."""
        place = (TIMER_TOPIC, 0) if waits else (topic, queue)
        self._sent[key] = self._contents.queue_number(*place), queue_offset
        if waits:
            self._delayed[key] = topic

    def recalling(self, key: str) -> None:
        """Record a timer message that may not be delivered."""
        self._delayed.pop(key, None)

    def recalled(self, key: str) -> None:
        """Record a timer message that was recalled, with success."""
        self._recalled.add(key)

    def half_sent(self, key: str, *, topic: str, queue_offset: int) -> None:
        """Record a half message that was acknowledged."""
        self._sent[key] = self._contents.queue_number(HALF_TOPIC, 0), queue_offset
        self._halves[key] = topic

    def decided(self, key: str, *, is_committed: bool) -> None:
        """Record how a client ends a transaction. It decides once."""
        known = self._decisions.setdefault(key, is_committed)
        assert known is is_committed, f"transaction {key} is decided in two ways"

    def read(self, number: int, *, topic: str, queue: int, queue_offset: int) -> None:
        """Check a record that a consumer got."""
        queue = self._contents.queue_number(topic, queue)
        self.reads += 1
        if self.warnings or self._has_lost_reads:
            return
        if not self._checker.is_confirmed(queue, queue_offset):
            raise Violation(
                f"a consumer got put {number} at offset {queue_offset} of queue {queue}, which was "
                "not confirmed"
            )
        known = self._read.setdefault((queue, queue_offset), number)
        if known != number:
            raise Violation(
                f"a consumer got put {number} at offset {queue_offset} of queue {queue}, where it "
                f"had got put {known}"
            )

    def sent_back(self, number: int, *, place: int, is_dead: bool) -> None:
        """Record a message that was sent back, with success."""
        topic = (DLQ_PREFIX if is_dead else RETRY_PREFIX) + READERS
        self._sent_back[topic, self._keys[number]] = place

    def made(self, *, topic: str = "", group: str = "") -> None:
        """Record a topic or a group that was acknowledged."""
        if topic:
            self._topics.add(topic)
        if group:
            self._groups.add(group)

    def warned(self) -> None:
        """Record that an operator elected a replica in spite of a warning."""
        self.warnings += 1
        self._sent.clear()
        self._delayed.clear()
        self._recalled.clear()
        self._sent_back.clear()
        self._halves.clear()
        self._read.clear()
        self._topics.clear()
        self._groups.clear()

    def lost_reads(self) -> None:
        """Record that messages are gone that a set smaller than inSyncReplicas had confirmed. They
        were readable, and not acknowledged."""
        self._has_lost_reads = True
        self._read.clear()

    # ---- checks

    def elected(self, broker: BrokerHost) -> None:
        """Check the tables of a broker that starts to serve as the master."""
        if not self._has_all_ack:
            return
        tables = broker.metadata.tables
        lost = sorted((self._topics - tables.topics.keys()) | (self._groups - tables.groups.keys()))
        if lost:
            raise Violation(
                f"{lost[0]} was acknowledged as on all members of the set; broker {broker.number} "
                f"is master in epoch {broker.role.epoch} and lacks it"
            )

    def apart(self, brokers: Mapping[int, BrokerHost], master: int) -> str:
        """Return a difference between the tables of brokers and those of the master; empty without
        a difference."""
        ours = brokers[master].metadata.tables
        for each in brokers.values():
            theirs = each.metadata.tables
            for name in ("topic_table", "group_table", "mode_table"):
                if getattr(theirs, name)() != getattr(ours, name)():
                    return f"the {name} of broker {each.number} differs from the master's"
            if theirs.offsets.table.snapshot().offsets != ours.offsets.table.snapshot().offsets:
                return f"the offsets of broker {each.number} differ from the master's"
        return ""

    def undelivered(self, log: ModelLog, now_ms: int) -> str:
        """Return a message that is not delivered, a delayed one or a timer message; empty where
        there is none. The clock of the master shows *now_ms*."""
        waiting, sent_back = dict(self._delayed), dict(self._sent_back)
        kept = set()
        for each in log.records(log.start_offset, log.whole_end):
            content = self._contents.of(each.number)
            if waiting.get(content.key) == content.topic:
                del waiting[content.key]
            elif _due_ms(content) > now_ms + _FAR_MS:
                waiting.pop(content.key, None)
            sent_back.pop((content.topic, content.key), None)
            if each.physical_offset >= self._first_kept:
                kept.add((each.queue, each.queue_offset))
        # A broker may have deleted a message that it had not delivered.
        lost = sorted(key for key in waiting if self._sent[key] in kept)
        if lost:
            return f"message {lost[0]} is not delivered"
        gone = sorted(each for each, at in sent_back.items() if at >= self._first_kept)
        return f"message {gone[0][1]}, sent back, is not in {gone[0][0]}" if gone else ""

    def undecided(self, log: ModelLog) -> str:
        """Return a half message whose transaction is not ended; empty where there is none."""
        waiting, kept = set(self._halves), set()
        for each in log.records(log.start_offset, log.whole_end):
            content = self._contents.of(each.number)
            if _is_commit(content):
                waiting.discard(content.key)
            # The broker puts a half message back when it asks.
            if content.topic == HALF_TOPIC and each.physical_offset >= self._first_kept:
                kept.add(content.key)
        left = sorted(key for key in waiting & kept if self._decisions.get(key) is not False)
        return f"the transaction {left[0]} is not ended, or not committed" if left else ""

    def kept_from(self, offset: int) -> None:
        """Record that a broker that serves clients has deleted its log before *offset*."""
        self._first_kept = max(self._first_kept, offset)

    def final(self, log: ModelLog, broker: BrokerHost) -> None:
        """Check the log and the tables of the master; those of all others are equal."""
        self.elected(broker)
        self._check_origins(log)
        self._check_recalled(log)
        self._check_commits(log)
        found = {
            (each.queue, each.queue_offset): each.number
            for each in log.records(log.start_offset, log.whole_end)
        }
        for key, place in self._sent.items():
            number = found.get(place)
            if number is None and self._was_deleted(place, found):
                continue
            if number is None or self._keys.get(number) != key:
                raise Violation(
                    f"message {key} was acknowledged at offset {place[1]} of queue {place[0]}; "
                    f"there is put {number} at the end"
                )
        for place, number in self._read.items():
            if place in found and found[place] != number:
                raise Violation(
                    f"a consumer got put {number} at {place}; put {found[place]} is there"
                )

    def _check_origins(self, log: ModelLog) -> None:
        origins: set[tuple[str, str]] = set()
        for each in log.records(log.start_offset, log.whole_end):
            properties = self._contents.of(each.number).properties
            for name in (DELAY_ORIGIN, TIMER_ORIGIN):
                origin = name, properties.get(name, "")
                if origin in origins:
                    raise Violation(f"the message of {name} {origin[1]} was delivered twice")
                if origin[1]:
                    origins.add(origin)

    def _check_recalled(self, log: ModelLog) -> None:
        for each in log.records(log.start_offset, log.whole_end):
            content = self._contents.of(each.number)
            if content.key in self._recalled and _is_timer_delivery(content):
                raise Violation(f"the timer message {content.key} was recalled, and is delivered")

    def _check_commits(self, log: ModelLog) -> None:
        committed: set[str] = set()
        for each in log.records(log.start_offset, log.whole_end):
            content = self._contents.of(each.number)
            if not _is_commit(content):
                continue
            if content.key in committed:
                raise Violation(f"the half message {content.key} was committed twice")
            if not self._decisions.get(content.key):
                raise Violation(
                    f"the half message {content.key} was committed, and not by a client"
                )
            committed.add(content.key)

    def _was_deleted(self, place: _Place, found: Mapping[_Place, int]) -> bool:
        """Return whether retention deleted the messages of a queue up to *place*; it deletes only
        confirmed messages."""
        queue, offset = place
        first = min((at for number, at in found if number == queue), default=None)
        return self._checker.is_confirmed(queue, offset) and (first is None or offset < first)


def _due_ms(content: Content) -> int:
    """Returns the time that a timer message waits for, 0 for other messages."""
    return int(content.properties[OUT_MS]) if content.topic == TIMER_TOPIC else 0


def _is_timer_delivery(content: Content) -> bool:
    return TIMER_ORIGIN in content.properties and content.topic != TIMER_TOPIC


def _is_commit(content: Content) -> bool:
    return content.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
