"""What code in a Python worker of Spark's needs: less garbage collection, plain errors."""

from __future__ import annotations

import functools
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rmqstore.errors import StoreError

__all__ = ["plain_errors", "settle"]


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


@contextmanager
def plain_errors() -> Iterator[None]:
    """Let an error of this package reach the user without a traceback of the worker.

    Its text names cause and cure, and would be below the traceback. A worker ends after an error,
    so that no other error goes without its traceback.
    """
    try:
        yield
    except StoreError:
        if _is_worker():
            os.environ["SPARK_HIDE_TRACEBACK"] = "1"
        raise


def _is_worker() -> bool:
    """Return whether Spark started this process, by one of its modules."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name.startswith("pyspark.")
