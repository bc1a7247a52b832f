"""The reader in Spark's own virtual machine: a jar of Java classes and the C core as a library.

It is built with the package where a JDK and pyspark are found. The classes request
schema, push-down and plan from `planner`, a Python process on the driver; tasks need no Python.
"""

from __future__ import annotations

from pathlib import Path

from rmqstore.errors import ArgumentError

__all__ = ["jar_path", "needs_jar"]

_JAR = Path(__file__).with_name("rmqstore-spark.jar")


def jar_path() -> Path | None:
    """Return the jar that a session needs for reading in the JVM, None where it was not built."""
    return _JAR if _JAR.is_file() else None


def needs_jar() -> ArgumentError:
    """Return the error for a session that should read in the JVM and lacks the jar."""
    if jar_path() is None:
        return ArgumentError(
            "reader: jvm is not in this installation, which was built without a JDK or without "
            "pyspark; leave the option out, or install the package from its sources beside both, "
            "with pip install --no-build-isolation"
        )
    return ArgumentError(
        "reader: jvm needs the jar in the session: start it by rmqstore.spark.session(), or with "
        f"--conf spark.jars={_JAR}"
    )
