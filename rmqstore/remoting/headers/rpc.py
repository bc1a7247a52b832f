"""Fields that the headers of most requests about a topic inherit (`RpcRequestHeader`)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, string

__all__ = ["RpcRequestHeader", "TopicRequestHeader"]


@header
class RpcRequestHeader(Header):
    """The destination of a request, for a proxy that forwards it."""

    namespace: str | None = string("ns", default=None)
    has_namespace: bool | None = boolean("nsd", default=None)
    broker_name: str | None = string("bname", default=None)
    is_one_way: bool | None = boolean("oway", default=None)


@header
class TopicRequestHeader(RpcRequestHeader):
    """A request about one topic."""

    is_logical: bool | None = boolean("lo", default=None)
    """Whether the queue id belongs to a static topic."""
