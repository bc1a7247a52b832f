"""Whole tables of a master, RocketMQ's or of this library, copied by a slave.

Every table is requested and read before the first one is replaced, so a slave has either all tables
of the master or its previous tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from rmqstore.broker.metadata.tables import Tables
from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.codes import RequestCode, ResponseCode
from rmqstore.remoting.frames import Frame
from rmqstore.remoting.headers.metadata import (
    GetAllGroupsRequestHeader,
    GetAllTopicsRequestHeader,
    TotalGroupsResponseHeader,
    TotalTopicsResponseHeader,
)
from rmqstore.store.metadata import (
    ConsumerOffsets,
    DelayOffsets,
    GroupTable,
    RequestModes,
    TopicTable,
    batch_queue_count,
)

__all__ = ["Call", "TakenTables", "first_page_of_topics", "take_tables"]

Call = Callable[[Frame], Awaitable[Frame]]
"""Sends a request to the master and returns its answer, with any code."""
T = TypeVar("T", TopicTable, GroupTable, ConsumerOffsets, DelayOffsets, RequestModes)

_PAGE = 2000
"""Entries of a page, as RocketMQ 5.5.0 requests them."""
_PAGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TakenTables:
    """The tables of a master. None stands for a table that the master does not have."""

    topics: TopicTable
    groups: GroupTable
    has_forbidden: bool
    """Whether the groups came with the forbidden topics: 5.3.3 does not send them."""
    offsets: ConsumerOffsets
    delays: DelayOffsets | None
    modes: RequestModes
    timer_checkpoint: bytes = b""
    timer_metrics: bytes = b""

    def put_in_place(self, tables: Tables) -> frozenset[str]:
        """Replace the tables and their versions by these; return the names of the changed
        tables."""
        changed = set()
        groups = self.groups
        if not self.has_forbidden:
            groups = replace(groups, forbidden=tables.group_table().forbidden)
        if self.topics != tables.topic_table():
            tables.take_topics(self.topics)
            changed.add("topic")
        if groups != tables.group_table():
            tables.take_groups(groups)
            changed.add("group")
        if self.modes != tables.mode_table():
            tables.take_modes(self.modes)
            changed.add("mode")
        if self.delays is not None and self.delays != tables.delays.latest:
            tables.delays.take_whole(self.delays)
            changed.add("delay")
        if not tables.offsets.table.is_at(self.offsets):
            tables.offsets.table.replace(self.offsets)
            changed.add("offset")
        return frozenset(changed)


def first_page_of_topics() -> GetAllTopicsRequestHeader:
    """Return the header of the first request for topics, which 5.3.3 and 5.5.0 understand."""
    return GetAllTopicsRequestHeader(topic_number=0, topics_max=_PAGE, data_version="")


async def take_tables(call: Call, *, with_timer: bool) -> TakenTables:
    """Return all tables of the master that *call* reaches, and the state of its timer if
    *with_timer*. Raises RemotingError, and UnsupportedStoreError where a topic has more queues than
    a store of this library."""
    topics = await _all_topics(call)
    for each in topics.topics.values():
        batch_queue_count(each)
    groups, has_forbidden = await _all_groups(call)
    offsets = await _read(call, RequestCode.GET_ALL_CONSUMER_OFFSET, ConsumerOffsets)
    light = {key: each for key, each in offsets.others.items() if key == "lmqOffsetTable"}
    delays: DelayOffsets | None = None
    answer = await call(Frame.request(RequestCode.GET_ALL_DELAY_OFFSET))
    if answer.code == ResponseCode.SUCCESS and answer.body:
        delays = _decoded(DelayOffsets, answer.body)
    modes = await _read(call, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE, RequestModes)
    checkpoint, metrics = b"", b""
    if with_timer:
        # A master without a timer has neither.
        checkpoint = await _bytes(call, RequestCode.GET_TIMER_CHECK_POINT)
        metrics = await _bytes(call, RequestCode.GET_TIMER_METRICS)
    return TakenTables(
        topics,
        groups,
        has_forbidden,
        replace(offsets, others=light),
        delays,
        modes,
        checkpoint,
        metrics,
    )


async def _all_topics(call: Call) -> TopicTable:
    async def page(number: int, version: str) -> tuple[TopicTable, int | None]:
        header = replace(first_page_of_topics(), topic_number=number, data_version=version)
        request = Frame.request(RequestCode.GET_ALL_TOPIC_CONFIG, header.to_fields())
        answer = (await call(request)).raise_for_code()
        total = TotalTopicsResponseHeader.from_fields(answer.ext_fields).total
        return _decoded(TopicTable, answer.body), total

    def join(found: TopicTable, more: TopicTable) -> TopicTable:
        return replace(more, topics={**found.topics, **more.topics})

    table = await _paged(page, join, lambda each: len(each.topics))
    # Beside topics the body has the queue mappings of static topics.
    return replace(table, others={})


async def _all_groups(call: Call) -> tuple[GroupTable, bool]:
    has_forbidden = False

    async def page(number: int, version: str) -> tuple[GroupTable, int | None]:
        nonlocal has_forbidden
        header = GetAllGroupsRequestHeader(
            group_number=number, groups_max=_PAGE, data_version=version
        )
        request = Frame.request(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header.to_fields())
        answer = (await call(request)).raise_for_code()
        has_forbidden = has_forbidden or b'"forbiddenTable":' in answer.body
        total = TotalGroupsResponseHeader.from_fields(answer.ext_fields).total
        return _decoded(GroupTable, answer.body), total

    def join(found: GroupTable, more: GroupTable) -> GroupTable:
        return replace(
            more,
            groups={**found.groups, **more.groups},
            forbidden={**found.forbidden, **more.forbidden},
        )

    table = await _paged(page, join, lambda each: len(each.groups))
    return replace(table, others={}), has_forbidden


P = TypeVar("P", TopicTable, GroupTable)


async def _paged(
    page: Callable[[int, str], Awaitable[tuple[P, int | None]]],
    join: Callable[[P, P], P],
    size_of: Callable[[P], int],
) -> P:
    """Returns all pages of a table. A page without a total is the whole table; one of another
    version begins the table again."""
    table, total = await page(0, "")
    for _ in range(_PAGES_MAX):
        if total is None or size_of(table) >= total:
            return table
        version = fastjson.dumps(table.data_version.to_json()).decode()
        more, total = await page(size_of(table), version)
        if more.data_version != table.data_version:
            table = more
        elif not size_of(more):
            return table
        else:
            table = join(table, more)
    raise RemotingFrameError(
        f"the master sent {_PAGES_MAX} pages of one table; look at its log, the table changes "
        "all the time"
    )


async def _read(call: Call, code: RequestCode, kind: type[T]) -> T:
    answer = (await call(Frame.request(code))).raise_for_code()
    return _decoded(kind, answer.body)


async def _bytes(call: Call, code: RequestCode) -> bytes:
    answer = await call(Frame.request(code))
    return answer.body if answer.code == ResponseCode.SUCCESS else b""


def _decoded(kind: type[T], body: bytes) -> T:
    try:
        return kind.from_json(body.decode() or "{}")
    except ValueError as error:
        raise RemotingFrameError(
            f"{kind.FILE_NAME} of the master cannot be read: {error}"
        ) from error
