"""The rights that requests need, on which clusters, topics and groups.

    on_topic(Action.PUB)                        # the topic that the header names
    on_group(Action.SUB, Action.GET)            # either action suffices
    on_cluster(Action.UPDATE)                   # the cluster of the server

The words are those of RocketMQ's access control since release 5.3, and so are the rights of a
request where RocketMQ's header for it names some.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from rmqstore.topic_names import RETRY_PREFIX

__all__ = [
    "EVERY",
    "Action",
    "Need",
    "Resource",
    "Right",
    "every",
    "needs",
    "on_cluster",
    "on_group",
    "on_topic",
]

EVERY = "*"
"""The name for all resources of a kind."""


class Action(StrEnum):
    """What a request does with a resource. A policy may allow `All` instead of naming them."""

    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Resource(StrEnum):
    """A kind of what rights are given on."""

    CLUSTER = "Cluster"
    TOPIC = "Topic"
    GROUP = "Group"


Names = Callable[[Any, Any], Iterable[str | None]]
"""Returns the names of resources in a header and a body; a name that is empty or None is none."""


@dataclass(frozen=True, slots=True)
class Right:
    """One of some actions, on each resource that a request names."""

    resource: Resource
    actions: frozenset[Action]
    names: Names | None = None
    """None: the cluster of the server."""


class Need(NamedTuple):
    """What the sender of one request must be allowed: one of *actions* on one resource."""

    resource: Resource
    name: str | None
    """None: the cluster of the server."""
    actions: frozenset[Action]


def on_topic(*actions: Action, field: str = "topic", names: Names | None = None) -> Right:
    """Return a right on the topics in *field* of the header, or on those of *names*."""
    return Right(Resource.TOPIC, frozenset(actions), names or _in_header(field))


def on_group(*actions: Action, field: str = "group", names: Names | None = None) -> Right:
    """Return a right on the groups in *field* of the header, or on those of *names*."""
    return Right(Resource.GROUP, frozenset(actions), names or _in_header(field))


def on_cluster(*actions: Action, field: str | None = None) -> Right:
    """Return a right on the cluster in *field* of the header, or on that of the server."""
    return Right(Resource.CLUSTER, frozenset(actions), None if field is None else _in_header(field))


def every(header: object, body: object) -> Iterable[str]:
    """Name all resources of a kind, for requests about all of them."""
    return (EVERY,)


def _in_header(field: str) -> Names:
    name = attrgetter(field)
    return lambda header, body: (name(header),)


def needs(rights: Iterable[Right], header: Any, body: Any) -> tuple[Need, ...]:
    """Return what a request with *header* and *body* needs by *rights*, each need once."""
    return tuple(dict.fromkeys(_needs(rights, header, body)))


def _needs(rights: Iterable[Right], header: Any, body: Any) -> Iterator[Need]:
    for right in rights:
        if right.names is None:
            yield Need(right.resource, None, right.actions)
            continue
        for name in filter(None, right.names(header, body)):
            if right.resource is Resource.TOPIC and name.startswith(RETRY_PREFIX):
                # A retry topic belongs to its group, whose consumers send the messages back.
                actions = {Action.SUB if each is Action.PUB else each for each in right.actions}
                yield Need(Resource.GROUP, name.removeprefix(RETRY_PREFIX), frozenset(actions))
            else:
                yield Need(right.resource, name, right.actions)
