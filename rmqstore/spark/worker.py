"""What a Python worker does once, before its first task reads a log."""

from __future__ import annotations

import functools
import gc

__all__ = ["settle"]


@functools.cache
def settle() -> None:
    """Take what has been imported out of garbage collection; in the driver do nothing.

    Spark collects garbage behind each task. That takes 20 ms for the modules of pyspark, pyarrow
    and pandas, as long as reading 100 MiB, and none of them ever becomes garbage.
    """
    from pyspark import TaskContext

    if TaskContext.get() is not None:
        gc.collect()
        gc.freeze()
