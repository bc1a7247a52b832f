"""Checks a store of whatever state against itself: log, queues, index, checkpoint."""

from rmqstore.check.findings import Finding, Kind, Level, Report
from rmqstore.check.verify import verify

__all__ = ["Finding", "Kind", "Level", "Report", "verify"]
