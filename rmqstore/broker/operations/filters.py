"""Filters: the messages of a topic that a subscription selects."""

from __future__ import annotations

from dataclasses import dataclass

from rmqstore.errors import RequestRefused
from rmqstore.remoting.bodies.clients import EVERYTHING
from rmqstore.remoting.codes import ResponseCode

__all__ = ["ALL", "TAG", "Filter", "filter_of", "refuse_other_than_tags"]

TAG = "TAG"
"""The type of expressions of tags."""
_TAGS_MAX = 64


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects messages by their tags."""

    tags: tuple[str, ...] | None = None
    """The tags of selected messages; None selects all messages."""


ALL = Filter()


def filter_of(expression_type: str, expression: str | None) -> Filter:
    """Return the filter of a subscription. Raises RequestRefused for an expression that the broker
    cannot use."""
    refuse_other_than_tags(expression_type)
    if expression is None or expression in ("", EVERYTHING):
        return ALL
    tags = tuple(dict.fromkeys(tag.strip() for tag in expression.split("||") if tag.strip()))
    if not tags or len(tags) > _TAGS_MAX:
        raise RequestRefused(
            f"parse the consumer's subscription failed: it names {len(tags)} tags; give 1 to "
            f"{_TAGS_MAX} with || between them, or {EVERYTHING}",
            code=ResponseCode.SUBSCRIPTION_PARSE_FAILED,
        )
    return Filter(tags)


def refuse_other_than_tags(expression_type: str) -> None:
    """Raise RequestRefused (SYSTEM_ERROR) for an expression of another type."""
    if expression_type != TAG:
        raise RequestRefused(
            f"The broker does not support consumer to filter message by {expression_type}; use "
            "tags",
            code=ResponseCode.SYSTEM_ERROR,
        )
