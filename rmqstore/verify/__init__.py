"""Checks a store of whatever state against itself: log, queues, index, checkpoint."""

from rmqstore.verify.findings import Finding, Kind, Level, Report
from rmqstore.verify.run import verify

__all__ = ["Finding", "Kind", "Level", "Report", "verify"]
