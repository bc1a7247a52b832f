"""The queues that a broker assigns to a consumer: QUERY_ASSIGNMENT (400)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rmqstore.errors import RemotingFrameError
from rmqstore.remoting import fastjson
from rmqstore.remoting.bodies.queue_name import QueueName
from rmqstore.remoting.bodies.values import object_of, text_at

__all__ = ["AssignmentQuery", "Assignments"]

_MODELS = ("BROADCASTING", "CLUSTERING")


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentQuery:
    """The body of the request: a consumer asks for its queues of a topic."""

    topic: str
    group: str
    client_id: str
    strategy: str
    """The name of the strategy that the members of the group share queues by."""
    message_model: str = "CLUSTERING"
    """BROADCASTING where consumers share no queues."""

    @classmethod
    def decode(cls, body: bytes) -> AssignmentQuery:
        """Return the request of a body. Raises RemotingFrameError for another shape."""
        fields = object_of(fastjson.loads(body), "QueryAssignmentRequestBody")
        model = text_at(fields, "messageModel").upper()
        if model not in _MODELS:
            raise RemotingFrameError(
                f"messageModel: {model!r} is not a model; send BROADCASTING or CLUSTERING"
            )
        topic, group = text_at(fields, "topic"), text_at(fields, "consumerGroup")
        if not topic or not group:
            raise RemotingFrameError("topic or consumerGroup is missing; send both")
        return cls(
            topic=topic,
            group=group,
            client_id=text_at(fields, "clientId"),
            strategy=text_at(fields, "strategyName"),
            message_model=model,
        )


@dataclass(frozen=True, slots=True)
class Assignments:
    """The body of the answer."""

    queues: Sequence[QueueName] | None
    """None: the consumer keeps those that it has."""
    mode: str
    """PULL or POP."""

    def encode(self) -> bytes:
        """Return the body."""
        if self.queues is None:
            return fastjson.dumps({})
        found = [{"messageQueue": each.members(), "mode": self.mode} for each in self.queues]
        return fastjson.dumps({"messageQueueAssignments": found})
