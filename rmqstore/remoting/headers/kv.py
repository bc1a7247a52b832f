"""Headers of requests about the key-value configuration of a nameserver."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, header, string

__all__ = [
    "ORDER_TOPICS",
    "GetKvConfigResponseHeader",
    "KvKeyRequestHeader",
    "KvNamespaceRequestHeader",
    "PutKvConfigRequestHeader",
]

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace of ordered topics: brokers get it with each registration, clients with a route."""


@header
class KvNamespaceRequestHeader(Header):
    """GET_KVLIST_BY_NAMESPACE (219)."""

    namespace: str = string("namespace")


@header
class KvKeyRequestHeader(KvNamespaceRequestHeader):
    """GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102)."""

    key: str = string("key")


@header
class PutKvConfigRequestHeader(KvKeyRequestHeader):
    """PUT_KV_CONFIG (100)."""

    value: str = string("value")


@header
class GetKvConfigResponseHeader(Header):
    """The value of a key."""

    value: str | None = string("value", default=None)
