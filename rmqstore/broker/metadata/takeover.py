"""Whole tables of a master, RocketMQ's or of this library, copied by a slave.

Every table is requested and read before the first one is replaced, so a slave has either all tables
of the master or its previous tables.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from rmqstore.broker.metadata.shared_table import SharedTable
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
from rmqstore.store.metadata import ConsumerOffsets, GroupTable, TopicTable, batch_queue_count
from rmqstore.store.metadata.table import Table

__all__ = ["Call", "TakenTables", "first_page_of_topics", "take_tables"]

Call = Callable[[Frame], Awaitable[Frame]]
"""Sends a request to the master and returns its answer, with any code."""
T = TypeVar("T", bound=Table)

_PAGE = 2000
"""Entries of a page, as RocketMQ 5.5.0 requests them."""
_PAGES_MAX = 10_000


@dataclass(frozen=True, slots=True)
class TakenTables:
    """The tables of a master."""

    by_name: Mapping[str, Any]
    """By the name of each table that the master has, the table."""
    has_forbidden: bool
    """Whether the groups came with the forbidden topics: 5.3.3 does not send them."""
    timer_checkpoint: bytes = b""
    timer_metrics: bytes = b""

    @property
    def topics(self) -> TopicTable:
        """The topics."""
        topics: TopicTable = self.by_name["topic"]
        return topics

    @property
    def groups(self) -> GroupTable:
        """The groups."""
        groups: GroupTable = self.by_name["group"]
        return groups

    @property
    def offsets(self) -> ConsumerOffsets:
        """The offsets of consumers."""
        offsets: ConsumerOffsets = self.by_name["offset"]
        return offsets

    def put_in_place(self, tables: Tables) -> frozenset[str]:
        """Replace the tables and their versions by these; return the names of the changed
        tables."""
        taken_by_name = dict(self.by_name)
        if not self.has_forbidden:
            taken_by_name["group"] = replace(self.groups, forbidden=tables.group_table().forbidden)

        changed = set()
        for table in tables.all:
            taken = taken_by_name.get(table.name)
            if taken is not None and not table.is_at(taken):
                table.take_whole(taken)
                changed.add(table.name)
        return frozenset(changed)


def first_page_of_topics() -> GetAllTopicsRequestHeader:
    """Return the header of the first request for topics, which 5.3.3 and 5.5.0 understand."""
    return GetAllTopicsRequestHeader(topic_number=0, topics_max=_PAGE, data_version="")


async def take_tables(
    call: Call, tables: Sequence[SharedTable], *, with_timer: bool
) -> TakenTables:
    """Return all *tables* of the master that *call* reaches, and the state of its timer if
    *with_timer*. Raises RemotingError, and UnsupportedStoreError where a topic has more queues than
    a store of this library."""
    has_forbidden = False
    found: dict[str, Any] = {}
    for table in tables:
        if table.code is None:
            continue
        if table.code == RequestCode.GET_ALL_TOPIC_CONFIG:
            found[table.name] = await _all_topics(call)
        elif table.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            found[table.name], has_forbidden = await _all_groups(call)
        else:
            answer = await call(Frame.request(table.code))
            is_lacking = answer.code != ResponseCode.SUCCESS or not answer.body
            if not (table.may_lack and is_lacking):
                whole = _decoded(table.file_type, answer.raise_for_code().body)
                found[table.name] = table.of_master(whole)

    checkpoint, metrics = b"", b""
    if with_timer:
        # A master without a timer has neither.
        checkpoint = await _bytes(call, RequestCode.GET_TIMER_CHECK_POINT)
        metrics = await _bytes(call, RequestCode.GET_TIMER_METRICS)
    return TakenTables(found, has_forbidden, checkpoint, metrics)


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
    for topic in table.topics.values():
        batch_queue_count(topic)
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
