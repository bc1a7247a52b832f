"""Topics and queues that a query names and no store has."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Iterator, Sequence

from rmqstore.errors import NotFoundError
from rmqstore.spark.files import Folder, join
from rmqstore.spark.options import Options
from rmqstore.spark.read.layout import Layout

__all__ = ["check_topics"]

_NAMED_MAX = 10
_TOPICS_BYTES_MAX = 64 << 20


def check_topics(layouts: Sequence[Layout], options: Options) -> None:
    """Raise NotFoundError for named topics and assigned queues that none of the stores has.

    Nothing is raised where that is unknown: when all stores are empty, one has no queue files,
    or a log ends after its queues.
    """
    named = list(_named(options))
    if not named or not any(layout.files for layout in layouts):
        return

    for layout in layouts:
        if layout.queues is None or layout.dispatched_end < layout.readable_end:
            return

    topics = frozenset[str]().union(*(layout.topics for layout in layouts))
    queues = {(each.topic, each.queue_id) for layout in layouts for each in layout.queues or ()}
    doubtful = frozenset[str]().union(*(layout.doubtful for layout in layouts))
    absent = [
        (topic, queue)
        for topic, queue in named
        if (topic not in topics if queue is None else (topic, queue) not in queues)
        and topic not in doubtful
    ]

    if absent:
        configured = [_topics_text(layout) for layout in layouts]
        absent = [
            each for each in absent if not any(_quoted(each[0]) in text for text in configured)
        ]

    if absent:
        stores = ", ".join(layout.root for layout in layouts[:_NAMED_MAX])
        answer = [_text(topic, queue, topics) for topic, queue in absent[:_NAMED_MAX]]
        raise NotFoundError(f"{stores}: {'; '.join(answer)}")


def _named(options: Options) -> Iterator[tuple[str, int | None]]:
    """Yield topics with the queue that is named, None for the topic as a whole."""
    for topic in options.topics or ():
        yield topic, None
    for topic, queues in (options.assign or {}).items():
        for queue in queues:
            yield topic, queue
    for bound in (options.starting_offsets, options.ending_offsets):
        if isinstance(bound, dict) and options.assign is None and options.topics is None:
            for topic in bound:
                yield topic, None


def _text(topic: str, queue: int | None, topics: Iterable[str]) -> str:
    if queue is not None and topic in topics:
        return f"topic {topic} has no queue {queue}"
    close = difflib.get_close_matches(topic, topics, n=1)
    if close:
        return f"there is no topic {topic}; did you mean {close[0]}?"
    some = sorted(topics)[:_NAMED_MAX]
    return f"there is no topic {topic}; there are {', '.join(some) or 'none'}" + (
        ", ..." if len(some) == _NAMED_MAX else ""
    )


def _topics_text(layout: Layout) -> str:
    """Return the broker's list of topics, of which some may have no message yet."""
    data = Folder(join(layout.root, "config")).read("topics.json", _TOPICS_BYTES_MAX)
    return "" if data is None else data.decode(errors="replace")


def _quoted(topic: str) -> str:
    return json.dumps(topic, ensure_ascii=False)
