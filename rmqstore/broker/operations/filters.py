"""Filters: the messages of a topic that a subscription selects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from rmqstore.errors import RequestRefused
from rmqstore.filters import SQL92, Selector, SqlError, selector_of
from rmqstore.remoting.bodies.clients import EVERYTHING
from rmqstore.remoting.codes import ResponseCode

__all__ = [
    "ALL",
    "TAG",
    "Filter",
    "RetrySelector",
    "Selects",
    "filter_of",
    "is_of_tags",
    "refuse_unsupported",
]

TAG = "TAG"
"""The type of expressions of tags."""
_TAGS_MAX = 64
_RETRY_TOPIC = "RETRY_TOPIC"


class Selects(Protocol):
    """Selects messages by the values of some properties."""

    @property
    def names(self) -> tuple[str, ...]:
        """The properties."""

    @property
    def cost(self) -> int:
        """Terms that a message is compared with at most."""

    def selects(self, values: Sequence[str | None]) -> bool:
        """Return whether a message with these values of *names* is selected."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects messages by their tags, or by other properties."""

    tags: tuple[str, ...] | None = None
    """The tags of selected messages; None selects all messages."""
    selector: Selects | None = None
    """What selects messages instead of tags."""


ALL = Filter()


@dataclass(frozen=True, slots=True)
class RetrySelector:
    """Selects messages of a retry topic by the expression for the topic that each came from; one of
    a topic without an expression is selected."""

    by_topic: Mapping[str, Selector]

    @property
    def names(self) -> tuple[str, ...]:
        names = [name for each in self.by_topic.values() for name in each.names]
        return tuple(dict.fromkeys((_RETRY_TOPIC, *names)))

    @property
    def cost(self) -> int:
        return max((each.cost for each in self.by_topic.values()), default=1)

    def selects(self, values: Sequence[str | None]) -> bool:
        selector = self.by_topic.get(values[0] or "")
        if selector is None:
            return True
        known = {name: value for name, value in zip(self.names, values, strict=True) if value}
        return selector.selects_properties(known)


def is_of_tags(expression_type: str) -> bool:
    """Return whether an expression of this type names tags."""
    return expression_type in (TAG, "")


def filter_of(expression_type: str, expression: str | None, *, allows_sql: bool) -> Filter:
    """Return the filter of a subscription. Raises RequestRefused for an expression that the broker
    cannot use."""
    if not is_of_tags(expression_type):
        refuse_unsupported(expression_type, allows_sql=allows_sql)
        return Filter(selector=_selector_of(expression or ""))
    if expression is None or expression in ("", EVERYTHING):
        return ALL
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))
    if not tags or len(tags) > _TAGS_MAX:
        raise _not_parsed(
            f"it names {len(tags)} tags; give 1 to {_TAGS_MAX} with || between them, or "
            f"{EVERYTHING}"
        )
    return Filter(tags)


def refuse_unsupported(expression_type: str, *, allows_sql: bool) -> None:
    """Raise RequestRefused (SYSTEM_ERROR) for an expression of a type that the broker does not
    serve."""
    if is_of_tags(expression_type) or (expression_type == SQL92 and allows_sql):
        return
    cure = "set enablePropertyFilter, or use tags" if expression_type == SQL92 else "use tags"
    raise RequestRefused(
        f"The broker does not support consumer to filter message by {expression_type}; {cure}",
        code=ResponseCode.SYSTEM_ERROR,
    )


def _selector_of(expression: str) -> Selector:
    try:
        return selector_of(expression)
    except SqlError as error:
        raise _not_parsed(str(error)) from error


def _not_parsed(problem: str) -> RequestRefused:
    return RequestRefused(
        f"parse the consumer's subscription failed: {problem}",
        code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
    )
