"""The order of logs in an election: the log that holds the acknowledged messages ranks highest.

The rule is that of docs/replication.md, "Which replica to promote". It serves operators, the
simulator and the controller.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["LogRank", "reports_needed"]


class LogRank(NamedTuple):
    """The value that an election compares. A log with a higher rank holds every acknowledged
    message that a log with a lower rank holds."""

    last_epoch: int
    """The last epoch of the log, -1 for none."""
    end_offset: int
    """Where its last whole record ends."""


def reports_needed(voters: int, *, copies: int) -> int:
    """Return of how many of *voters* replicas the best log holds every message that is on *copies*
    of them.

    Fewer reports may miss all holders of a message. *copies* above *voters* need one report.
    """
    assert voters >= 0, "replicas are counted"
    assert copies >= 1, "a message has one copy at least"
    return max(voters - copies + 1, min(voters, 1))
