"""The prefixes of topics that belong to a consumer group."""

from __future__ import annotations

__all__ = ["DLQ_PREFIX", "RETRY_PREFIX"]

RETRY_PREFIX = "%RETRY%"
"""Before the name of a group: the topic of messages that the group consumes again."""
DLQ_PREFIX = "%DLQ%"
"""Before the name of a group: the topic of messages that the group has given up."""
