"""What the handlers of requests share: one table of all of them, the gate of roles, a refusal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from rmqstore.broker.context import Context
from rmqstore.errors import RequestRefused
from rmqstore.remoting.codes import ResponseCode
from rmqstore.remoting.frames import name_of_request
from rmqstore.remoting.requests import Call, Handler, Row, Standing

__all__ = ["Family", "RoleGate", "merged", "refuse_light_topic", "refuse_other_than_shown_master"]


class Family(Protocol):
    """The handlers of related requests."""

    def handlers(self) -> Mapping[int, Handler]:
        """Return the handlers by request code."""


def merged(families: Iterable[Family]) -> dict[int, Handler]:
    """Return the handlers of all *families*; each code has one."""
    handlers: dict[int, Handler] = {}
    for family in families:
        own = family.handlers()
        twice = sorted(handlers.keys() & own.keys())
        assert not twice, f"{type(family).__name__} answers {twice}, as another family does"
        handlers |= own
    return handlers


class RoleGate:
    """Admits a request in the roles that its row names."""

    def __init__(self, context: Context) -> None:
        self._context = context

    def admit(self, row: Row, call: Call[Any, Any]) -> None:
        """Raise RequestRefused (SERVICE_NOT_AVAILABLE) in another role."""
        if row.standing is not Standing.ANY and not self._context.role.is_known:
            raise RequestRefused(
                "the broker has no role yet; it serves clients once the controller or its peers "
                "name the master",
                code=ResponseCode.SERVICE_NOT_AVAILABLE,
            )


def refuse_other_than_shown_master(context: Context, code: int) -> None:
    """Raise RequestRefused (SERVICE_NOT_AVAILABLE) where routes do not show this broker as the
    master."""
    if not (context.is_leading or context.is_shown_as_master):
        raise RequestRefused(
            f"{name_of_request(code)} is served by the master; get the route again",
            code=ResponseCode.SERVICE_NOT_AVAILABLE,
        )


def refuse_light_topic(light_topic: str | None) -> None:
    """Raise RequestRefused for a request of a light topic, a queue of its own, instead of answering
    from the queue of its parent topic."""
    if light_topic:
        raise RequestRefused(
            f"light topics ({light_topic}) are not served by this broker; read the whole topic",
            code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        )
