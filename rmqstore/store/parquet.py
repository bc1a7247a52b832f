"""Records written to a Parquet file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rmqstore.errors import MissingExtraError
from rmqstore.store.arrow import ArrowStream

__all__ = ["write_parquet"]


def write_parquet(
    stream: ArrowStream, target: Path, *, progress: Callable[[int], None] | None = None
) -> int:
    """Write what *stream* reads to the file *target* and return the number of rows.

    The file is there whole or not at all. *progress* is called with the rows written so far. Raises
    MissingExtraError without pyarrow.
    """
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError(
            "a Parquet file needs the package pyarrow: pip install 'rmqstore[arrow]'"
        ) from error

    rows = 0
    unfinished = target.with_name(f"{target.name}.unfinished")
    reader = stream.reader()

    try:
        with pyarrow.parquet.ParquetWriter(unfinished, reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
                rows += batch.num_rows
                if progress is not None:
                    progress(rows)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)

    return rows
