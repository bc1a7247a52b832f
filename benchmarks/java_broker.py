"""The real Java store in a JVM with the flags that RocketMQ starts its broker with."""

from __future__ import annotations

from benchmarks import java
from benchmarks.java import missing, supports
from benchmarks.peers import Figures, Job

__all__ = ["COLLECTOR", "NAME", "missing", "run", "supports"]

NAME = "java-broker"
COLLECTOR = ("-server", "-XX:+UseG1GC", "-XX:+AlwaysPreTouch")
FLAGS = ("-Xms4g", "-Xmx4g", *COLLECTOR)


def run(job: Job) -> Figures:
    """Do the job."""
    return java.run(job, FLAGS)
