"""RocketMQ's own integration tests, compiled and unmodified, against servers of ours and Java's.

Maven serves them for one release. They start their servers through one class, in whose place
`src/` has a class that names servers which run already. `table.toml` has the state of each test.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.java import Project
from tests.support.releases import NEW

__all__ = ["PROGRAMS", "RELEASE"]

HERE = Path(__file__).parent
PROGRAMS = Project(HERE / "pom.xml", (HERE / "src",))
"""The tests, the program that runs them, and RocketMQ's load programs."""
RELEASE = NEW
