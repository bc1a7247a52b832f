"""Who is connected to a master, and what each has said it holds.

A replica counts by its broker id, once, whatever number of connections it opens: the newest takes
the place of the one before. An acknowledgement is taken only behind a handshake and only for bytes
the master has.

What a replica holds counts once it is known to have stored the present epoch, and everything before
it. One that has not would be overruled by a replica with a later epoch than its own that is
promoted instead, and lose what it holds (Raft's figure 8).

The classic protocol names no replica: there each connection has an id of its own, and of the
connections from one address only one counts (`Replicas.countable`).
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from rmqstore.errors import ArgumentError

__all__ = ["AckFault", "Replica", "Replicas"]


class AckFault(StrEnum):
    """Why an acknowledgement was refused; its connection is to be closed."""

    NO_HANDSHAKE = "an acknowledgement before any handshake names no replica"
    NEGATIVE = "the acknowledged offset is negative"
    ABOVE_END = "the acknowledged offset is above the end of the master's log"


class Replica:
    """One connected replica. `ack_offset` is -1 until its first acknowledgement on this connection,
    `epoch` until it is known to have stored one; *names_epochs* says that it tells."""

    __slots__ = (
        "_mark",
        "_next_mark",
        "ack_offset",
        "address",
        "broker_id",
        "caught_up_ms",
        "connected_ms",
        "connection",
        "epoch",
        "is_learner",
        "names_epochs",
    )

    def __init__(
        self,
        broker_id: int,
        *,
        connection: int,
        is_learner: bool,
        names_epochs: bool,
        connected_ms: int,
        address: str | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.connection = connection
        self.is_learner = is_learner
        self.connected_ms = connected_ms
        self.address = address
        """Where a replica without a name of its own connects from, None for one with a name."""
        self.names_epochs = names_epochs
        self.ack_offset = self.epoch = -1
        self.caught_up_ms: int | None = None
        """The latest moment of which it is known to hold all that the master had then."""
        self._mark: tuple[int, int] | None = None
        self._next_mark: tuple[int, int] | None = None

    def sent(self, *, end_offset: int, now_ms: int) -> None:
        """Remember what the master had when it sent something.

        The oldest unanswered mark stays until it is reached: under a steady stream the newest one
        is always ahead of the acknowledgements, and a replica that is a millisecond behind would
        look as if it never kept up.
        """
        if self._mark is None:
            self._mark = (end_offset, now_ms)
        else:
            self._next_mark = (end_offset, now_ms)

    def acked(self, offset: int, *, epoch: int, end_offset: int, now_ms: int) -> None:
        """Take what the replica says it holds, as the truth of this moment, also when it is less
        than before, and the last epoch that it is known to have stored."""
        self.ack_offset, self.epoch = offset, epoch
        if offset == end_offset:
            self.caught_up_ms = now_ms
            self._mark = self._next_mark = None
        elif self._mark is not None and offset >= self._mark[0]:
            self.caught_up_ms = self._mark[1]
            self._mark, self._next_mark = self._next_mark, None

    def has_stored(self, epoch: int) -> bool:
        """Return whether it is known to have stored *epoch*."""
        # An empty log stores no epochs, and has nothing to lose.
        return self.epoch >= epoch or self.ack_offset == 0


class Replicas:
    """The replicas connected to the master *self_id*."""

    __slots__ = ("_by_connection", "_by_id", "self_id")

    def __init__(self, self_id: int) -> None:
        self.self_id = self_id
        self._by_connection: dict[int, Replica] = {}
        self._by_id: dict[int, Replica] = {}

    def __iter__(self) -> Iterator[Replica]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, broker_id: int) -> Replica | None:
        """Return the connected replica with that id."""
        return self._by_id.get(broker_id)

    def on(self, connection: int) -> Replica | None:
        """Return the replica of a connection; None before its handshake or after it was
        replaced."""
        return self._by_connection.get(connection)

    def countable(self) -> frozenset[int]:
        """Return the ids of the replicas whose copies may count: no learners, and of the
        connections from one address the newest that has acknowledged anything.

        A slave that connects again while its former connection is not known to be dead would
        otherwise be two copies. Several slaves behind one address are one copy at least.
        """
        newest: dict[str, Replica] = {}
        found = set()
        for each in self._by_id.values():
            if each.address is None:
                if not each.is_learner:
                    found.add(each.broker_id)
            elif each.ack_offset >= 0:
                other = newest.get(each.address)
                if other is None or other.connection < each.connection:
                    newest[each.address] = each
        return frozenset(found.union(each.broker_id for each in newest.values()))

    def connected(
        self,
        broker_id: int,
        *,
        connection: int,
        is_learner: bool = False,
        address: str | None = None,
        names_epochs: bool = False,
        now_ms: int,
    ) -> int | None:
        """Take a replica in after its handshake; return the connection it replaces, to be closed.
        Connections are numbered in the order in which they were opened.

        Nothing that was acknowledged over the former connection counts any more: a replica that
        comes back may have lost what it had. Raises ArgumentError for an id no replica can have,
        and for a second handshake on one connection that names another id.
        """
        if broker_id < 0 or broker_id == self.self_id:
            raise ArgumentError(
                f"connection {connection}: no replica can have the broker id {broker_id}: ids are "
                f"0 or more, and {self.self_id} is the master's own"
            )

        same = self._by_connection.get(connection)
        if same is not None:
            if same.broker_id != broker_id:
                raise ArgumentError(
                    f"connection {connection} belongs to broker {same.broker_id} and cannot become "
                    f"that of broker {broker_id}; open another"
                )
            same.is_learner, same.names_epochs = is_learner, names_epochs
            return None

        former = self._by_id.get(broker_id)
        if former is not None:
            del self._by_connection[former.connection]

        replica = Replica(
            broker_id,
            connection=connection,
            is_learner=is_learner,
            names_epochs=names_epochs,
            connected_ms=now_ms,
            address=address,
        )
        self._by_connection[connection] = self._by_id[broker_id] = replica
        return None if former is None else former.connection

    def acked(
        self, connection: int, offset: int, *, epoch: int, end_offset: int, now_ms: int
    ) -> AckFault | None:
        """Take an acknowledgement; return why it must not count, None when it does."""
        replica = self._by_connection.get(connection)
        if replica is None:
            return AckFault.NO_HANDSHAKE
        if offset < 0:
            return AckFault.NEGATIVE
        if offset > end_offset:
            return AckFault.ABOVE_END
        replica.acked(offset, epoch=epoch, end_offset=end_offset, now_ms=now_ms)
        return None

    def disconnected(self, connection: int) -> Replica | None:
        """Forget a connection; return the replica that is gone with it.

        None for one that had no handshake or was replaced: its replica is still there.
        """
        replica = self._by_connection.pop(connection, None)
        if replica is not None:
            del self._by_id[replica.broker_id]
        return replica

    def clear(self) -> None:
        """Remove all replicas, when the role ends."""
        self._by_connection.clear()
        self._by_id.clear()
