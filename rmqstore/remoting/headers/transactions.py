"""Headers of transactions: END_TRANSACTION (37), CHECK_TRANSACTION_STATE (39) and
RESUME_CHECK_HALF_MESSAGE (323)."""

from __future__ import annotations

from rmqstore.remoting.headers.field import Header, boolean, header, int32, int64, string
from rmqstore.remoting.headers.rpc import RpcRequestHeader, TopicRequestHeader

__all__ = [
    "CheckTransactionStateRequestHeader",
    "EndTransactionRequestHeader",
    "ResumeCheckHalfMessageRequestHeader",
]


@header
class EndTransactionRequestHeader(RpcRequestHeader):
    """The end of a transaction, of which the answer to its half message named the place."""

    topic: str | None = string("topic", default=None)
    """Since release 5.0."""
    producer_group: str = string("producerGroup")
    queue_offset: int = int64("tranStateTableOffset")
    """Of the half message."""
    physical_offset: int = int64("commitLogOffset")
    """Of the half message."""
    decision: int = int32("commitOrRollback")
    """8: commit, 12: rollback, 0: not known."""
    is_from_check: bool = boolean("fromTransactionCheck", default=False)
    """Whether the broker asked."""
    message_id: str | None = string("msgId", default=None)
    transaction_id: str | None = string("transactionId", default=None)


@header
class CheckTransactionStateRequestHeader(TopicRequestHeader):
    """The question of a broker how a transaction ended. The body is its half message, as a record
    of the real topic."""

    topic: str | None = string("topic", default=None)
    queue_offset: int = int64("tranStateTableOffset")
    """Of the half message."""
    physical_offset: int = int64("commitLogOffset")
    """Of the half message."""
    message_id: str | None = string("msgId", default=None)
    """The unique key."""
    transaction_id: str | None = string("transactionId", default=None)
    """The unique key."""
    offset_id: str | None = string("offsetMsgId", default=None)


@header
class ResumeCheckHalfMessageRequestHeader(Header):
    """A half message that was given up, whose producer is to be asked again."""

    topic: str | None = string("topic", default=None)
    message_id: str | None = string("msgId", default=None)
    """The offset message id."""
